"""What looks after a cache: every wrong byte is found, only what nobody uses is deleted."""

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from latentmill.cache.files import TEMPORARY_SUFFIX
from latentmill.cache.mapped import MappedCache
from latentmill.cache.works import users_of
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.stages.upkeep.collect import collect_garbage
from latentmill.stages.upkeep.export_samples import export_samples
from latentmill.stages.upkeep.stats import cache_statistics, statistics_lines
from latentmill.stages.upkeep.verify import verify_cache

if TYPE_CHECKING:
    from conftest import PictureSet

pytestmark = pytest.mark.slow


def _faults(layout: Layout) -> dict[str, str]:
    report = verify_cache(layout)
    assert report.exit_code == (3 if report.problems else 0)
    assert report.ok is not bool(report.problems)
    return {Path(one.path).name: one.message for one in report.problems}


def _files(layout: Layout) -> list[Path]:
    return [path for path in sorted(layout.cache_folder.rglob("*")) if path.is_file()]


def test_a_sound_cache_has_no_fault(encoded_set: "PictureSet") -> None:
    report = verify_cache(encoded_set.layout)
    size = sum(path.stat().st_size for path in encoded_set.layout.shards.glob("*.tar"))
    assert report.counts == {"shards": 3, "samples": 5, "bytes": size, "damaged": 0}
    assert report.next_steps == ()


@pytest.mark.parametrize("kind", ["shards/*.tar", "shards/*.json", "index.json", "extras-*"])
def test_any_wrong_or_missing_byte_is_found_and_named(encoded_set: "PictureSet", kind: str) -> None:
    layout = encoded_set.layout
    path = sorted(layout.cache_folder.glob(kind))[0]
    content = path.read_bytes()
    places = [0, len(content) - 1, *random.Random(0).sample(range(len(content)), 25)]
    for place in places:
        for changed in (
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
            content[:place] + content[place + 1 :],
        ):
            path.write_bytes(changed)
            assert list(_faults(layout)) == [path.name], place
    path.write_bytes(content)
    assert _faults(layout) == {}


def test_every_byte_of_an_index_counts(encoded_set: "PictureSet") -> None:
    path = sorted(encoded_set.layout.shards.glob("*.json"))[0]
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        for changed in (content[place] ^ 1, ord(" "), ord("2")):
            if changed != content[place]:
                path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
                assert list(_faults(encoded_set.layout)) == [path.name], place


