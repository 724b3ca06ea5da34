"""The same units give the same results under every engine."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from latentmill.datasets.errors import DataError, LatentmillError, UsageError
from latentmill.datasets.records import Report
from latentmill.pipeline.engines import choose_engine, processes, ray_tasks, serial
from latentmill.pipeline.stage import Tick
from latentmill.stages.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Number:
    value: int

    @property
    def label(self) -> str:
        return f"number {self.value}"

    @property
    def size(self) -> int:
        return 2


@dataclass(frozen=True, slots=True)
class Squares:
    folder: Path
    name: str = "squares"

    def plan(self) -> Sequence[Number]:
        return [Number(value) for value in range(5)]

    def work(self, unit: Number, tick: Tick) -> int:
        if unit.value == 99:
            os._exit(9)
        if unit.value < 0:
            raise DataError("negative", where=unit.label)
        (self.folder / str(unit.value)).write_text(str(os.getpid()))
        tick(unit.size)
        return unit.value**2

    def finish(self, results: Sequence[int]) -> Report:
        return Report(self.name, True, {"sum": sum(results)})


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_processes_do_what_serial_does(tmp_path: Path, workers: int) -> None:
    stage, ticks = Squares(tmp_path), []
    done = processes(stage, stage.plan(), ticks.append, workers)
    assert sorted(done) == list(serial(stage, stage.plan(), lambda _: None)) == [0, 1, 4, 9, 16]
    assert sum(ticks) == 10


def test_other_processes_do_the_work(tmp_path: Path) -> None:
    stage = Squares(tmp_path)
    list(processes(stage, stage.plan(), lambda _: None, 2))
    assert str(os.getpid()) not in {path.read_text() for path in tmp_path.iterdir()}


def test_no_units_start_no_process(tmp_path: Path) -> None:
    assert list(processes(Squares(tmp_path), [], lambda _: None, 2)) == []


def test_a_failure_in_a_worker_keeps_its_class_and_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="negative") as caught:
        list(processes(Squares(tmp_path), [Number(-1)], lambda _: None, 2))
    assert caught.value.where == "number -1"


def test_a_dead_worker_is_explained(tmp_path: Path) -> None:
    with pytest.raises(LatentmillError, match="worker process died") as caught:
        list(processes(Squares(tmp_path), [Number(99), Number(1)], lambda _: None, 1))
    assert "stage squares" in caught.value.where


@pytest.mark.slow
def test_ray_does_what_serial_does_and_keeps_a_failure_s_words(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    on_sigterm = signal.getsignal(signal.SIGTERM)
    stage, ticks = Squares(tmp_path), []
    assert sorted(ray_tasks(stage, stage.plan(), ticks.append, 2)) == [0, 1, 4, 9, 16]
    assert sum(ticks) == 10
    assert str(os.getpid()) not in {path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(DataError, match="negative") as caught:
        list(ray_tasks(stage, [Number(-1)], ticks.append, 1))
    assert caught.value.where == "number -1"
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is on_sigterm


def test_a_machine_without_ray_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    engine = choose_engine(EngineSettings(kind="ray"))
    with pytest.raises(UsageError, match="not installed") as caught:
        list(engine(Squares(tmp_path), [Number(1)], lambda _: None))
    assert "latentmill[ray]" in caught.value.fix


def test_the_setting_chooses_the_engine() -> None:
    assert choose_engine(EngineSettings(kind="serial")) is serial
    assert choose_engine(EngineSettings(kind="processes", workers=2)) is not serial
