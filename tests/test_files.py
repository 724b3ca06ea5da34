"""Files are whole or absent."""

import errno
from pathlib import Path

import pytest

from latentmill.cache.files import committed, remove_leftovers, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), committed(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_line_ends_are_written_as_given(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "x\r\ny\n")
    assert (tmp_path / "a").read_bytes() == b"x\r\ny\n"


def test_equal_values_give_equal_json_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": 1, "a": "é"})
    write_json(tmp_path / "b", {"a": "é", "b": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_folders_are_made_on_the_way(tmp_path: Path) -> None:
    write_text(tmp_path / "写 真" / "🐕" / "a", "x")
    assert (tmp_path / "写 真" / "🐕" / "a").read_text() == "x"


def test_only_our_own_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".abc.latentmill-tmp").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "x.tmp").touch()
    assert remove_leftovers(tmp_path) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden", "x.tmp"]


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, committed(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "a.txt")
