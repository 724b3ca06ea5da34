"""Where each stage of a work folder stands today: its state, why, and the command that is next."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from latentmill.cache.index import SetIndex, read_set_index
from latentmill.datasets.errors import LatentmillError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, read_manifest
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import read_against, read_memory, settle
from latentmill.datasets.review_merge import Inputs, merge_rows
from latentmill.datasets.review_mismatch import MISMATCH
from latentmill.datasets.selection import Selection, select_samples
from latentmill.datasets.sources import assign_ids, scan
from latentmill.datasets.words import counted
from latentmill.pipeline.config import Config
from latentmill.pipeline.stages import Choice, make_stage
from latentmill.stages.captioning.units import ScoreUnit

State = Literal["missing", "fresh", "stale", "waiting", "blocked"]
STATUSES: Final = ("draft", "check", "ok", "skip")


@dataclass(frozen=True, slots=True)
class StageState:
    """One stage: its state, why, what to run next for it, and today's counts."""

    name: str
    state: State
    note: str
    next: tuple[Command, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Today:
    """What lies in the data folder and the work folder now; empty or None where it is not there."""

    config: Config
    layout: Layout
    found: frozenset[str]
    records: tuple[Record, ...]
    rejected: frozenset[str]
    rows: tuple[ReviewRow, ...] | None
    index: SetIndex | None
    selection: Selection | None


def read_today(config: Config) -> Today:
    """Read all that is cheap to read; a file that cannot be read counts as not there."""
    layout = config.layout()
    records = _tried(lambda: read_manifest(layout.manifest), [])
    rows = _tried(lambda: _rows(config, layout), ())
    is_readable = rows != ()
    records = [record for record in records if record.source < len(config.data)]
    selection = select_samples(records, rows, config.data, config.caption.accept_drafts)
    return Today(
        config=config,
        layout=layout,
        found=frozenset(_tried(lambda: _found_ids(config), ())),
        records=tuple(records),
        rejected=frozenset(_tried(lambda: _rejected_ids(layout), ())),
        rows=rows,
        index=_tried(lambda: read_set_index(layout.cache_index), None),
        selection=selection if records and is_readable else None,
    )


def stage_states(today: Today) -> tuple[StageState, ...]:
    """The stages in order. What one stage waits for is the next of an earlier one."""
    states = [
        _blocked_or(name, judge, today)
        for name, judge in (
            ("validate", _validate_state),
            ("caption", _caption_state),
            ("review", _review_state),
            ("cache", _cache_state),
            ("train", _train_state),
        )
    ]
    return tuple(state for state in states if state is not None)


def _blocked_or(
    name: str, judge: Callable[[Today], StageState | None], today: Today
) -> StageState | None:
    try:
        return judge(today)
    except LatentmillError as error:
        reason = error.what.splitlines()[0].rstrip(":")
        note = reason if error.run or not error.fix else f"{reason}: {error.fix}"
        return StageState(name, "blocked", note, error.run)


def _validate_state(today: Today) -> StageState:
    units = make_stage("validate", Choice(today.config)).plan()
    to_read = sum(len(unit.items) for unit in units)
    known = {record.id for record in today.records} | today.rejected
    removed = len(known - today.found)
    counts = {"found": len(today.found), "usable": len(today.records)}
    counts |= {"rejected": len(today.rejected), "to_read": to_read, "removed": removed}
    run = (Command("validate"),)
    if not today.layout.manifest.is_file():
        note = f"not run yet: {counted(len(today.found), 'picture')} to read"
        return StageState("validate", "missing", note, run, counts)
    changes = [
        *_parts((to_read, "picture", "new or changed"), (removed, "picture", "removed")),
    ]
    if units and not changes:
        changes = ["captions or settings changed"]
    if changes:
        return StageState("validate", "stale", ", ".join(changes), run, counts)
    note = f"{counted(len(today.found), 'picture')}: {len(today.records)} usable"
    note += f", {len(today.rejected)} rejected" if today.rejected else ""
    return StageState("validate", "fresh", note, (), counts)


def _caption_state(today: Today) -> StageState:
    units = make_stage("caption", Choice(today.config)).plan()
    to_score = sum(unit.size for unit in units if isinstance(unit, ScoreUnit))
    to_draft = sum(unit.size for unit in units) - to_score
    run = (Command("caption"),)
    if today.rows is None:
        has_all = "each picture has a caption of its own, so this may be left out"
        note = f"{counted(to_draft, 'picture')} to draft" if to_draft else has_all
        return StageState("caption", "missing", f"not run yet: {note}", run)
    rows = {row.id: row for row in today.rows}
    merged = {row.id: settle(row) for row in _merged_rows(today)}
    changed = [name for name in merged.keys() & rows.keys() if _differ(merged[name], rows[name])]
    changes = _parts(
        (to_draft, "picture", "to draft"),
        (to_score, "picture", "to compare with its caption"),
        (len(merged.keys() - rows.keys()), "picture", "without a row yet"),
        (len(changed), "row", "to renew from its file or picture"),
        (len(rows.keys() - {record.id for record in today.records}), "picture", "removed"),
    )
    if changes:
        return StageState("caption", "stale", ", ".join(changes), run)
    by_file = sum(row.source == "file" for row in today.rows)
    note = f"{counted(len(rows), 'caption')}, {by_file} of them from files"
    return StageState("caption", "fresh", note, (), {"rows": len(rows), "from_files": by_file})


def _review_state(today: Today) -> StageState | None:
    if not today.rows:
        return None
    counts = Counter[str](row.status for row in today.rows)
    note = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    waits = today.selection is not None and today.selection.waiting
    if not waits:
        return StageState("review", "fresh", note, (), dict(counts))
    run = (Command("approve", ("--all-drafts",)),) if counts["draft"] else ()
    note += f": edit {today.layout.review}" + (", or approve all drafts" if run else "")
    return StageState("review", "waiting", note, run, dict(counts))


def _cache_state(today: Today) -> StageState:
    units = make_stage("cache", Choice(today.config)).plan()
    to_encode = sum(unit.size for unit in units)
    run = (Command("cache"),)
    if today.index is None or today.selection is None:
        note = f"not run yet: {counted(to_encode, 'sample')} to encode"
        return StageState("cache", "missing", note, run)
    wanted = {sample.record.id for sample in today.selection.samples}
    cached = {sample.id for sample in today.index.samples}
    changes = _parts(
        (to_encode, "sample", "new or changed"), (len(cached - wanted), "sample", "removed")
    )
    counts = {"samples": len(cached), "to_encode": to_encode, "removed": len(cached - wanted)}
    if to_encode and (others := _other_settings(today)):
        changes.append(f"cached with other settings: {', '.join(others)}")
    if not changes and _is_outdated(today):
        changes = ["the set changed: its captions, repeats or weights"]
    if changes:
        return StageState("cache", "stale", ", ".join(changes), run, counts)
    shards = counted(len(today.index.shards), "shard")
    note = f"{counted(len(cached), 'sample')} in {shards}"
    return StageState("cache", "fresh", note, (), counts)


def _train_state(today: Today) -> StageState:
    from latentmill.stages.training.run_folder import latest_run_of, list_runs

    runs = list_runs(today.layout)
    run = latest_run_of(today.layout, today.index) if today.index else None
    if run is None:
        state: State = "stale" if runs else "missing"
        note = f"no run of the set as it is now ({counted(len(runs), 'run')} before)"
        return StageState("train", state, note if runs else "no run yet", (Command("train"),))
    name = run.folder.name
    if not run.finished:
        go_on = Command("train", ("--resume", "--run", name))
        return StageState("train", "waiting", f"{name} stopped on the way", (go_on,))
    counts = read_counts(run.folder / "report.json")
    has_pictures = (run.folder / "samples" / "comparison.png").is_file()
    sample = () if has_pictures else (Command("sample", ("--run", name)),)
    note = f"{name} is of this set" + ("" if has_pictures else ": see what it does")
    return StageState("train", "fresh", note, sample, counts)


def read_counts(report: Path) -> dict[str, int]:
    """The counts of a report; empty without a sound one."""
    values: dict[str, Any] = _tried(lambda: json.loads(report.read_bytes()), {})
    return dict(values.get("counts", {}))


def _parts(*counts: tuple[int, str, str]) -> list[str]:
    return [f"{counted(number, noun)} {what}" for number, noun, what in counts if number]


def _merged_rows(today: Today) -> Sequence[ReviewRow]:
    """The rows as `caption` would write them now, drafts aside."""
    memory = read_memory(today.layout)
    reading = read_against(today.layout, memory, today.config.caption.review_encoding)
    return merge_rows(Inputs(today.records, reading, memory)).rows


def _differ(one: ReviewRow, other: ReviewRow) -> bool:
    """Whether a row would be renewed; one that waits since it hardly fits its picture would not."""
    is_doubted = (one.status, other.status) == ("ok", "check") and MISMATCH in other.flags
    return one.caption != other.caption or (one.status != other.status and not is_doubted)


def _other_settings(today: Today) -> list[str]:
    from latentmill.stages.encoding.survey import recipe_settings

    now = _flat(recipe_settings(today.config.bucket, today.config.cache))
    then = _flat(today.index.recipe if today.index else {})
    pairs = ((name, then.get(name), at) for name, at in now.items())
    return [f"{name} {before}, now {at}" for name, before, at in pairs if before != at]


def _flat(recipe: Mapping[str, object]) -> dict[str, object]:
    """The recipe by the names of its settings: `bucket.area`, `cache.clip_skip`."""
    flat: dict[str, object] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": at for key, at in value.items()}
        else:
            flat[f"cache.{name}"] = value
    return flat


def _is_outdated(today: Today) -> bool:
    from latentmill.cache.fingerprints import data_digest

    assert today.selection is not None
    assert today.index is not None
    digest = data_digest(today.selection.samples, today.config.data)
    return digest != today.index.data_digest or bool(_other_settings(today))


def _rows(config: Config, layout: Layout) -> tuple[ReviewRow, ...] | None:
    """The rows of `review.csv` as they are meant; None without the file."""
    reading = read_against(layout, read_memory(layout), config.caption.review_encoding)
    return tuple(map(settle, reading.rows)) if reading else None


def _found_ids(config: Config) -> Iterable[str]:
    """The ids of the pictures that lie in the data folders now."""
    work = config.layout().work
    scans = [
        scan(Path(source.path).expanduser(), position, source.caption_extension, (work,))
        for position, source in enumerate(config.data)
    ]
    return assign_ids(picture for one in scans for picture in one.pictures).values()


def _rejected_ids(layout: Layout) -> list[str]:
    lines = layout.rejects.read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["id"]) for line in lines]


def _tried(read: Callable[[], Any], otherwise: Any) -> Any:
    """What `read` returns, or `otherwise` where the file is missing, damaged or refused."""
    try:
        return read()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, LatentmillError):
        return otherwise
