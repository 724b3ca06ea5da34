"""What people see on standard error: log lines, a bar, and a summary worst first."""

import logging
import sys

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from latentmill.datasets.errors import LatentmillError
from latentmill.datasets.next_steps import Spell
from latentmill.datasets.records import Report
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


def print_report(console: Console, report: Report, spell: Spell = str) -> None:
    """One screen: counts, problems worst first with the files they concern, what to do next."""
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in summary(report, width, spell):
        console.print(line)


def print_failure(console: Console, error: LatentmillError, spell: Spell = str) -> None:
    """The failure in its lines: what, where, what was expected, what to do next."""
    console.print(f"[bold red]latentmill:[/] {escape(error.explained(spell))}")
