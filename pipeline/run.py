"""Run one stage: plan, work under an engine, finish, write its report."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from latentmill.cache.files import write_json
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.datasets.versions import versions
from latentmill.pipeline.console import print_report, progress_bar
from latentmill.pipeline.engines import Engine
from latentmill.pipeline.stage import Stage


@dataclass(frozen=True, slots=True)
class Driver:
    """How stages are run: on what work folder, by which engine, said where."""

    layout: Layout
    engine: Engine
    console: Console

    def run(self, stage: Stage[Any, Any]) -> Report:
        """Run `stage`; its report is on disk and printed when this returns."""
        from latentmill.cache.lock import held

        started = time.perf_counter()
        open_work_folder(self.layout)
        with ExitStack() as locks:
            for path in lock_paths(self.layout, stage.name):
                locks.enter_context(held(path, f"latentmill {stage.name}"))
            units = stage.plan()
            with progress_bar(self.console, stage.name, sum(unit.size for unit in units)) as tick:
                results = list(self.engine(stage, units, tick))
            report = stage.finish(results)
            report = replace(
                report, seconds=round(time.perf_counter() - started, 3), versions=versions()
            )
            write_json(self.layout.report(stage.name), report.to_json())
        print_report(self.console, report)
        return report


def lock_paths(layout: Layout, stage: str) -> list[Path]:
    """The folders that one command at a time may write: the stage's, and shared shards."""
    folders = [layout.stage(stage)]
    if stage == "cache" and layout.shared_cache is not None:
        folders.append(layout.shared_cache)
    return [folder / "lock" for folder in folders]


def open_work_folder(layout: Layout) -> None:
    """Make the work folder; raises UsageError when it cannot be written."""
    try:
        layout.work.mkdir(parents=True, exist_ok=True)
        probe = layout.work / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"the work folder cannot be written: {error.strerror}",
            where=str(layout.work),
            fix="change its permissions, or choose another one with --work DIR (make: WORK=DIR)",
        ) from None
