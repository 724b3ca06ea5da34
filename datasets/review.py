"""`review.csv`: rows to the bytes that a spreadsheet opens, and back from the bytes it saves."""

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from latentmill.datasets.errors import DataError
from latentmill.datasets.review_encoding import START_OVER, decode_review

Status = Literal["draft", "check", "ok", "skip"]
RowSource = Literal["file", "blip", "person"]

COLUMNS = (
    *("id", "image", "caption", "status", "source"),
    *("flags", "tokens", "clip_score", "draft", "note"),
)
REQUIRED_COLUMNS = ("id", "caption", "status", "draft")
DELIMITERS = ",;\t"
LONGEST_CELL = 32_767
"""Characters (UTF-16 units) that Excel keeps of one cell; it cuts the rest in silence."""

_GUARDED = re.compile(r"'*[=+\-@\t\r]")
_GUARDED_TWICE = re.compile(r"'+[=+\-@\t\r]")
_SEP_LINE = re.compile(r'"?sep=[^\r\n]"?[,;\t]*(\r\n|\r|\n)', re.IGNORECASE)
_ROW_INSIDE_A_CELL = re.compile(r"[\r\n](?s:.)*?p[0-9a-f]{15}[\"']?[,;\t]")


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
    writer.writerow([*COLUMNS, *added])
    wrong = []
    for row in rows:
        extra = dict(row.extra)
        cells = [*_cells(row), *(_guard(extra.get(name, "")) for name in added)]
        wrong += [f"row {row.id}: {fault}" for fault in _too_long(cells)]
        writer.writerow(cells)
    if wrong:
        raise _refused("captions are too long for review.csv", "", wrong)
    return text.getvalue().encode("utf-8-sig", errors="backslashreplace")


def parse_review(
    data: bytes, where: str, known: Collection[str] = (), encoding: str = "auto"
) -> list[ReviewRow]:
    """The rows of a saved `review.csv`; `where` is its path for messages.

    `known` are texts that latentmill wrote into it before: they decide the encoding of a file
    that is not UTF-8. Raises DataError that names every line that cannot be understood.
    """
    text = decode_review(data, where, known, encoding)
    skipped = _SEP_LINE.match(text)
    text = text[skipped.end() :] if skipped else text
    rows, wrong = _read_rows(text, _find_delimiter(text, where), 1 if skipped else 0)
    if wrong:
        raise _refused("review.csv holds rows that cannot be understood", where, wrong)
    return rows


def same_text(one: str, other: str) -> bool:
    """Whether two cells hold the same text, but for what spreadsheets do by themselves.

    They rewrite line ends and take away or double the apostrophe in front of a formula.
    """
    return _spreadsheet_form(one) == _spreadsheet_form(other)


