"""Every failure has a class, an exit code and a way on; the rest is called a bug."""

import errno
import pickle

import pytest

from latentmill.datasets.errors import DataError, LatentmillError
from latentmill.pipeline.failures import explain_failure


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (DataError("x"), 3),
        (MemoryError(), 4),
        (OSError(errno.ENOSPC, "No space left on device", "/w/x"), 5),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/w/x"), 5),
        (PermissionError(errno.EACCES, "Permission denied", "/w/x"), 2),
        (OSError(errno.EROFS, "Read-only file system", "/w/x"), 2),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/w/x"), 2),
    ],
)
def test_the_exit_code_names_the_class(error: BaseException, exit_code: int) -> None:
    failure = explain_failure(error, "cache")
    assert failure is not None
    assert failure.exit_code == exit_code


def test_a_file_error_names_stage_and_file() -> None:
    failure = explain_failure(OSError(errno.ENOSPC, "full", "/w/写.tar"), "cache")
    assert "stage cache, /w/写.tar" in str(failure)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(errno.EIO, "I/O error"), ValueError()])
def test_what_nobody_foresaw_is_a_bug(error: BaseException) -> None:
    assert explain_failure(error, "cache") is None


def test_a_card_without_memory_is_explained() -> None:
    torch = pytest.importorskip("torch")
    failure = explain_failure(torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"), "train")
    assert failure is not None
    assert failure.exit_code == 4


def test_a_failure_comes_back_whole_from_a_worker_process() -> None:
    error = DataError("what", where="w", expected="e", fix="f")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what multiprocessing does
    assert type(again) is DataError
    assert str(again) == str(error)
    assert isinstance(again, LatentmillError)
