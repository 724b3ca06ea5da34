"""Parts of one plan: side by side or one after the other, the same bytes as one run."""

import itertools
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from latentmill.cache.part import Part
from latentmill.cache.works import own_record
from latentmill.datasets.errors import LatentmillError

if TYPE_CHECKING:
    from conftest import PictureSet

    from latentmill.datasets.records import Report

pytestmark = pytest.mark.slow


def _emptied(pictures: "PictureSet") -> "PictureSet":
    for path in pictures.layout.shards.iterdir():
        path.unlink()
    pictures.layout.cache_index.unlink()
    return pictures


def _run(pictures: "PictureSet", part: Part | None) -> "Report":
    stage = pictures.stage(part=part)
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3)))[::2])
def test_parts_in_any_order_write_the_bytes_of_one_run(
    encoded_set: "PictureSet", order: tuple[int, ...]
) -> None:
    whole, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    _emptied(encoded_set)
    reports = []
    for number in order:
        assert not encoded_set.layout.cache_index.exists()
        reports.append(_run(encoded_set, Part(number, 3)))
    assert [report.counts["shards_written"] for report in reports] == [1, 1, 1]
    assert [report.stage for report in reports] == [
        f"cache/part-{order[0]}-of-3",
        f"cache/part-{order[1]}-of-3",
        "cache",
    ]
    assert encoded_set.shard_bytes() == whole
    assert encoded_set.layout.cache_index.read_bytes() == index
    record = own_record(encoded_set.layout)
    assert record is not None
    assert record.planned == ()
    assert _run(encoded_set, Part(1, 3)).counts["shards_written"] == 0


def test_a_part_that_comes_late_takes_its_share_of_the_whole_plan(
    encoded_set: "PictureSet",
) -> None:
    """Not of what is left: then part 1 would have a share of part 2's."""
    _emptied(encoded_set)
    first = encoded_set.stage(part=Part(1, 2))
    second = encoded_set.stage(part=Part(2, 2))
    names = [unit.name for unit in encoded_set.stage().plan()]
    units = first.prepare()
    assert [unit.name for unit in units] == [names[0], names[2]]
    first.work(units[0], lambda _: None)
    assert [unit.name for unit in second.prepare()] == [names[1]]
    assert [unit.name for unit in first.prepare()] == [names[2]]


def test_a_whole_run_finishes_what_parts_left(encoded_set: "PictureSet") -> None:
    whole, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    report = _run(_emptied(encoded_set), Part(2, 2))
    assert report.counts["waiting_for_other_parts"] == 3
    assert report.exit_code == 0
    with pytest.raises(LatentmillError, match="3 of 5 samples"):
        encoded_set.stage().finish([])
    encoded_set.cached()
    assert encoded_set.shard_bytes() == whole
    assert encoded_set.layout.cache_index.read_bytes() == index


def test_a_changed_set_is_a_new_plan(encoded_set: "PictureSet") -> None:
    _run(_emptied(encoded_set), Part(2, 2))
    encoded_set.draw("9.png", "one more", (60, 100), seed=9)
    encoded_set.validated()
    for number in (1, 2):
        _run(encoded_set, Part(number, 2))
    assert encoded_set.cached().counts["encoded_latents"] == 0


def test_a_part_leaves_the_files_of_others_at_work_alone(encoded_set: "PictureSet") -> None:
    from latentmill.cache.files import TEMPORARY_SUFFIX

    live = encoded_set.layout.shards / f".0123456789ab{TEMPORARY_SUFFIX}"
    live.write_bytes(b"half")
    _run(encoded_set, Part(1, 2))
    assert live.exists()
    encoded_set.cached()
    assert not live.exists()


_PROGRAM = """
import pickle, sys
from latentmill.cache.lock import held
stage = pickle.load(sys.stdin.buffer)
with held(stage.layout.cache_folder / "lock", "latentmill cache", stage.part):
    stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])
"""


def test_processes_with_a_part_each_write_the_bytes_of_one_run(encoded_set: "PictureSet") -> None:
    whole, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    _emptied(encoded_set)
    started = []
    for number in (1, 2, 3):
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(encoded_set.stage(part=Part(number, 3))))
        process.stdin.close()
        started.append(process)
    assert [process.wait(timeout=300) for process in started] == [0, 0, 0]
    assert encoded_set.shard_bytes() == whole
    assert encoded_set.layout.cache_index.read_bytes() == index
    assert not list(encoded_set.layout.cache_folder.glob("lock*"))
