"""What people see on standard error: log lines, a bar, and a summary worst first."""

import logging
import sys
from collections.abc import Iterator, Mapping
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
from latentmill.datasets.records import Problem, Report, count_codes
from latentmill.pipeline.stage import Tick

LEVELS = ("reject", "check", "warning", "advice")
STYLES = {"reject": "red", "check": "yellow", "warning": "yellow", "advice": "cyan"}
EXAMPLES = 5


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
    """One screen: counts, problems by code with a few examples, what to do next."""
    counts = ", ".join(count_phrases(report.counts))
    mark = "[green]done[/]" if report.exit_code == 0 else "[yellow]needs a person[/]"
    console.print(f"[bold]{report.stage}[/] {mark} in {report.seconds:.1f} s: {escape(counts)}")
    for level in LEVELS:
        chosen = [problem for problem in report.problems if problem.level == level]
        for code, count in count_codes(chosen).items():
            _print_code(console, [p for p in chosen if p.code == code], code, count)
    for step in report.next_steps:
        console.print(f"  [bold]->[/] {escape(step)}")


def count_phrases(counts: Mapping[str, int]) -> list[str]:
    """Counts as words, those that are zero left out: `5 usable`, `2 shards written`."""
    return [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]


def _print_code(console: Console, problems: list[Problem], code: str, count: int) -> None:
    style = STYLES[problems[0].level]
    console.print(f"  [{style}]{problems[0].level} {code}[/] ({count})")
    for problem in problems[:EXAMPLES]:
        name = f"{problem.path}: " if problem.path else ""
        console.print(f"    {escape(name + problem.message)}")
    if count > EXAMPLES:
        console.print(f"    ... and {count - EXAMPLES} more, all of them in the report")
    fixes = list(dict.fromkeys(problem.fix for problem in problems if problem.fix))
    for fix in fixes[:2]:
        console.print(f"    [dim]do:[/] {escape(fix)}")


def print_failure(console: Console, error: LatentmillError) -> None:
    """The failure in its four lines."""
    console.print(f"[bold red]latentmill:[/] {escape(str(error))}")
