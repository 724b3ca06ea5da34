"""How far a stage is: a bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as ProgressTask
from rich.text import Text

from latentmill.pipeline.stage import Tick

LONGEST_SILENCE_SECONDS = 30.0
SHORTEST_SILENCE_SECONDS = 2.0
"""A short stage says nothing before its end."""


class RateColumn(TextColumn):
    """Pictures or steps per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: ProgressTask) -> Text:
        """Show the mean rate so far."""
        speed = task.finished_speed or task.speed
        return Text(_rate(speed) if speed else "", style="progress.data.speed")


class PlainProgress:
    """Says `say` a line at each tenth of `total`, and after half a minute at the latest."""

    def __init__(
        self,
        name: str,
        total: int,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._total, self._say, self._now = name, total, say, now
        self._done = self._tenths = 0
        self._begun = self._said = now()

    def tick(self, count: int) -> None:
        """Count what was just done."""
        self._done += count
        now = self._now()
        silence, tenths = now - self._said, 10 * self._done // self._total
        is_tenth = tenths > self._tenths and silence >= SHORTEST_SILENCE_SECONDS
        if self._done < self._total and (is_tenth or silence >= LONGEST_SILENCE_SECONDS):
            self._say(self._line(now - self._begun))
            self._said, self._tenths = now, tenths

    def _line(self, seconds: float) -> str:
        rate = self._done / max(seconds, 1e-9)
        left = (self._total - self._done) / rate
        share = f"{self._done:,} of {self._total:,} ({self._done / self._total:.0%})"
        return f"{self._name}: {share}, {_rate(rate)}, {_duration(left)} left"


@contextmanager
def shown_progress(console: Console, name: str, total: int) -> Iterator[Tick]:
    """A bar with rate, time and time left on a terminal; plain lines elsewhere."""
    if not console.is_terminal and total:
        yield PlainProgress(name, total, lambda line: console.print(f"  {escape(line)}")).tick
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not total,
        transient=True,
    )
    with bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)


def _rate(per_second: float) -> str:
    return f"{per_second:.1f}/s" if per_second >= 0.1 else f"{per_second * 60:.1f}/min"


def _duration(seconds: float) -> str:
    """A time as `48 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