def printable(text: str) -> str:
    r"""The text with lone surrogates (file names that are not UTF-8) as `\udcff`, for UTF-8."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _cells(row: ReviewRow) -> list[str]:
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


def _unguard(text: str) -> str:
    return text[1:] if _GUARDED_TWICE.match(text) else text


def _spreadsheet_form(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.lstrip("'") if _GUARDED.match(text) else text


def _too_long(cells: Sequence[str]) -> list[str]:
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


def _name(cell: str) -> str:
    name = cell.strip().strip("\ufeff'")
    return name.lower() if name.lower() in COLUMNS else name


def _find_delimiter(text: str, where: str) -> str:
    """The delimiter that makes the first line our header (captions hold commas: no sniffing)."""
    first = next(iter(io.StringIO(text, newline="")), "")
    for delimiter in DELIMITERS:
        names = _header_names(first, delimiter)
        if set(REQUIRED_COLUMNS) <= set(names):
            return _checked_header(names, delimiter, where)
    raise DataError(
        "review.csv is empty" if not text.strip() else "review.csv does not begin with its header",
        where=f"{where}, line 1: {first.strip()[:80]!r}",
        expected=f"a first line with at least the columns {', '.join(REQUIRED_COLUMNS)}, "
        "separated by comma, semicolon or tab",
        fix=f"put the header line back, or {START_OVER}",
    )


def _header_names(line: str, delimiter: str) -> list[str]:
    try:
        return [_name(cell) for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except (csv.Error, StopIteration):
        return []


def _checked_header(names: Sequence[str], delimiter: str, where: str) -> str:
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise DataError(
            f"review.csv has a column twice: {', '.join(twice)}",
            where=where,
            expected="each column once",
            fix="delete or rename the one that is not meant",
        )
    return delimiter


def _read_rows(text: str, delimiter: str, offset: int) -> tuple[list[ReviewRow], list[str]]:
    """All rows, and one sentence for each fault; `offset` lines stand before the header."""
    csv.field_size_limit(2**31 - 1)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = [_name(cell) for cell in next(lines)]
    rows: list[ReviewRow] = []
    wrong: list[str] = []
    seen: dict[str, int] = {}
    while True:
        line = lines.line_num + 1 + offset
        try:
            cells = next(lines)
        except StopIteration:
            return rows, wrong
        except csv.Error as error:
            wrong.append(f"line {line}: a quotation mark without its pair ({error})")
            return rows, wrong
        if not any(cell.strip() for cell in cells):
            continue
        # Excel leaves out trailing delimiters where the last columns are empty for 16 rows.
        cells += [""] * (len(names) - len(cells))
        values = dict(zip(names, map(_unguard, cells), strict=False))
        identity = values["id"].strip()
        faults = _faults(values, cells, len(names))
        if identity in seen:
            faults.append(f"the same id as line {seen[identity]}")
        seen.setdefault(identity, line)
        wrong += [f"line {line} (id {identity or 'missing'}): {fault}" for fault in faults]
        if not faults:
            rows.append(_row(values))


def _faults(values: dict[str, str], cells: Sequence[str], num_columns: int) -> list[str]:
    faults = _too_long(cells)
    if not values["id"].strip():
        faults.append("the id is missing")
    status = values["status"].strip().lower()
    if status not in get_args(Status):
        faults.append(f"status {values['status']!r} is none of {', '.join(get_args(Status))}")
    if any(cell.strip() for cell in cells[num_columns:]):
        faults.append(f"{len(cells)} cells, the header has {num_columns} columns")
    if any(_ROW_INSIDE_A_CELL.search(cell) for cell in cells):
        faults.append("a cell holds whole rows: a quotation mark without its pair stands before")
    return faults


def _row(values: dict[str, str]) -> ReviewRow:
    source = values.get("source", "").strip().lower()
    return ReviewRow(
        id=values["id"].strip(),
        image=values.get("image", ""),
        caption=values["caption"],
        status=_status(values["status"]),
        source=next((known for known in get_args(RowSource) if known == source), "person"),
        flags=tuple(re.findall(r"[^\s,;]+", values.get("flags", ""))),
        tokens=_whole_number(values.get("tokens", "")),
        clip_score=_decimal(values.get("clip_score", "")),
        draft=values["draft"],
        note=values.get("note", ""),
        extra=tuple((name, text) for name, text in values.items() if name and name not in COLUMNS),
    )


def _status(cell: str) -> Status:
    word = cell.strip().lower()
    return next(status for status in get_args(Status) if status == word)


def _whole_number(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"\s*\d{1,9}\s*", cell) else None


def _decimal(cell: str) -> float | None:
    """A number with point or, as German spreadsheets save it, comma; else None."""
    try:
        value = float(cell.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _refused(what: str, where: str, wrong: Sequence[str]) -> DataError:
    return DataError(
        f"{what}:\n" + "\n".join(f"  {fault}" for fault in wrong),
        where=where,
        expected="every row whole; nothing was taken over",
        fix=f"correct these rows, or {START_OVER}",
    )
