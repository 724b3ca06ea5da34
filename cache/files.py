"""Files that are whole or absent: temporary name, fsync, rename."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY_SUFFIX = ".latentmill-tmp"


@contextmanager
def committed(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success fsync it and rename it to `path`.

    On failure the temporary file is deleted and `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # A full disk names no file by itself.
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with committed(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with the line ends it has."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys: the same value gives the same bytes."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The bytes that `write_json` writes."""
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode("ascii")


def remove_leftovers(folder: Path) -> int:
    """Delete temporary files that a killed run left directly in `folder`; return their number.

    Only for a caller that holds the folder's lock: a live writer's file looks the same.
    """
    leftovers = list(folder.glob(f".*{TEMPORARY_SUFFIX}")) if folder.is_dir() else []
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows has no handle to flush for a folder.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
