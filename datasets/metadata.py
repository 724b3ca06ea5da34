"""`metadata.jsonl`, `metadata.csv` and `filename,prompt` tables -> captions by picture.

Rows name a picture relative to the table's own folder (Hugging Face's convention). Columns are
`file_name` or `filename`, and `text`, `prompt` or `caption`.
"""

import csv
import io
import json
import posixpath
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NAME_COLUMNS = ("file_name", "filename")
TEXT_COLUMNS = ("text", "prompt", "caption")
TABLE_NAMES = frozenset({"metadata.jsonl", "metadata.csv"})
_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, from 1. `error` says why it cannot be read, when it cannot."""

    line: int
    name: str = ""
    text: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a table, or with the line that the message names."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Table:
    """The raw captions of a table by the path of their picture, and what is wrong with it."""

    captions: Mapping[str, str]
    findings: tuple[Finding, ...]


def may_be_table(path: str, head: bytes) -> bool:
    """Tell from its name or first bytes whether a file is meant as a table of captions."""
    name = path.rpartition("/")[2].casefold()
    first = head.replace(b"\x00", b"").lower().partition(b"\n")[0]
    if first.startswith(b"sep="):
        first = head.lower()
    columns = any(column.encode() in first for column in NAME_COLUMNS)
    return name in TABLE_NAMES or (name.endswith(".csv") and columns)


def read_table(path: str, text: str, pictures: Iterable[str]) -> Table:
    """Match the rows of the table at `path` with pictures; all paths relative to the source.

    The first row of a picture counts. Raise nothing: rows that cannot be used are findings.
    """
    known = {_normal(picture): picture for picture in pictures}
    rows = _json_rows(text) if path.casefold().endswith(".jsonl") else _csv_rows(text)
    folder = posixpath.dirname(path)
    captions: dict[str, str] = {}
    findings: list[Finding] = []
    for row in rows:
        picture = known.get(_normal(posixpath.join(folder, row.name.replace("\\", "/"))))
        found = _finding(row, picture, captions, known)
        if found is not None:
            findings.append(found)
        elif picture is not None:
            captions[picture] = row.text
    return Table(captions, tuple(findings))


def _normal(path: str) -> str:
    return unicodedata.normalize("NFC", posixpath.normpath(path))


def _finding(
    row: Row, picture: str | None, captions: Mapping[str, str], known: Mapping[str, str]
) -> Finding | None:
    line = f"Line {row.line}"
    if row.error:
        code = "metadata-columns" if row.line == 0 else "metadata-broken-row"
        return Finding(code, f"{line}: {row.error}" if row.line else row.error)
    if picture is None:
        return Finding("metadata-missing-picture", f'{line} names "{row.name}", which is not here')
    if picture in captions:
        what = "once more" if captions[picture] == row.text else "with another text"
        return Finding("metadata-repeated-row", f'{line} names "{row.name}" {what}; not used')
    swallowed = (part.strip().strip(",;\t\"'") for part in row.text.split("\n")[1:])
    if any(part and _normal(part.split(",")[0].strip('"')) in known for part in swallowed):
        return Finding("metadata-broken-row", f"{line}: a quote is missing, it swallows more rows")
    return None


def _json_rows(text: str) -> Iterator[Row]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            values = json.loads(content)
        except ValueError as error:
            yield Row(line, error=f"no JSON ({error})")
        except RecursionError:
            yield Row(line, error="no JSON (nested too deep)")
        else:
            yield _json_row(line, values)


def _json_row(line: int, values: Any) -> Row:
    if not isinstance(values, dict):
        return Row(line, error="no JSON object")
    name = next((values[key] for key in NAME_COLUMNS if key in values), None)
    text = next((values[key] for key in TEXT_COLUMNS if key in values), None)
    if not isinstance(name, str):
        return Row(line, error="no `file_name`")
    if not isinstance(text, str):
        return Row(line, error="no `text`")
    return Row(line, name, text)


def _csv_rows(text: str) -> Iterator[Row]:
    """Read by the known header line; a delimiter guessed from commas in captions is wrong."""
    lines = io.StringIO(text.removeprefix("\ufeff"), newline="").readlines()
    start = 1 if lines and lines[0].casefold().startswith("sep=") else 0
    header = lines[start] if len(lines) > start else ""
    for delimiter in _DELIMITERS:
        columns = [cell.strip(' "\r\n').casefold() for cell in header.split(delimiter)]
        name = next((columns.index(key) for key in NAME_COLUMNS if key in columns), None)
        caption = next((columns.index(key) for key in TEXT_COLUMNS if key in columns), None)
        if name is not None and caption is not None:
            layout = _Layout(delimiter, len(columns), name, caption)
            yield from _csv_cells(lines, start + 1, layout)
            return
    yield Row(0, error=f"No columns `file_name` and `text` in the header {header.strip()[:80]!r}")


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the header says: how many columns, and where the name and the text stand."""

    delimiter: str
    num_columns: int
    name: int
    text: int


def _csv_cells(lines: list[str], start: int, layout: _Layout) -> Iterator[Row]:
    """Yield rows from line `start` on. After a broken one, go on at the line below its first."""
    while start < len(lines):
        reader = csv.reader(lines[start:], delimiter=layout.delimiter, strict=True)
        done = 0
        try:
            for cells in reader:
                line, done = start + done + 1, reader.line_num
                if any(cell.strip() for cell in cells):
                    yield _csv_row(line, cells, layout)
            return
        except csv.Error as error:
            start += done + 1
            yield Row(start, error=f"quotes or delimiters are broken ({error})")


def _csv_row(line: int, cells: list[str], layout: _Layout) -> Row:
    """Take no caption that is cut at its first comma: too many cells are an error."""
    if len(cells) <= max(layout.name, layout.text):
        return Row(line, error=f"{len(cells)} cells, too few")
    if any(cell.strip() for cell in cells[layout.num_columns :]):
        counts = f"{len(cells)} cells, but {layout.num_columns} columns"
        return Row(line, error=f'{counts}; put "..." around a caption that holds the delimiter')
    return Row(line, cells[layout.name], cells[layout.text])
