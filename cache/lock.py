"""One process at a time in a folder: a lock that the system drops when its owner dies."""

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
from latentmill.datasets.errors import UsageError
from latentmill.datasets.next_steps import Command

_log = logging.getLogger(__name__)
_LOCKED_BYTE = 2**30  # Beyond the text: Windows forbids others to read a locked byte.
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


@contextmanager
def held(path: Path, purpose: str) -> Iterator[None]:
    """Hold the lock file `path` while the body runs; it names this process for others to read.

    Raises UsageError naming the owner's purpose, process, host and start when another holds it.
    A file left by a killed process is taken over.
    """
    with explained_failures(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _acquire(path)
    try:
        with explained_failures(path.parent):
            _describe_owner(handle, purpose)
        yield
    finally:
        if os.name != "nt":
            path.unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _require_free(handle, path)
        except BaseException:
            os.close(handle)
            raise
        if _is_current(handle, path):
            return handle
        os.close(handle)  # Its owner deleted the file between our opening and locking it.


def _require_free(handle: int, path: Path) -> None:
    try:
        _lock(handle)
    except OSError as error:
        if error.errno not in _BUSY:
            _log.warning("%s: this file system has no locks (%s)", path, error.strerror)
            return
        raise UsageError(
            f"{_owner(path)} is at work in this folder",
            where=str(path),
            expected="one at a time",
            fix="wait until it ends, or choose another folder",
            run=(Command(flags=("--work", "DIR")),),
        ) from None


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
    with suppress(OSError, ValueError, KeyError, TypeError):
        owner = json.loads(path.read_bytes())
        process = f"process {owner['process']} on {owner['host']}"
        return f"{owner['purpose']} ({process}, since {owner['since']})"
    return "another process"
