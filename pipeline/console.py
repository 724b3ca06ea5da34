"""What people see on standard error: log lines, a bar, and a summary worst first."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.logging import RichHandler
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

from latentmill.datasets.errors import LatentmillError
from latentmill.datasets.records import Report
from latentmill.pipeline.stage import Tick
from latentmill.pipeline.summary import summary

PLAIN_WIDTH = 160
"""Cells of a line in a log file."""


def open_console() -> Console:
    """The console on standard error; prints any file name on any encoding."""
    for stream in (sys.stderr, sys.stdout):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return Console(stderr=True, highlight=False, soft_wrap=True)


def set_up_logging(console: Console, quiet: bool) -> None:
    """Send latentmill's log lines to the console, above a bar that may be shown."""
    handler: logging.Handler = (
        RichHandler(console=console, show_time=False, show_level=False, show_path=False)
        if console.is_terminal
        else logging.StreamHandler()
    )
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("latentmill")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False


class RateColumn(TextColumn):
    """Pictures or steps per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: ProgressTask) -> Text:
        """Show the mean rate so far."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f}/s" if speed else "", style="progress.data.speed")


@contextmanager
def progress_bar(console: Console, name: str, total: int) -> Iterator[Tick]:
    """A bar with rate and time left on a terminal; nothing elsewhere."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal or not total,
        transient=True,
    )
    with bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)


def print_report(console: Console, report: Report) -> None:
    """One screen: counts, problems worst first with the files they concern, what to do next."""
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in summary(report, width):
        console.print(line)


def print_failure(console: Console, error: LatentmillError) -> None:
    """The failure in its four lines."""
    console.print(f"[bold red]latentmill:[/] {escape(str(error))}")
