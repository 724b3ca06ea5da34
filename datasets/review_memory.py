"""What latentmill last wrote into `review.csv`: against it a person's edits are seen."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from latentmill.datasets.errors import DataError
from latentmill.datasets.layout import Layout
from latentmill.datasets.review import COLUMNS, ReviewRow, cells_of, same_text, unguard, unguard_all
from latentmill.datasets.review_identity import with_known_ids
from latentmill.datasets.review_losses import refuse_losses
from latentmill.datasets.review_reading import SavedReview, damaged, read_saved

NO_FILE = "no file"
NOT_DRAFTED = "not-drafted"
"""A row without text because no captioner could be asked; the next one that can is."""
EMPTY_FLAGS = frozenset({"draft-empty", "caption-empty", NOT_DRAFTED})


@dataclass(frozen=True, slots=True)
class Written:
    """One row as it was last written, and what it was about.

    `pixels` is the hash of the picture it describes, `file_caption` the text of the caption file
    then, `drafted` the captioner's own words before any rule, `reason` the part of the note that
    latentmill wrote, `counted` the text whose tokens were counted, `doubted` the text of which a
    person was told that it does not fit the picture. `settled`: a person decided about this row.
    `present`: the row stands in `review.csv` (rows of pictures that left the set are kept here
    until they return).
    """

    row: ReviewRow
    pixels: str
    file_caption: str | None = None
    settled: bool = False
    reason: str = ""
    counted: str = ""
    present: bool = True
    drafted: str = ""
    doubted: str = ""

    def describes(self, pixels: str) -> bool:
        """Whether the row is of a picture with this hash; of which it was may be unknown, empty."""
        return self.pixels in ("", pixels)


@dataclass(frozen=True, slots=True)
class Memory:
    """All rows ever written, by id; `replaces` is set while `review.csv` is being replaced.

    It is the SHA-256 of the version that goes (NO_FILE: there was none): when that is still there,
    the program died between the two files, and the rows here are the newer ones. `last` is the id
    of the last row in the file.
    """

    rows: Mapping[str, Written] = field(default_factory=dict)
    replaces: str = ""
    last: str = ""

    def texts(self) -> dict[str, tuple[str, ...]]:
        """The texts of each row: they prove the encoding of a saved file."""
        return {key: _texts(written.row) for key, written in self.rows.items()}


@dataclass(frozen=True, slots=True)
class Reading:
    """What `review.csv` says: rows as they are meant, and ids whose row a person deleted.

    `digest` is the SHA-256 of the file's bytes, empty when there is no file. `cleaned` are ids of
    rows from which NUL was taken out.
    """

    rows: tuple[ReviewRow, ...]
    deleted: tuple[str, ...] = ()
    digest: str = ""
    cleaned: tuple[str, ...] = ()


def memory_file(layout: Layout) -> Path:
    """The file that remembers; it lies beside the captioner's report."""
    return layout.stage("caption") / "review-written.json"


def backup(layout: Layout, number: int) -> Path:
    """The version of `review.csv` that many versions ago."""
    return layout.review.with_name(f"{layout.review.name}.bak-{number}")


def read_memory(layout: Layout) -> Memory:
    """The rows as last written; empty when nothing was. Raises DataError when it is damaged."""
    path = memory_file(layout)
    try:
        values = json.loads(path.read_bytes())
        rows = {identity: _written(entry) for identity, entry in values["rows"].items()}
        return Memory(rows, values["replaces"], values.get("last", ""))
    except FileNotFoundError:
        return Memory()
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "the record of what was written into review.csv is damaged",
            where=f"{path}: {error}",
            expected="the JSON that `caption` wrote",
            fix="move this file away: review.csv alone is then believed",
        ) from error


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """The object of the memory's file."""
    rows = {identity: asdict(written) for identity, written in memory.rows.items()}
    return {"last": memory.last, "replaces": memory.replaces, "rows": rows}


def read_review(layout: Layout, encoding: str = "auto") -> list[ReviewRow] | None:
    """The rows of `review.csv` as they are meant; None when captions were never reviewed.

    Edited drafts count as approved, rows that were deleted stand as they were. Raises DataError.
    """
    reading = read_against(layout, read_memory(layout), encoding)
    return None if reading is None else list(reading.rows)