def test_a_version_number_that_flipped_is_damage_and_another_version_is_not(
    encoded_set: "PictureSet", monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sorted(encoded_set.layout.shards.glob("*.json"))[0]
    content = path.read_text()
    assert '"format": 1,' in content
    path.write_text(content.replace('"format": 1,', '"format": 3,'))
    assert _faults(encoded_set.layout) == {path.name: "its version number is damaged"}
    path.write_text(content)
    for module in ("fingerprints", "index", "models.weight_hashes"):
        monkeypatch.setattr(f"latentmill.cache.{module}.FORMAT", 99)
    encoded_set.cached()
    monkeypatch.undo()
    encoded_set.cached()
    before = encoded_set.shard_bytes()
    assert _faults(encoded_set.layout) == {}
    collect_garbage(encoded_set.layout, is_meant=True)
    assert encoded_set.shard_bytes() == before


@pytest.mark.parametrize("suffix", [".tar", ".json"])
def test_a_missing_file_is_found_and_the_way_on_mends_it(
    encoded_set: "PictureSet", suffix: str
) -> None:
    path = sorted(encoded_set.layout.shards.glob(f"*{suffix}"))[1]
    path.unlink()
    assert _faults(encoded_set.layout) == {path.name: "missing"}
    (way_on,) = verify_cache(encoded_set.layout).next_steps
    assert way_on.commands == (Command("cache"),)
    encoded_set.cached()
    assert _faults(encoded_set.layout) == {}


def test_damage_in_what_nobody_uses_is_mended_by_gc(encoded_set: "PictureSet") -> None:
    encoded_set.draw("1.png", "new words", seed=1)
    encoded_set.cached()
    used = {stamp.name for stamp in _cache(encoded_set.layout).index.shards}
    (old,) = [p for p in encoded_set.layout.shards.glob("*.tar") if p.stem not in used]
    encoded_set.cached()
    old.write_bytes(b"half")
    (way_on,) = verify_cache(encoded_set.layout).next_steps
    assert way_on.commands == (Command("cache", ("gc", "--yes")),)
    collect_garbage(encoded_set.layout, is_meant=True)
    assert _faults(encoded_set.layout) == {}


def _cache(layout: Layout) -> MappedCache:
    return MappedCache.open(layout.cache_index, layout.shards)


def _twin(pictures: "PictureSet", place: Path) -> "PictureSet":
    """A second work on the same data that shares the first one's cache."""
    twin = type(pictures)(place, pictures.model)
    shutil.copytree(pictures.data, twin.data)
    return twin


def test_gc_lists_first_deletes_when_told_and_the_cache_goes_on(
    encoded_set: "PictureSet",
) -> None:
    before = encoded_set.shard_bytes()
    encoded_set.draw("4.png", "new words", (60, 100), seed=4)
    (encoded_set.data / "3.png").unlink()
    encoded_set.cached()
    after = encoded_set.shard_bytes()
    listed = collect_garbage(encoded_set.layout, is_meant=False)
    assert encoded_set.shard_bytes() == after
    gone = {Path(one.path).name for one in listed.problems if "shards" in one.path}
    assert gone == {name for name in before if name.startswith("48x80")}
    assert listed.counts["deleted"] == 0
    assert listed.next_steps[-1].commands == (Command("cache", ("gc", "--yes")),)
    deleted = collect_garbage(encoded_set.layout, is_meant=True)
    assert deleted.counts["deleted"] == len(deleted.problems) == len(listed.problems)
    assert encoded_set.shard_bytes().keys() == after.keys() - gone
    assert _faults(encoded_set.layout) == {}
    assert encoded_set.cached().counts["encoded_latents"] == 0
    assert collect_garbage(encoded_set.layout, is_meant=True).problems == ()


def test_gc_never_touches_foreign_files(encoded_set: "PictureSet") -> None:
    shards = encoded_set.layout.shards
    names = ["notes.txt", "mine.tar", "mine.json", "512x512-abc.tar", "photo.safetensors"]
    for name in names:
        (shards / name).write_bytes(b"mine")
        (shards.parent / name).write_bytes(b"mine")
    (shards.parent / "extras-mine.safetensors").write_bytes(b"mine")
    left = [shards / f".0123456789ab{TEMPORARY_SUFFIX}", shards / "64x64-0123456789ab.tar"]
    for path in left:
        path.write_bytes(b"half")
    report = collect_garbage(encoded_set.layout, is_meant=True)
    assert sorted(one.path for one in report.problems) == sorted(map(str, left))
    assert {one.message.partition("; ")[2] for one in report.problems} == {
        "an interrupted run left it"
    }
    assert all((shards / name).exists() and (shards.parent / name).exists() for name in names)
    assert (shards.parent / "extras-mine.safetensors").exists()


def test_gc_keeps_what_another_work_uses_also_when_its_folder_is_away(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    twin = _twin(encoded_set, tmp_path / "twin")
    twin.draw("9.png", "only in the twin", seed=9)
    layout = Layout(twin.root / "work", shared_cache=encoded_set.layout.cache_folder)
    stage = twin.validated().stage(layout=layout)
    manifest = twin.layout.manifest
    assert layout.manifest == manifest
    stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])
    before = encoded_set.shard_bytes()
    assert len(before) == 8
    own, other = users_of(encoded_set.layout).works
    assert (own.work, other.work) == (encoded_set.layout.work, layout.work)
    layout.work.rename(tmp_path / "away")
    report = collect_garbage(encoded_set.layout, is_meant=True)
    assert encoded_set.shard_bytes() == before
    assert any(str(layout.work) in step.text for step in report.next_steps)
    (tmp_path / "away").rename(layout.work)
    (twin.data / "9.png").unlink()
    stage = twin.validated().stage(layout=layout)
    stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])
    assert collect_garbage(encoded_set.layout, is_meant=True).counts["shards"] == 1


def test_a_moved_work_stays_one_and_a_copied_work_becomes_two(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    first, moved, copied = (
        Layout(place, shared_cache=shared)
        for place in (encoded_set.layout.work, tmp_path / "moved", tmp_path / "copied")
    )

    def run(layout: Layout) -> None:
        stage = encoded_set.stage(layout=layout)
        stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])

    run(first)
    shutil.copytree(first.work, copied.work)
    first.work.rename(moved.work)
    run(moved)
    assert [user.work for user in users_of(moved).works] == [moved.work]
    run(copied)
    assert [user.work for user in users_of(moved).works] == [moved.work, copied.work]


