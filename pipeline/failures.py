"""Whatever ends a command becomes one explained failure, or is a bug and says so."""

import errno
import sys

from latentmill.datasets.errors import (
    DiskFullError,
    LatentmillError,
    OutOfMemoryError,
    UsageError,
)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def explain_failure(error: BaseException, stage: str) -> LatentmillError | None:
    """The explained form of an error that a person can act on; None for a bug."""
    if isinstance(error, LatentmillError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError(
            "the machine ran out of memory",
            where=f"stage {stage}",
            fix="close other programs; then lower engine.workers, the stage's batch size, "
            "bucket.area, in that order, one at a time",
        )
    if _is_cuda_out_of_memory(error):
        return OutOfMemoryError(
            f"the card ran out of memory ({str(error).splitlines()[0]})",
            where=f"stage {stage}",
            fix="free the card of other programs; then train.batch_size=1, "
            "train.gradient_checkpointing=true, a lower bucket.area, one at a time",
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
            fix="free some room, or choose another --work folder, and run the command again: "
            "what was written before stays valid",
        )
    if error.errno in NOT_WRITABLE:
        return UsageError(
            f"a file or folder cannot be used: {error.strerror}",
            where=where,
            expected="a work folder that may be written",
            fix="change its permissions, or choose another one with --work DIR",
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ENOENT):
        return UsageError(f"a file cannot be used: {error.strerror}", where=where)
    return None


def _is_cuda_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)
