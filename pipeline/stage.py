"""What a stage is: a plan of units, the work on one, and a report at the end."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from latentmill.datasets.records import Report

Tick = Callable[[int], None]
"""Called by `work` with the number of pictures or steps just done."""


class Unit(Protocol):
    """A small, picklable piece of work, the same for any number of workers."""

    @property
    def label(self) -> str:
        """What to call it in a message."""

    @property
    def size(self) -> int:
        """Pictures or steps in it, for the progress bar."""


UnitT = TypeVar("UnitT", bound=Unit)
ResultT = TypeVar("ResultT")


class Stage(Protocol[UnitT, ResultT]):
    """A frozen, picklable object that holds its settings and paths."""

    @property
    def name(self) -> str:
        """The stage's command and folder."""

    def plan(self) -> Sequence[UnitT]:
        """Name what is to be done: cheap, deterministic, in the driver; done units left out."""

    def work(self, unit: UnitT, tick: Tick) -> ResultT:
        """Do one unit and commit its output; runs in any process, in any order."""

    def finish(self, results: Sequence[ResultT]) -> Report:
        """Merge what lies on disk into the stage's files; `results` are this run's. Idempotent."""


@runtime_checkable
class Prepared(Protocol):
    """A stage that makes ready before its first unit, under the locks of its folders."""

    def prepare(self) -> Sequence[Unit]:
        """Do what `plan` does, and whatever must be written or cleared away before the work."""
