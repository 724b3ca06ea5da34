import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from latentmill.cache.lock import held
from latentmill.cache.part import Part
from latentmill.datasets.errors import UsageError


def _hold_until_killed(path: Path) -> None:
    with held(path, "latentmill cache"):
        (path.parent / "is held").touch()
        time.sleep(60)


def _holder(path: Path) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=_hold_until_killed, args=(path,))
    process.start()
    while not (path.parent / "is held").exists():
        assert process.is_alive()
        time.sleep(0.02)
    return process


def test_a_second_process_is_told_who_holds_the_lock_and_a_killed_owner_frees_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "缓存" / "lock"
    process = _holder(path)
    try:
        with pytest.raises(UsageError) as caught, held(path, "latentmill train"):
            pass
        assert f"latentmill cache (process {process.pid} on " in str(caught.value)
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert path.exists()
    with held(path, "latentmill train"):
        assert str(os.getpid()) in path.read_text()


def test_the_lock_is_free_again_after_the_body_and_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(KeyError), held(path, "first"):
        raise KeyError
    with held(path, "second"):
        pass
    assert not path.exists()


def test_one_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        held(path, "outer"),
        pytest.raises(UsageError, match="outer"),
        held(path, "inner"),
    ):
        pass


@pytest.mark.parametrize("left", [b"", b"rubbish", b'{"process": 1}', b"\xff\xfe"])
def test_a_file_left_behind_is_taken_over(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(left)
    with held(path, "next"):
        assert b'"next"' in path.read_bytes()


def test_parts_of_one_plan_work_side_by_side_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held(path, "first", Part(1, 2)), held(path, "second", Part(2, 2)):
        for refused in (None, Part(1, 2), Part(2, 2), Part(3, 3)):
            with (
                pytest.raises(UsageError, match="at work in this folder") as caught,
                held(path, "late", refused),
            ):
                pass
            assert "(process " in caught.value.what
    assert list(tmp_path.iterdir()) == []
    with held(path, "whole"), pytest.raises(UsageError, match="whole"), held(path, "", Part(1, 2)):
        pass


def test_a_whole_run_waits_for_the_last_part(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = held(path, "first", Part(1, 2)), held(path, "second", Part(2, 2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(UsageError, match="second"), held(path, "whole"):
        pass
    with held(path, "first again", Part(1, 2)):
        pass
    second.__exit__(None, None, None)
    with held(path, "whole"):
        pass


def test_a_part_that_was_killed_frees_its_place(tmp_path: Path) -> None:
    (tmp_path / "lock.part-1-of-3").write_text("{}")
    with held(tmp_path / "lock", "two", Part(1, 2)):
        pass
    with held(tmp_path / "lock", "whole"):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
