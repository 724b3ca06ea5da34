import errno
import shutil
from pathlib import Path

import pytest

from latentmill.cache.disk import CACHE_ELSEWHERE, explained_failures, require_room
from latentmill.datasets.errors import DiskFullError, UsageError
from latentmill.datasets.next_steps import Command

WORK = Command(flags=("--work", "DIR"))


@pytest.fixture
def nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    return tmp_path / "not" / "yet" / "made"


def test_room_that_is_lacking_is_named_with_its_reserve(nearly_full: Path) -> None:
    with pytest.raises(DiskFullError, match="66 MiB are needed, 1 MiB are free") as caught:
        require_room(nearly_full, 2 << 20)
    assert caught.value.where == str(nearly_full)


def test_nothing_to_write_needs_no_room(nearly_full: Path) -> None:
    require_room(nearly_full, 0)


def test_only_what_goes_to_the_cache_can_go_to_another_cache_folder(nearly_full: Path) -> None:
    with pytest.raises(DiskFullError) as caught:
        require_room(nearly_full, 1)
    assert caught.value.run == (WORK,)
    with pytest.raises(DiskFullError) as caught:
        require_room(nearly_full, 1, CACHE_ELSEWHERE)
    assert caught.value.run == (WORK, Command(settings=("cache.dir=DIR",)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_file_that_did_not_fit(number: int, tmp_path: Path) -> None:
    with pytest.raises(DiskFullError) as caught, explained_failures(tmp_path):
        raise OSError(number, "full", str(tmp_path / "part.jsonl"))
    assert caught.value.where == str(tmp_path / "part.jsonl")
    assert caught.value.run == (Command(),)


def test_a_full_disk_without_a_file_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError) as caught, explained_failures(tmp_path):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_forbidden_folder_names_where_else_to_write(number: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught, explained_failures(tmp_path, CACHE_ELSEWHERE):
        raise OSError(number, "no", str(tmp_path / "a.tar"))
    assert (caught.value.where, caught.value.run) == (str(tmp_path / "a.tar"), CACHE_ELSEWHERE)
