"""The set-up says what stands in its way before it downloads."""

from pathlib import Path

from latentmill.pipeline.setup_check import find_obstacles


def test_an_old_python_is_named_with_the_needed_one(tmp_path: Path) -> None:
    (said,) = find_obstacles(tmp_path / "venv", version=(3, 9), free_bytes=2**40)
    assert "Python 3.9 is too old" in said
    assert "3.11" in said


def test_a_full_disk_is_named_with_its_room(tmp_path: Path) -> None:
    (said,) = find_obstacles(tmp_path / "venv", version=(3, 11), free_bytes=2**30)
    assert "1.0 GiB are free" in said


def test_an_installed_torch_needs_no_room(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages" / "torch").mkdir(parents=True)
    assert find_obstacles(tmp_path, version=(3, 11), free_bytes=2**20) == []


def test_a_good_machine_has_no_obstacle(tmp_path: Path) -> None:
    assert find_obstacles(tmp_path / "venv", version=(3, 13), free_bytes=2**40) == []
