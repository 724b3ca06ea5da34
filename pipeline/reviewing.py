"""`latentmill review`: the lock, the address, the browser, and the summary at the end."""

import os
import sys
import time
import webbrowser
from dataclasses import replace

from rich.console import Console
from rich.markup import escape

from latentmill.cache.lock import held
from latentmill.datasets.records import Report
from latentmill.pipeline.config import Config
from latentmill.pipeline.console import print_report
from latentmill.pipeline.options import Asked
from latentmill.pipeline.run import lock_paths, open_work_folder, remember
from latentmill.stages.review import Review


def run_review(config: Config, asked: Asked, port: int, opens_browser: bool) -> Report:
    """Serve the page until a person ends it; no `caption` and no other page runs meanwhile."""
    started = time.perf_counter()
    layout = config.layout()
    open_work_folder(layout)
    stage = Review(
        layout,
        config.sources(),
        config.caption,
        config.validation,
        config.sample.negative,
        port,
    )
    (lock,) = lock_paths(layout, "caption")  # Both write review.csv.
    with held(lock, "latentmill review"):
        remember(config)
        report = stage.run(lambda address: _welcome(address, asked.console, opens_browser))
    report = replace(report, seconds=round(time.perf_counter() - started, 3))
    print_report(asked.console, report, asked.spell)
    return report


def _welcome(address: str, console: Console, opens_browser: bool) -> None:
    console.print(f"review: open [bold]{escape(address)}[/]")
    console.print("  every change is in review.csv at once; Ctrl-C ends the page")
    if opens_browser and _has_screen():
        webbrowser.open(address)


def _has_screen() -> bool:
    """Whether a browser has a window: one of the terminal would take this terminal away."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
