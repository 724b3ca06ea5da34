"""The rows of `review.csv`, and the bytes of it that a spreadsheet opens."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from latentmill.datasets.errors import DataError
from latentmill.datasets.review_encoding import START_OVER, WRITE_ANEW

Status = Literal["draft", "check", "ok", "skip"]
RowSource = Literal["file", "blip", "person"]

COLUMNS = (
    *("id", "image", "caption", "status", "source"),
    *("flags", "tokens", "clip_score", "draft", "note"),
)
LONGEST_CELL = 32_767
"""Characters (UTF-16 units) that Excel keeps of one cell; it cuts the rest in silence."""

_GUARDED = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED_TWICE = re.compile(r"'+[=+\-@\t\r\n]")


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """One line of `review.csv`.

    `draft` is the text as it was proposed: for a `draft` row the captioner's, for a `check` row
    the caption that is in doubt. `extra` are the cells of columns that a person added.
    """

    id: str
    image: str
    caption: str
    status: Status
    source: RowSource = "file"
    flags: tuple[str, ...] = ()
    tokens: int | None = None
    clip_score: float | None = None
    draft: str = ""
    note: str = ""
    extra: tuple[tuple[str, str], ...] = ()


def format_review(rows: Iterable[ReviewRow]) -> bytes:
    r"""UTF-8 with BOM, `\r\n`, the columns in their order; the same rows give the same bytes.

    A cell that a spreadsheet would take for a formula gets an apostrophe in front.
    Raises DataError when a cell is too long for a spreadsheet.
    """
    rows = list(rows)
    added = list(dict.fromkeys(name for row in rows for name, _ in row.extra))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*COLUMNS, *map(_guard, added)])
    wrong = []
    for row in rows:
        extra = dict(row.extra)
        cells = [*cells_of(row), *(_guard(extra.get(name, "")) for name in added)]
        wrong += [f"row {row.id}: {fault}" for fault in too_long(cells)]
        writer.writerow(cells)
    if wrong:
        raise refused("captions are too long for review.csv", "", wrong)
    return text.getvalue().encode("utf-8-sig", errors="backslashreplace")


def same_text(one: str, other: str) -> bool:
    """Whether two cells hold the same text, but for what spreadsheets do by themselves.

    They rewrite line ends and take away or double the apostrophe in front of a formula.
    """
    return _spreadsheet_form(one) == _spreadsheet_form(other)


def printable(text: str) -> str:
    r"""The text with lone surrogates (file names that are not UTF-8) as `\udcff`, for UTF-8."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def cells_of(row: ReviewRow) -> list[str]:
    """The cells of the columns that are ours, in their order, guarded."""
    return [
        row.id,
        _guard(row.image),
        _guard(row.caption),
        row.status,
        row.source,
        " ".join(row.flags),
        "" if row.tokens is None else str(row.tokens),
        "" if row.clip_score is None else f"{row.clip_score:.3f}",
        _guard(row.draft),
        _guard(row.note),
    ]


def _guard(text: str) -> str:
    return f"'{text}" if _GUARDED.match(text) else text


def unguard(text: str) -> str:
    """The text of a cell without the apostrophe that `format_review` put there."""
    return text[1:] if _GUARDED_TWICE.match(text) else text


def unguard_all(text: str) -> str:
    """The text without any apostrophe in front of a formula."""
    return text.lstrip("'") if _GUARDED.match(text) else text


def _spreadsheet_form(text: str) -> str:
    return unguard_all(text.replace("\r\n", "\n").replace("\r", "\n"))


def too_long(cells: Sequence[str]) -> list[str]:
    """One sentence for each cell that a spreadsheet would cut."""
    lengths = [
        len(cell.encode("utf-16-le", "surrogatepass")) // 2
        for cell in cells
        if len(cell) > LONGEST_CELL // 2
    ]
    return [
        f"a cell of {length:,} characters; a spreadsheet keeps {LONGEST_CELL:,}"
        for length in lengths
        if length > LONGEST_CELL
    ]


def refused(what: str, where: str, wrong: Sequence[str]) -> DataError:
    """The error that names every faulty row."""
    return DataError(
        f"{what}:\n" + "\n".join(f"  {fault}" for fault in wrong),
        where=where,
        expected="every row whole; nothing was taken over",
        fix=f"correct these rows, or {START_OVER}",
        run=(WRITE_ANEW,),
    )
