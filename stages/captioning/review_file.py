"""The next `review.csv` to disk: whole or not at all, the versions before kept beside it."""

import hashlib
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from latentmill.cache.files import committed, write_bytes, write_json
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.review import ReviewRow, format_review
from latentmill.datasets.review_memory import (
    NO_FILE,
    Memory,
    Reading,
    backup,
    memory_file,
    memory_to_json,
    read_memory,
)

NUM_BACKUPS = 5


def save_review(
    layout: Layout,
    rows: Sequence[ReviewRow],
    memory: Memory,
    reading: Reading | None,
    keep: bool = True,
) -> bool:
    """Write `review.csv` and the memory of its rows; return whether anything changed.

    `reading` is what the rows were made from: DataError when the file was saved meanwhile. The
    version before becomes `review.csv.bak-1`, unless `keep` is false: the one of many small saves.
    Killed at any moment, no decision is lost.
    """
    data = format_review(rows)
    before = _read(layout.review)
    if _digest(before) != (reading.digest if reading is not None else ""):
        raise _saved_meanwhile(layout)
    memory = replace(memory, replaces="", last=rows[-1].id if rows else "")
    if data == before and memory == read_memory(layout):
        return False
    if data != before:
        going = replace(memory, replaces=_digest(before) or NO_FILE)
        write_json(memory_file(layout), memory_to_json(going))
        if keep:
            _keep(layout)
        _replace(layout.review, data)
    write_json(memory_file(layout), memory_to_json(memory))
    return True


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if data else ""


def _keep(layout: Layout) -> None:
    """Shift the kept versions by one; the oldest makes room for the one that goes now."""
    if not layout.review.exists():
        return
    names = [layout.review, *(backup(layout, number) for number in range(1, NUM_BACKUPS + 1))]
    for newer, older in reversed(list(itertools.pairwise(names))):
        if newer == layout.review:
            with committed(older) as temporary:
                shutil.copyfile(newer, temporary)
        elif newer.exists():
            newer.replace(older)


def _replace(path: Path, data: bytes) -> None:
    try:
        write_bytes(path, data)
    except PermissionError as error:
        raise UsageError(
            "review.csv cannot be replaced",
            where=f"{path}: {error.strerror}",
            expected="a file that no other program holds open",
            fix="close it in the spreadsheet program and run this again; no draft is lost",
        ) from error


def _saved_meanwhile(layout: Layout) -> DataError:
    return DataError(
        "review.csv was saved by another program while it was being merged",
        where=str(layout.review),
        expected="one writer at a time; nothing was overwritten",
        fix="run this again: your version is read then, and drafts made so far are kept",
    )
