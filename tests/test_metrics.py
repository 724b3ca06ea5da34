import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from latentmill.stages.training.checkpoint import Progress
from latentmill.stages.training.metrics import Clock, MetricsLog, StepMetrics

LINE = StepMetrics(
    step=1,
    epoch=1,
    loss=0.5,
    lr=1e-4,
    grad_norm=0.1,
    images_per_second=2.0,
    seconds=1.0,
    memory_bytes=2**20,
)


def test_a_resumed_log_goes_on_after_its_step(tmp_path: Path) -> None:
    first = MetricsLog(tmp_path, 0)
    for step in (1, 2, 3):
        first.write(replace(LINE, step=step), 4)
    first.close()
    second = MetricsLog(tmp_path, 2)
    second.write(replace(LINE, step=3, loss=None), 4)
    second.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 0.5), (2, 0.5), (3, None)]


def test_without_tensorboard_the_file_has_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = MetricsLog(tmp_path, 0)
    log.write(LINE, 1)
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_tensorboard_holds_the_same_values(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.write(LINE, 1)
    log.close()
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = events.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(at.step, at.value) for at in board.Scalars("loss")] == [(1, 0.5)]


def test_the_clock_counts_the_time_before_a_resume() -> None:
    clock = Clock(Progress(seconds=100.0, samples_seen=10))
    assert 100.0 <= clock.at(Progress()).seconds < 101.0
    assert clock.lap(samples_seen=10) == 0.0
