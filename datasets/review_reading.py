"""The bytes of a saved `review.csv` to its rows: all of them are understood, or none is taken."""

import csv
import io
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import (
    COLUMNS,
    ReviewRow,
    RowSource,
    Status,
    refused,
    too_long,
    unguard,
)
from latentmill.datasets.review_encoding import ROW_ID, START_OVER, WRITE_ANEW, Known, decode_review
from latentmill.datasets.review_header import Header, find_header, require_text

_ROW_INSIDE_A_CELL = re.compile(rf"[\r\n](?s:.)*?\b{ROW_ID.pattern}\b")


@dataclass(frozen=True, slots=True)
class LastCell:
    """The cell with which a file without a final line end ends."""

    id: str
    column: str
    text: str


@dataclass(frozen=True, slots=True)
class SavedReview:
    """What stands in the file. `cleaned` are ids of rows from which NUL was taken out.

    `open_end` is the last cell of a file whose last line has no end, as some programs save it,
    and as a file looks that was cut off.
    """

    rows: tuple[ReviewRow, ...]
    cleaned: tuple[str, ...] = ()
    open_end: LastCell | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """The cells of a row, and the number of its first line."""

    number: int
    cells: Sequence[str]

    @property
    def name(self) -> str:
        return f"line {self.number}"


def parse_review(
    data: bytes, where: str, known: Known | None = None, encoding: str = "auto"
) -> list[ReviewRow]:
    """The rows of a saved `review.csv`; see `read_saved`."""
    return list(read_saved(data, where, known, encoding).rows)


def read_saved(
    data: bytes, where: str, known: Known | None = None, encoding: str = "auto"
) -> SavedReview:
    """What a saved `review.csv` holds; `where` is its path for messages.

    `known` are the texts that its rows held before: they decide the encoding of a file that is
    not UTF-8. Raises DataError that names every line that cannot be understood.
    """
    require_text(data, where)
    text = decode_review(data, where, known or {}, encoding)
    header = find_header(text, where)
    lines = _split(text, header, where)
    is_open = not text.endswith(("\n", "\r"))
    if lines and is_open and (len(lines[-1].cells) < len(header.names) or text.endswith("\0")):
        raise damaged(
            f"{lines[-1].name} (id {_identity(_values(lines[-1], header))}): the file ends in the "
            "middle of this row",
            where,
        )
    rows, wrong = _rows(lines, header)
    if wrong:
        raise refused("review.csv holds rows that cannot be understood", where, wrong)
    return SavedReview(
        tuple(rows),
        tuple(row.id for row, line in zip(rows, lines, strict=True) if _holds_nul(line)),
        _last_cell(rows, lines[-1], header) if rows and is_open else None,
    )


def damaged(what: str, where: str) -> DataError:
    """The error for a file of which a part is missing."""
    return DataError(
        f"review.csv is damaged, as by a full disk or a save that was broken off:\n  {what}",
        where=where,
        expected="a whole file; nothing was taken over",
        fix="save it once more in the program that has it open; or put a whole copy in its "
        f"place; or {START_OVER}",
        run=(WRITE_ANEW,),
    )


def _split(text: str, header: Header, where: str) -> list[_Line]:
    """All lines after the header that are not blank."""
    csv.field_size_limit(2**31 - 1)
    stream = io.StringIO(text[header.start :], newline="")
    reader = csv.reader(stream, delimiter=header.delimiter, strict=True)
    next(reader)
    lines: list[_Line] = []
    while True:
        number = reader.line_num + 1 + header.num_lines_before
        try:
            cells = next(reader)
        except StopIteration:
            return lines
        except csv.Error as error:
            raise _unpaired(text, number, str(error), where) from error
        if any(cell.strip("\0 \t\r\n") for cell in cells):
            lines.append(_Line(number, cells))


