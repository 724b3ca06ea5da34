"""The beginning of a saved `review.csv` to its columns, or to what the file is instead."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from latentmill.datasets.errors import DataError
from latentmill.datasets.filekinds import HEAD_BYTES, describe_content
from latentmill.datasets.review import COLUMNS
from latentmill.datasets.review_encoding import ROW_ID, START_OVER, WRITE_ANEW

REQUIRED_COLUMNS = ("id", "caption", "status", "draft")
DELIMITERS = ",;\t"

_BEFORE_HEADER = re.compile(
    r'(?:[ ",;\t]*(?:\r\n|\r|\n))*(?:"?sep=[^\r\n]"?[,;\t]*(?:\r\n|\r|\n))?', re.IGNORECASE
)
_WORKBOOKS = (
    (b"PK\x03\x04", b"opendocument", "an OpenDocument table (.ods)"),
    (b"PK\x03\x04", b"xl/", "an Excel workbook (.xlsx)"),
    (b"PK\x03\x04", b"", "a workbook or another archive (ZIP)"),
    (b"\xd0\xcf\x11\xe0", b"", "an Excel workbook (.xls)"),
)


@dataclass(frozen=True, slots=True)
class Header:
    """The names of the columns, what separates cells, and how many lines stand before."""

    names: tuple[str, ...]
    delimiter: str
    num_lines_before: int
    start: int


def require_text(data: bytes, where: str) -> None:
    """Raise DataError when the file is a workbook, a web page or something else than a table."""
    kind = next(
        (kind for magic, part, kind in _WORKBOOKS if data.startswith(magic) and part in data), ""
    )
    if not kind and data:
        head = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:HEAD_BYTES] or b" "
        described = describe_content(head)
        kind = "" if described.startswith("not a known") else described
    if kind:
        raise DataError(
            f"review.csv is no CSV file but {kind}",
            where=where,
            expected="a text table; nothing was taken over",
            fix="open it in the program that wrote it and save it as `CSV UTF-8` under this name, "
            f"or {START_OVER}",
            run=(WRITE_ANEW,),
        )


def find_header(text: str, where: str) -> Header:
    """The header, whatever its delimiter (captions hold commas: no sniffing).

    Blank lines and a `sep=` line may stand before it. Raises DataError when the columns that are
    needed are not there, or there twice.
    """
    before = _BEFORE_HEADER.match(text)
    start = before.end() if before else 0
    first = next(iter(io.StringIO(text[start:], newline="")), "")
    number = len(re.findall(r"\r\n|\r|\n", text[:start]))
    found = [Header(_names(first, sign), sign, number, start) for sign in DELIMITERS]
    best = max(found, key=lambda header: len(set(header.names) & set(COLUMNS)))
    missing = [name for name in REQUIRED_COLUMNS if name not in best.names]
    at = f"{where}, line {number + 1}"
    if missing:
        raise _not_a_header(first, best, missing, at)
    twice = sorted({name for name in best.names if name and best.names.count(name) > 1})
    if twice:
        raise DataError(
            f"review.csv has a column twice: {', '.join(twice)}",
            where=at,
            expected="each column once; nothing was taken over",
            fix="delete or rename the one that is not meant",
        )
    return best


def _names(line: str, delimiter: str) -> tuple[str, ...]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return ()
    return tuple(_name(cell) for cell in cells)


def _name(cell: str) -> str:
    name = cell.replace("\0", "").strip().strip("\ufeff'")
    return name.lower() if name.lower() in COLUMNS else name


def _not_a_header(first: str, best: Header, missing: Sequence[str], at: str) -> DataError:
    fix = f"put the header line back, or {START_OVER}"
    if not first.strip("\0\ufeff \t\r\n"):
        what = "review.csv is empty"
    elif len(set(best.names) & set(COLUMNS)) > 1:
        what = f"review.csv lacks the column {', '.join(missing)}"
        fix = f"put the column back, with its name in the first line, or {START_OVER}"
    elif ROW_ID.search(first):
        what = "review.csv does not begin with its header: the first line is a row already"
    else:
        what = "review.csv does not begin with its header (column names are not translated)"
    return DataError(
        what,
        where=f"{at}: {first.strip()[:80]!r}",
        expected=f"a first line with at least the columns {', '.join(REQUIRED_COLUMNS)}, "
        "separated by comma, semicolon or tab; nothing was taken over",
        fix=fix,
        run=(WRITE_ANEW,),
    )