def test_a_copied_work_with_its_own_cache_knows_itself_alone(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    encoded_set.cached()
    copied = Layout(tmp_path / "copied")
    shutil.copytree(encoded_set.layout.work, copied.work)
    (user,) = users_of(copied).works
    assert user.work == copied.work
    assert len(user.shards) == 3


def test_what_an_interrupted_run_has_written_is_kept(encoded_set: "PictureSet") -> None:
    encoded_set.draw("5.png", "first new", seed=5)
    encoded_set.draw("6.png", "second new", (60, 100), seed=6)
    stage = encoded_set.validated().stage()
    units = stage.prepare()
    assert len(units) == 2
    stage.work(units[0], lambda _: None)
    written = encoded_set.shard_bytes()
    collect_garbage(encoded_set.layout, is_meant=True)
    assert encoded_set.shard_bytes() == written
    assert encoded_set.cached().counts["encoded_latents"] == 1


def test_a_damaged_record_stops_gc_and_a_run_mends_it(encoded_set: "PictureSet") -> None:
    encoded_set.cached()
    (record,) = (encoded_set.layout.cache_folder / "works").iterdir()
    record.write_bytes(record.read_bytes()[:-3])
    with pytest.raises(DataError, match="nothing is deleted"):
        collect_garbage(encoded_set.layout, is_meant=True)
    assert list(_faults(encoded_set.layout)) == [record.name]
    encoded_set.cached()
    assert collect_garbage(encoded_set.layout, is_meant=False).problems == ()


def test_gc_without_any_known_work_deletes_nothing(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    shutil.copytree(encoded_set.layout.shards, tmp_path / "alone" / "shards")
    layout = Layout(tmp_path / "nobody", shared_cache=tmp_path / "alone")
    with pytest.raises(UsageError, match="no work is known"):
        collect_garbage(layout, is_meant=True)
    assert len(list(layout.shards.iterdir())) == 6


def test_statistics_add_up(encoded_set: "PictureSet") -> None:
    (pair, *_) = [  # A shard of two: the other one keeps it in use.
        shard
        for shard in sorted(encoded_set.layout.shards.glob("64x64-*.tar"))
        if len(json.loads(shard.with_suffix(".json").read_bytes())["entries"]) == 2
    ]
    cache = _cache(encoded_set.layout)
    number = next(
        cache.details(one.id)["captions"][0][-1] for one in cache.samples if one.shard == pair.stem
    )
    encoded_set.draw(f"{number}.png", "new words", seed=int(number))
    report = encoded_set.cached()
    encoded_set.layout.report("cache").write_text(json.dumps(report.to_json()))
    counts = cache_statistics(encoded_set.layout).counts
    files = encoded_set.layout.shards.glob("*.tar")
    kinds = ("latent", "text", "other")
    assert sum(counts[f"{kind}_bytes"] for kind in kinds) == sum(p.stat().st_size for p in files)
    assert counts["latent_bytes"] == 4 * (2 * 4 * 16 * 16 * 2) + 2 * (2 * 4 * 20 * 12 * 2)
    expected = {"used_shards": 4, "unused_shards": 0, "others_shards": 0, "samples_in_use": 5}
    assert counts.items() >= {**expected, "superseded": 1, "works": 1}.items()
    hits = {"latent_hits": 5, "latent_misses": 0, "text_hits": 4, "text_misses": 1}
    assert counts.items() >= hits.items()
    assert "texts:       4 found and 1 encoded by the last run" in statistics_lines(counts)


def test_an_export_is_what_the_reader_gives(encoded_set: "PictureSet", tmp_path: Path) -> None:
    folder = tmp_path / "for other tools"
    cache = _cache(encoded_set.layout)
    for _ in range(2):
        report = export_samples(encoded_set.layout, folder)
        assert report.counts == {"samples": 5, "files": 11}
    for sample in cache.samples:
        tensors, stored = load_file(folder / f"{sample.id}.safetensors"), cache.read(sample.id)
        assert torch.equal(tensors["latent_mean"], stored.latent_mean)
        assert torch.equal(tensors["text"], stored.text)
        details = json.loads((folder / f"{sample.id}.json").read_bytes())
        assert details["captions"] == [f"picture number {details['path'][0]}"]
    assert torch.equal(load_file(folder / "extras.safetensors")["empty_text"], cache.empty_text)
    assert json.loads((folder / "latentmill-export.json").read_bytes())["scaling_factor"] == 1.0


def test_a_second_export_drops_what_left_the_set_and_no_foreign_file(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    export_samples(encoded_set.layout, tmp_path / "out")
    (tmp_path / "out" / "mine.json").write_text("{}")
    (encoded_set.data / "0.png").unlink()
    encoded_set.cached()
    export_samples(encoded_set.layout, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert len(names) == 2 * 4 + 3
    assert "mine.json" in names


def test_an_export_refuses_a_folder_with_other_files(
    encoded_set: "PictureSet", tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    with pytest.raises(UsageError, match="other files"):
        export_samples(encoded_set.layout, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a.txt"]
