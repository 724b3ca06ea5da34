"""The summary of a stage on a terminal of 24 lines and 80 columns, or in a log file."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Level, Problem, Report
from latentmill.pipeline.console import print_report
from latentmill.pipeline.summary import fit, shorten_middle, summary

STEPS = (
    step("open work/my-dog/validate/report.html"),
    step("validate again", Command("validate")),
)


def problem(code: str, level: Level, path: str = "a.png", message: str = "odd") -> Problem:
    return Problem("p1", path, code, message, f"mend {code}", level)


def report(*problems: Problem, exit_code: int = 3) -> Report:
    counts = {"found": 9, "usable": 8, "rejected": 1}
    return Report(
        "validate", not exit_code, counts, problems, next_steps=STEPS, exit_code=exit_code
    )


def lines(*problems: Problem, width: int = 80) -> list[str]:
    return [line.plain for line in summary(report(*problems), width)]


def many(level: Level, kinds: int, each: int) -> list[Problem]:
    return [
        problem(f"{level}-{kind}", level, f"{level} {kind} {number}.png")
        for kind in range(kinds)
        for number in range(each)
    ]


def test_the_worst_comes_first_and_names_its_files() -> None:
    found = [
        problem("no-captions", "advice", "", "None has one"),
        problem("turned-upright", "warning", "t.jpg"),
        problem("turned-upright", "warning", "u.jpg"),
        problem("encoding-unsure", "check", "c.png", "ambiguous"),
        problem("truncated", "reject", "r.png", "cut"),
        problem("truncated", "reject", "s.png", "cut"),
    ]
    assert lines(*found) == [
        "validate needs a person in 0.0 s: 9 found, 8 usable, 1 rejected",
        "  reject truncated (2): mend truncated",
        "    r.png: cut",
        "    s.png: cut",
        "  check encoding-unsure: c.png: ambiguous",
        "  warning turned-upright (2), such as t.jpg",
        "  advice no-captions: None has one",
        "  -> open work/my-dog/validate/report.html",
        "  -> validate again:",
        "       latentmill validate",
    ]


@pytest.mark.parametrize("kinds", [1, 3, 30])
@pytest.mark.parametrize("each", [1, 2, 500])
def test_however_much_is_found_it_fits_one_screen(kinds: int, each: int) -> None:
    found = [one for level in ("reject", "check", "warning") for one in many(level, kinds, each)]
    said = lines(*found)
    assert len(said) <= 23
    assert max(map(cell_len, said)) <= 80
    for level in ("reject", "check", "warning"):
        assert any(level in line for line in said)
    if kinds == 30:
        assert any("more kinds" in line for line in said)


def test_what_is_not_shown_is_counted() -> None:
    said = "\n".join(lines(*many("reject", 1, 40), *many("warning", 30, 2)))
    assert "reject reject-0 (40, 8 shown)" in said
    shown = said.count("such as")
    assert f"and {60 - 2 * shown} of {30 - shown} more kinds" in said


def test_steps_are_never_cut() -> None:
    text = "run this: " + "x" * 200
    long = Report("validate", False, {}, (), next_steps=(step(text),), exit_code=3)
    assert summary(long, 80)[-1].plain == f"  -> {text}"


def test_names_cannot_disturb_the_terminal() -> None:
    evil = "a\n\x1b[31m\u202e[red]b\udcff.png"
    (line,) = lines(problem("truncated", "reject", evil, "cut\r\x07"))[1:2]
    assert line == r"  reject truncated: a\n\x1b[31m\u202e[red]b\udcff.png: cut\r\x07"
    stream = io.StringIO()
    print_report(Console(file=stream, soft_wrap=True), report(problem("x", "reject", evil)))
    assert "[red]b" in stream.getvalue()
    assert not set(stream.getvalue()) & {"\x1b", "\u202e"}


def test_a_log_file_gets_whole_names() -> None:
    stream = io.StringIO()
    name = "folder/" + "n" * 100 + ".png"
    print_report(Console(file=stream, soft_wrap=True), report(problem("x", "reject", name)))
    assert name in stream.getvalue()


@given(st.text(), st.integers(4, 60))
def test_shortened_texts_fit(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) <= width
    assert cell_len(shorten_middle(text, width)) <= width


def test_a_path_keeps_its_beginning_and_its_name() -> None:
    path = "photos/2024/summer/holiday/beach/IMG_0001.jpg"
    assert shorten_middle(path, 24) == "photos/…ach/IMG_0001.jpg"
    assert shorten_middle("写真/" * 20 + "猫.png", 16) == "写真/…真/猫.png"
    assert shorten_middle("short.png", 24) == "short.png"
