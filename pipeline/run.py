"""Run one stage: plan, work under an engine, finish, write its report."""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from latentmill.cache.files import write_json
from latentmill.cache.part import Part
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, Spell
from latentmill.datasets.records import Report
from latentmill.datasets.versions import versions
from latentmill.pipeline.config import Config
from latentmill.pipeline.console import print_report
from latentmill.pipeline.engines import Engine
from latentmill.pipeline.progress import shown_progress
from latentmill.pipeline.stage import Prepared, Stage
from latentmill.pipeline.work_record import Claim, read_record, require_own, write_record


@dataclass(frozen=True, slots=True)
class Driver:
    """How stages are run: with what configuration, by which engine, said where and how."""

    config: Config
    engine: Engine
    console: Console
    spell: Spell = str
    part: Part | None = None

    def run(self, stage: Stage[Any, Any]) -> Report:
        """Run `stage`; its report is on disk and printed when this returns."""
        from latentmill.cache.lock import held

        if stage.name == "train" and is_follower(os.environ):
            return self._follow(stage)
        started = time.perf_counter()
        layout = self.config.layout()
        open_work_folder(layout)
        with ExitStack() as locks:
            for path in lock_paths(layout, stage.name):
                locks.enter_context(held(path, f"latentmill {stage.name}", self.part))
            remember(self.config)
            units = stage.prepare() if isinstance(stage, Prepared) else stage.plan()
            with shown_progress(self.console, stage.name, sum(unit.size for unit in units)) as tick:
                results = list(self.engine(stage, units, tick))
            report = stage.finish(results)
            report = replace(
                report, seconds=round(time.perf_counter() - started, 3), versions=versions()
            )
            write_json(layout.report(report.stage), report.to_json())
        print_report(self.console, report, self.spell)
        return report

    def _follow(self, stage: Stage[Any, Any]) -> Report:
        """Do the work beside the first process, which holds the lock, writes and speaks."""
        logging.getLogger("latentmill").setLevel(logging.ERROR)
        units = stage.plan()
        for _ in self.engine(stage, units, lambda _: None):
            pass
        return Report(stage.name, ok=True, counts={})


def is_follower(environment: Mapping[str, str]) -> bool:
    """Whether torchrun or accelerate started this as another than the first process of a run."""
    several = int(environment.get("WORLD_SIZE") or 1) > 1
    return several and int(environment.get("RANK") or 0) > 0


def claim_work(config: Config) -> str:
    """Refuse a work folder that belongs to other data; return what is to be said of it, or ""."""
    return require_own(Claim(config.layout(), config.data, named=bool(config.work)))


def remember(config: Config) -> None:
    """Note in the work folder which data and model it is used with."""
    if config.data:
        known = read_record(config.layout().work)
        was_named = bool(config.model.model_fields_set)
        model = config.model if was_named else known.model if known else None
        write_record(config.layout().work, config.data, model)


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
            fix="change its permissions, or choose another one",
            run=(Command(flags=("--work", "DIR")),),
        ) from None
