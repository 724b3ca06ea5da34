"""Progress: never silent for long off a terminal, rate and time left on one."""

import io

import pytest
from rich.console import Console

from latentmill.pipeline.progress import PlainProgress, shown_progress


def _said(total: int, seconds_each: float) -> list[str]:
    lines: list[str] = []
    clock = [0.0]
    progress = PlainProgress("train", total, lines.append, lambda: clock[0])
    for _ in range(total):
        clock[0] += seconds_each
        progress.tick(1)
    return lines


def test_a_long_stage_says_a_line_each_tenth() -> None:
    lines = _said(200, 0.5)
    assert len(lines) == 9
    assert lines[0] == "train: 20 of 200 (10%), 2.0/s, 1 min 30 s left"
    assert lines[-1] == "train: 180 of 200 (90%), 2.0/s, 10 s left"


def test_a_slow_stage_says_a_line_each_half_minute() -> None:
    lines = _said(100, 20.0)
    assert len(lines) > 40
    assert lines[0] == "train: 2 of 100 (2%), 3.0/min, 32 min 40 s left"


@pytest.mark.parametrize(("total", "seconds_each"), [(1000, 0.001), (1, 100.0)])
def test_a_short_stage_says_nothing_before_its_end(total: int, seconds_each: float) -> None:
    assert _said(total, seconds_each) == []


def test_a_file_gets_no_bar() -> None:
    written = io.StringIO()
    with shown_progress(Console(file=written), "cache", 3) as tick:
        tick(3)
    assert written.getvalue() == ""


def test_a_terminal_shows_rate_and_time_left() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    with shown_progress(console, "cache", 4) as tick:
        for _ in range(3):
            tick(1)
    shown = written.getvalue()
    assert "cache" in shown
    assert "3/4" in shown
    assert "/s" in shown
    assert "left" in shown
