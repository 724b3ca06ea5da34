"""One process at a time in a folder, or the parts of one plan side by side.

The system drops a lock when its owner dies.
"""

import errno
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latentmill.cache.disk import explained_failures
from latentmill.cache.part import MOST, Part
from latentmill.datasets.errors import UsageError
from latentmill.datasets.next_steps import Command

_log = logging.getLogger(__name__)
_LOCKED_BYTE = 2**30  # Beyond the text: Windows forbids others to read a locked byte.
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


@contextmanager
def held(path: Path, purpose: str, part: Part | None = None) -> Iterator[None]:
    """Hold the lock file `path` while the body runs; it names this process for others to read.

    Parts of one plan hold it together, each also a file of its own. Raises UsageError naming the
    owner's purpose, process, host and start when another holds it: a whole run, the same part, a
    part of another number of parts. A file left by a killed process is taken over.
    """
    if part is None:
        with _one_held(path, purpose, None):
            for left in path.parent.glob(f"{path.name}.part-*"):  # Of parts that were killed.
                left.unlink(missing_ok=True)
            yield
        return
    with _one_held(path, "", part):
        _require_same_count(path, part)
        with _one_held(_part_file(path, part), purpose, None):
            yield


@contextmanager
def _one_held(path: Path, purpose: str, part: Part | None) -> Iterator[None]:
    """Hold one file, alone or (for a part) together with other parts."""
    with explained_failures(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _acquire(path, part)
    try:
        with explained_failures(path.parent):
            _describe_owner(handle, purpose)
        yield
    finally:
        _release(handle, path, part)
        os.close(handle)


def _release(handle: int, path: Path, part: Part | None) -> None:
    """Delete the file unless other parts still hold it: a new one would be another lock."""
    if os.name == "nt":
        return
    if part is not None:
        try:
            _lock(handle, None)
        except OSError:
            return
    path.unlink(missing_ok=True)


def _require_same_count(path: Path, part: Part) -> None:
    """Refuse to divide the plan while it is divided otherwise: parts would overlap."""
    for other in path.parent.glob(f"{path.name}.part-*-of-*"):
        if not other.name.endswith(f"-of-{part.count}") and _is_held(other):
            raise _busy(other, f"parts of {other.name.rpartition('-')[2]}, like those at work")


def _is_held(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        _lock(handle, None)
    except OSError as error:
        return error.errno in _BUSY
    finally:
        os.close(handle)
    return False


def _part_file(path: Path, part: Part) -> Path:
    return path.with_name(f"{path.name}.{part.label}")


def _acquire(path: Path, part: Part | None) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _require_free(handle, path, part)
        except BaseException:
            os.close(handle)
            raise
        if _is_current(handle, path):
            return handle
        os.close(handle)  # Its owner deleted the file between our opening and locking it.


def _require_free(handle: int, path: Path, part: Part | None) -> None:
    try:
        _lock(handle, part)
    except OSError as error:
        if error.errno not in _BUSY:
            _log.warning("%s: this file system has no locks (%s)", path, error.strerror)
            return
        expected = "one at a time" if part is None else "parts of one plan (--part), nobody else"
        raise _busy(path, expected) from None


def _busy(path: Path, expected: str) -> UsageError:
    return UsageError(
        f"{_owner(path)} is at work in this folder",
        where=str(path),
        expected=expected,
        fix="wait until it ends, or choose another folder",
        run=(Command(flags=("--work", "DIR")),),
    )


def _lock(handle: int, part: Part | None) -> None:
    """Lock all of the file, or for a part only so much that other parts may do the same."""
    if sys.platform == "win32":
        import msvcrt

        first, count = (0, MOST) if part is None else (part.number - 1, 1)
        os.lseek(handle, _LOCKED_BYTE + first, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, count)
    else:
        import fcntl

        kind = fcntl.LOCK_EX if part is None else fcntl.LOCK_SH
        fcntl.flock(handle, kind | fcntl.LOCK_NB)


def _is_current(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _describe_owner(handle: int, purpose: str) -> None:
    owner = {
        "purpose": purpose,
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, 0)
    os.write(handle, json.dumps(owner).encode())


def _owner(path: Path) -> str:
    """Name who holds the lock; where parts hold it together, the parts."""
    alone = _described(path)
    if alone:
        return alone
    parts = [_described(one) for one in sorted(path.parent.glob(f"{path.name}.part-*"))]
    return ", ".join(filter(None, parts)) or "another process"


def _described(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        owner = json.loads(path.read_bytes())
        if owner["purpose"]:
            process = f"process {owner['process']} on {owner['host']}"
            return f"{owner['purpose']} ({process}, since {owner['since']})"
    return ""
