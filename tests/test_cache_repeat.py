"""The same bytes whoever encodes, however often it is stopped, whatever breaks in between."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from latentmill.cache.files import TEMPORARY_SUFFIX
from latentmill.cache.mapped import MappedCache
from latentmill.cache.verification import check_shards
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.next_steps import Command
from latentmill.pipeline.engines import ray_tasks

if TYPE_CHECKING:
    from conftest import PictureSet

pytestmark = pytest.mark.slow


def _emptied(pictures: "PictureSet") -> "PictureSet":
    for path in pictures.layout.shards.iterdir():
        path.unlink()
    pictures.layout.cache_index.unlink()
    return pictures


def _work(stage: Any, unit: Any, num_threads: int) -> Any:
    import torch

    torch.set_num_threads(num_threads)
    return stage.work(unit, lambda _: None)


def test_processes_and_threads_do_not_change_a_byte(encoded_set: "PictureSet") -> None:
    serial, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    stage = _emptied(encoded_set).stage()
    units = stage.plan()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_work, stage, unit, 1 + at) for at, unit in enumerate(units)]
        results = [future.result() for future in reversed(futures)]
    report = stage.finish(results)
    assert report.counts["encoded_latents"] == 5
    assert encoded_set.shard_bytes() == serial
    assert encoded_set.layout.cache_index.read_bytes() == index


def test_ray_does_not_change_a_byte(encoded_set: "PictureSet") -> None:
    pytest.importorskip("ray")
    serial, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    stage = _emptied(encoded_set).stage()
    stage.finish(list(ray_tasks(stage, stage.prepare(), lambda _: None, 2)))
    assert encoded_set.shard_bytes() == serial
    assert encoded_set.layout.cache_index.read_bytes() == index


_PROGRAM = """
import pickle, sys
stage = pickle.load(sys.stdin.buffer)
stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])
"""


@pytest.mark.parametrize("num_files", [1, 2, 4])
def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(
    encoded_set: "PictureSet", num_files: int
) -> None:
    unbroken, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    stage = pickle.dumps(_emptied(encoded_set).stage())
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(stage)
    process.stdin.close()
    while len(list(encoded_set.layout.shards.iterdir())) < num_files and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.wait()
    encoded_set.cached()
    assert encoded_set.shard_bytes() == unbroken
    assert encoded_set.layout.cache_index.read_bytes() == index


@pytest.mark.parametrize("done", [(0,), (1,), (0, 2)])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    encoded_set: "PictureSet", done: tuple[int, ...]
) -> None:
    unbroken = encoded_set.shard_bytes()
    stage = _emptied(encoded_set).stage()
    units = stage.plan()
    for at in done:
        stage.work(units[at], lambda _: None)
    assert len(stage.plan()) == len(units) - len(done)
    encoded_set.cached()
    assert encoded_set.shard_bytes() == unbroken


def test_what_a_killed_run_left_behind_is_cleared_away_or_written_over(
    encoded_set: "PictureSet",
) -> None:
    shards = encoded_set.layout.shards
    unbroken = encoded_set.shard_bytes()
    first = sorted(unbroken)[0]
    (shards / first).unlink()  # The shard is in place, its index is not.
    (shards / first).with_suffix(".tar").write_bytes(b"half")
    (shards / f".0123456789ab{TEMPORARY_SUFFIX}").write_bytes(b"half")
    (shards.parent / f".0123456789ab{TEMPORARY_SUFFIX}").write_bytes(b"half")
    encoded_set.cached()
    assert encoded_set.shard_bytes() == unbroken
    assert not list(shards.parent.glob(f"*{TEMPORARY_SUFFIX}"))


def _cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 70)


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("suffix", [".tar", ".json"])
@pytest.mark.parametrize("damage", [_cut_short, _flip_a_bit, _delete])
def test_only_the_damaged_shard_is_encoded_again_and_the_reader_names_it(
    encoded_set: "PictureSet", suffix: str, damage: Any
) -> None:
    layout, unbroken = encoded_set.layout, encoded_set.shard_bytes()
    path = sorted(layout.shards.glob(f"*{suffix}"))[1]
    num_entries = len(json.loads(path.with_suffix(".json").read_bytes())["entries"])
    damage(path)
    if not (damage is _delete and suffix == ".json"):
        assert [one.path for one in check_shards(layout.shards).faults] == [path]
    with pytest.raises(DataError) as caught:
        cache = MappedCache.open(layout.cache_index, layout.shards)
        for sample in cache.samples:
            cache.read(sample.id)
    assert path.stem in str(caught.value)
    assert caught.value.run == (Command("cache"),)
    report = encoded_set.cached()
    assert report.counts["shards_written"] == 1
    assert report.counts["encoded_latents"] == num_entries
    assert encoded_set.shard_bytes() == unbroken
    assert check_shards(layout.shards).faults == ()


@pytest.mark.parametrize("damage", [_cut_short, _flip_a_bit])
def test_a_damaged_set_index_or_extras_is_written_again(
    encoded_set: "PictureSet", damage: Any
) -> None:
    folder = encoded_set.layout.cache_index.parent
    paths = [encoded_set.layout.cache_index, next(folder.glob("extras-*"))]
    for path in paths:
        content = path.read_bytes()
        damage(path)
        with pytest.raises(DataError, match=path.stem):
            MappedCache.open(encoded_set.layout.cache_index, encoded_set.layout.shards)
        encoded_set.cached()
        assert path.read_bytes() == content


def test_entries_of_another_format_version_are_ignored_and_kept(
    encoded_set: "PictureSet", monkeypatch: pytest.MonkeyPatch
) -> None:
    before = encoded_set.shard_bytes()
    for module in ("fingerprints", "index", "models.weight_hashes"):
        monkeypatch.setattr(f"latentmill.cache.{module}.FORMAT", 99)
    report = encoded_set.cached()
    assert report.counts["encoded_latents"] == 5
    assert encoded_set.shard_bytes().items() >= before.items()
    monkeypatch.undo()
    assert encoded_set.cached().counts["encoded_latents"] == 0


def test_reading_before_anything_is_cached_names_the_command(encoded_set: "PictureSet") -> None:
    encoded_set.layout.cache_index.unlink()
    with pytest.raises(UsageError) as caught:
        MappedCache.open(encoded_set.layout.cache_index, encoded_set.layout.shards)
    assert caught.value.run == (Command("cache"),)