def read_against(layout: Layout, memory: Memory, encoding: str = "auto") -> Reading | None:
    """The rows of `review.csv` seen against what was written; None when there never were any."""
    present = {key: written.row for key, written in memory.rows.items() if written.present}
    try:
        data = layout.review.read_bytes()
    except FileNotFoundError:
        deleted = () if memory.replaces == NO_FILE else tuple(present)
        return Reading(tuple(present.values()), deleted) if present else None
    digest = hashlib.sha256(data).hexdigest()
    if digest == memory.replaces:
        return Reading(tuple(present.values()), (), digest)
    try:
        saved = read_saved(data, str(layout.review), _known(layout, memory), encoding)
        saved = with_known_ids(saved, present)
        deleted = _missing(saved, present, memory.last, str(layout.review))
        before = {key: written.row.caption for key, written in memory.rows.items()}
        refuse_losses(saved.rows, before, str(layout.review))
    except DataError as error:
        raise _with_backup(error, layout) from error
    rows = {row.id: _meant(row, memory.rows.get(row.id)) for row in saved.rows}
    kept = {identity: present[identity] for identity in deleted}
    return Reading(tuple({**rows, **kept}.values()), deleted, digest, saved.cleaned)


def _missing(
    saved: SavedReview, present: Mapping[str, ReviewRow], last: str, where: str
) -> tuple[str, ...]:
    """Ids whose row a person deleted; raises DataError when the file was cut off instead.

    Some programs save no line end after the last row: then the end must be the end that was
    written, or no row may be missing.
    """
    here = {row.id for row in saved.rows}
    missing = tuple(identity for identity in present if identity not in here)
    end = saved.open_end
    if end is None:
        return missing
    what = f"the file ends after the row {end.id}, without a line end"
    if missing and end.id != last:
        few = ", ".join(missing[:3])
        raise damaged(
            f"{what}, and {len(missing)} rows are missing ({few}{' ...' if missing[3:] else ''}); "
            "if they were deleted on purpose, put a line break at its end",
            where,
        )
    before = _cell(present.get(end.id), end.column)
    if len(end.text) < len(before) and before.startswith(end.text) and end.text:
        raise damaged(f"{what}, within its {end.column}: {end.text!r} was {before!r}", where)
    return missing


def _cell(row: ReviewRow | None, column: str) -> str:
    if row is None:
        return ""
    cells = dict(zip(COLUMNS, map(unguard, cells_of(row)), strict=True)) | dict(row.extra)
    return cells.get(column, "")


def _known(layout: Layout, memory: Memory) -> dict[str, tuple[str, ...]]:
    """The texts of rows as they were: from memory, else from the last version that is UTF-8."""
    if memory.rows or not backup(layout, 1).is_file():
        return memory.texts()
    data = backup(layout, 1).read_bytes()
    try:
        rows = read_saved(data, str(backup(layout, 1))).rows
    except DataError:
        return {}
    return {row.id: _texts(row) for row in rows}


def _texts(row: ReviewRow) -> tuple[str, ...]:
    return tuple(text for text in (row.caption, row.draft, row.image, row.note) if text)


def _with_backup(error: DataError, layout: Layout) -> DataError:
    if not backup(layout, 1).is_file():
        return error
    fix = f"{error.fix}; the version before latentmill last wrote is {backup(layout, 1)}"
    return DataError(error.what, where=error.where, expected=error.expected, fix=fix, run=error.run)


def settle(row: ReviewRow, ours: Collection[str] = ()) -> ReviewRow:
    """The row as it is meant: a `draft` or `check` row whose caption was edited is approved.

    `ours` are further texts that latentmill proposed for it. Clearing a caption approves nothing,
    and a row that does not say what was proposed must be approved by its status.
    """
    proposed = (row.draft, *ours)
    if row.status not in ("draft", "check") or not row.caption.strip():
        return row
    if not any(proposed) and EMPTY_FLAGS.isdisjoint(row.flags):
        return row
    if any(same_text(row.caption, text) for text in proposed):
        return row
    return replace(row, status="ok", source="person", flags=())


def _meant(row: ReviewRow, written: Written | None) -> ReviewRow:
    """Take the columns that are ours from memory, undo what spreadsheets do, see an edit."""
    if written is None:
        return settle(row)
    before = written.row
    caption = _as_typed(row.caption, before.caption)
    note = _as_typed(row.note, before.note)
    ours = replace(
        before, caption=caption, status=row.status, note=note, draft=row.draft, extra=row.extra
    )
    meant = settle(ours, (before.draft, before.caption))
    edited = not same_text(meant.caption, before.caption)
    by_person = edited and meant.status in ("ok", "skip")
    return replace(meant, draft=before.draft, source="person" if by_person else meant.source)


def _as_typed(text: str, before: str) -> str:
    """The text without what a spreadsheet did to it: also an apostrophe doubled and text added."""
    if same_text(text, before):
        return before
    return text if before.startswith("'") else unguard_all(text)


def _written(entry: Mapping[str, Any]) -> Written:
    values = dict(entry["row"])
    values["flags"] = tuple(values["flags"])
    values["extra"] = tuple((name, text) for name, text in values["extra"])
    return Written(**{**entry, "row": ReviewRow(**values)})
