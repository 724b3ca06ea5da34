"""Whatever ends a command becomes one explained failure, or is a bug and says so."""

import errno

from latentmill.cache.memory import is_out_of_memory
from latentmill.datasets.errors import (
    DiskFullError,
    LatentmillError,
    OutOfMemoryError,
    UsageError,
)
from latentmill.datasets.next_steps import Command

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def explain_failure(error: BaseException, stage: str) -> LatentmillError | None:
    """The explained form of an error that a person can act on; None for a bug."""
    if isinstance(error, LatentmillError):
        return error
    if is_out_of_memory(error):
        words = str(error).splitlines()
        return OutOfMemoryError(
            f"memory ran out: {words[0]}" if words else "the machine ran out of memory",
            where=f"stage {stage}",
            fix="close other programs that use the card or the memory; then lower "
            "engine.workers, the stage's batch size, bucket.area, in that order, one at a time",
        )
    if isinstance(error, OSError):
        return _explain_file_error(error, stage)
    return None


def _explain_file_error(error: OSError, stage: str) -> LatentmillError | None:
    where = f"stage {stage}, {error.filename or 'file unknown'}"
    if error.errno in DISK_FULL:
        return DiskFullError(
            "the disk is full",
            where=where,
            fix="free some room and go on (what was written before stays valid), or choose "
            "another folder",
            run=(Command(), Command(flags=("--work", "DIR"))),
        )
    if error.errno in NOT_WRITABLE:
        return UsageError(
            f"a file or folder cannot be used: {error.strerror}",
            where=where,
            expected="a work folder that may be written",
            fix="change its permissions, or choose another one",
            run=(Command(flags=("--work", "DIR")),),
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ENOENT):
        return UsageError(f"a file cannot be used: {error.strerror}", where=where)
    return None
