"""The ledger of a work folder, and what each stage has still to do."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from latentmill.datasets.errors import DataError, LatentmillError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import read_manifest
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.selection import Selection, select_samples
from latentmill.pipeline.config import Config
from latentmill.pipeline.stages import Choice, make_stage
from latentmill.pipeline.summary import count_phrases

CHECKED = ("validate", "caption", "cache")


@dataclass(frozen=True, slots=True)
class StageState:
    """One stage: `state` is `missing`, `fresh`, `stale` or `blocked`; `note` says why."""

    name: str
    state: str
    note: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Status:
    """Where a work stands: its stages, and the account of its pictures."""

    work: str
    stages: tuple[StageState, ...]
    ledger: tuple[str, ...]
    closes: bool

    def to_json(self) -> dict[str, Any]:
        """The object that `status --json` prints."""
        return asdict(self)


def read_status(config: Config) -> Status:
    """Ask each stage for its plan; nothing is decoded, encoded or trained."""
    layout = config.layout()
    stages = [_stage_state(name, config, layout) for name in CHECKED]
    counts = {stage.name: stage.counts for stage in stages}
    counts["train"] = _counts(layout, "train")
    ledger, closes = _ledger(counts, _selection(config, layout))
    stages.append(_run_state(layout, counts["train"]))
    return Status(str(layout.work), tuple(stages), ledger, closes)


def print_status(console: Console, status: Status) -> None:
    """One line per stage, then the ledger."""
    styles = {"fresh": "green", "stale": "yellow", "missing": "dim", "blocked": "red"}
    console.print(f"[bold]{escape(status.work)}[/]")
    for stage in status.stages:
        style = styles[stage.state]
        console.print(f"  {stage.name:<9} [{style}]{stage.state:<8}[/] {escape(stage.note)}")
    for line in status.ledger:
        console.print(f"  {escape(line)}")
    if not status.closes:
        console.print("  [red]the ledger does not close: run the stages above again, in order[/]")


def _report(layout: Layout, name: str) -> dict[str, Any]:
    try:
        return dict(json.loads(layout.report(name).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _counts(layout: Layout, name: str) -> dict[str, int]:
    return dict(_report(layout, name).get("counts", {}))


def _stage_state(name: str, config: Config, layout: Layout) -> StageState:
    counts = _counts(layout, name)
    try:
        units = make_stage(name, Choice(config)).plan()
    except LatentmillError as error:
        return StageState(name, "blocked", error.what.splitlines()[0].rstrip(":"), counts)
    waiting = sum(unit.size for unit in units)
    if not counts:
        return StageState(name, "missing", f"not run yet, {waiting} pictures to do", counts)
    if waiting:
        return StageState(name, "stale", f"{waiting} pictures to do", counts)
    return StageState(name, "fresh", ", ".join(count_phrases(counts)), counts)


def _run_state(layout: Layout, counts: dict[str, int]) -> StageState:
    finished = sorted(path.parent.name for path in layout.runs.glob("*/report.json"))
    if not finished:
        return StageState("train", "missing", "no finished run yet", counts)
    if _report(layout, "train").get("fingerprint") != _report(layout, "cache").get("fingerprint"):
        return StageState("train", "stale", "the cached set changed since the last run", counts)
    return StageState("train", "fresh", f"{len(finished)} runs, the last is {finished[-1]}", counts)


def _ledger(
    counts: dict[str, dict[str, int]], selection: Selection | None
) -> tuple[tuple[str, ...], bool]:
    """The account of the pictures, line by line, and whether every sum holds."""
    sums = []
    if counts["validate"]:
        found, usable, rejected = (
            counts["validate"][name] for name in ("found", "usable", "rejected")
        )
        sums.append(("pictures", found, "found", {"usable": usable, "rejected": rejected}))
    if selection is not None and counts["validate"]:
        waiting = len(selection.waiting) + len(selection.uncaptioned)
        parts = {"to train on": len(selection.samples), "set aside": len(selection.set_aside)}
        sums.append(("captions", usable, "usable", {**parts, "waiting": waiting}))
    if selection is not None and counts["cache"]:
        samples = counts["cache"]["samples"]
        sums.append(("cache", len(selection.samples), "to train on", {"cached": samples}))
    if counts["cache"] and counts["train"]:
        trained, held_out = counts["train"]["samples"], counts["train"]["held_out"]
        sums.append(("train", samples, "cached", {"trained": trained, "held out": held_out}))
    lines = tuple(
        f"{name + ':':<9} {whole} {word} = "
        + " + ".join(f"{count} {part}" for part, count in parts.items())
        for name, whole, word, parts in sums
    )
    return lines, all(whole == sum(parts.values()) for _, whole, _, parts in sums)


def _selection(config: Config, layout: Layout) -> Selection | None:
    """What would be trained on; None before `validate`, or while `review.csv` blocks `caption`."""
    if not layout.manifest.exists():
        return None
    try:
        rows = read_review(layout, config.caption.review_encoding)
    except DataError:
        return None
    accept = config.caption.accept_drafts
    return select_samples(read_manifest(layout.manifest), rows, config.sources(), accept)
