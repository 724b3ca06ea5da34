"""Room on the volume that a folder lies on: checked before, explained after."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentmill.datasets.errors import DiskFullError, UsageError
from latentmill.datasets.next_steps import Command

FULL = (errno.ENOSPC, errno.EDQUOT)
_RESERVE_BYTES = 64 * 2**20
WORK_ELSEWHERE = (Command(flags=("--work", "DIR")),)
CACHE_ELSEWHERE = (*WORK_ELSEWHERE, Command(settings=("cache.dir=DIR",)))


def require_room(
    folder: Path, needed_bytes: int, elsewhere: tuple[Command, ...] = WORK_ELSEWHERE
) -> None:
    """Raise DiskFullError when the volume of `folder` has less than `needed_bytes` and a reserve.

    The folder need not exist yet: the nearest parent that does tells the volume. `elsewhere` are
    the commands that write to another one.
    """
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes and free_bytes < needed_bytes + _RESERVE_BYTES:
        raise DiskFullError(
            f"{_mib(needed_bytes + _RESERVE_BYTES)} are needed, {_mib(free_bytes)} are free",
            where=str(folder),
            fix="free some space, or name a larger disk",
            run=elsewhere,
        )


@contextmanager
def explained_failures(
    folder: Path, elsewhere: tuple[Command, ...] = WORK_ELSEWHERE
) -> Iterator[None]:
    """Turn a full, read-only or forbidden volume into an error that says so, and for which file.

    `elsewhere` are the commands that write to another folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                "the disk is full; what was written stays valid",
                where=str(error.filename or folder),
                fix="free some space, then go on where it stopped",
                run=(Command(),),
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UsageError(
                f"cannot write: {error.strerror}",
                where=str(error.filename or folder),
                fix="name a folder that can be written",
                run=elsewhere,
            ) from error
        raise


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