def _unpaired(text: str, number: int, reason: str, where: str) -> DataError:
    physical = re.split(r"\r\n|\r|\n", text)[number - 1]
    found = ROW_ID.search(physical)
    return damaged(
        f"line {number} (id {found.group() if found else 'missing'}): a quotation mark without "
        f"its pair, or the file is cut off ({reason})",
        where,
    )


def _rows(lines: Sequence[_Line], header: Header) -> tuple[list[ReviewRow], list[str]]:
    """The rows, and one sentence for each fault."""
    rows: list[ReviewRow] = []
    wrong: list[str] = []
    seen: dict[str, int] = {}
    for line in lines:
        values = _values(line, header)
        identity = _identity(values)
        faults = _faults(values, line, header)
        if identity in seen:
            faults.append(f"the same id as line {seen[identity]}")
        seen.setdefault(identity, line.number)
        wrong += [f"{line.name} (id {identity}): {fault}" for fault in faults]
        if not faults:
            rows.append(_row(values))
    return rows, wrong


def _values(line: _Line, header: Header) -> dict[str, str]:
    """The cells by column, without NUL and without the guards against formulas."""
    # Excel leaves out trailing delimiters where the last columns are empty for 16 rows.
    cells = [*line.cells, *[""] * (len(header.names) - len(line.cells))]
    texts = (unguard(cell.replace("\0", "")) for cell in cells)
    return dict(zip(header.names, texts, strict=False))


def _identity(values: Mapping[str, str]) -> str:
    return values["id"].strip().strip("\ufeff\u200b") or "missing"


def _faults(values: Mapping[str, str], line: _Line, header: Header) -> list[str]:
    faults = too_long(line.cells)
    if _identity(values) == "missing":
        faults.append("the id is missing")
    if _status(values["status"]) is None:
        faults.append(f"status {values['status']!r} is none of {', '.join(get_args(Status))}")
    if any(cell.strip() for cell in line.cells[len(header.names) :]):
        faults.append(f"{len(line.cells)} cells, the header has {len(header.names)} columns")
    nameless = [
        cell for name, cell in zip(header.names, line.cells, strict=False) if not name and cell
    ]
    faults += [f"{cell[:40]!r} stands in a column without a name" for cell in nameless]
    if any(_ROW_INSIDE_A_CELL.search(cell) for cell in line.cells):
        faults.append("a cell holds whole rows: a quotation mark without its pair stands before")
    return faults


def _row(values: Mapping[str, str]) -> ReviewRow:
    source = values.get("source", "").strip().lower()
    status = _status(values["status"])
    assert status is not None  # `_faults` refused the others.
    return ReviewRow(
        id=_identity(values),
        image=values.get("image", ""),
        caption=values["caption"],
        status=status,
        source=next((known for known in get_args(RowSource) if known == source), "person"),
        flags=tuple(re.findall(r"[^\s,;]+", values.get("flags", ""))),
        tokens=_whole_number(values.get("tokens", "")),
        clip_score=_decimal(values.get("clip_score", "")),
        draft=values["draft"],
        note=values.get("note", ""),
        extra=tuple((name, text) for name, text in values.items() if name and name not in COLUMNS),
    )


def _status(cell: str) -> Status | None:
    """The status that a cell means, in any case, full-width letters or with blanks around it."""
    word = unicodedata.normalize("NFKC", cell).casefold().strip(" \t\r\n\ufeff\u200b")
    return next((status for status in get_args(Status) if status == word), None)


def _whole_number(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"\s*[0-9]{1,9}\s*", cell) else None


def _decimal(cell: str) -> float | None:
    """A number with point or, as German spreadsheets save it, comma; else None."""
    try:
        value = float(cell.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _holds_nul(line: _Line) -> bool:
    return any("\0" in cell for cell in line.cells)


def _last_cell(rows: Sequence[ReviewRow], line: _Line, header: Header) -> LastCell:
    column = header.names[-1]
    return LastCell(rows[-1].id, column, _values(line, header)[column])
