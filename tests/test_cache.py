import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import DataError, DiskFullError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.stages.settings import (
    BucketSettings,
    CacheSettings,
    ModelSettings,
    SampleSettings,
    Source,
)

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from conftest import Calls, PictureSet


def _counts(samples: int, latents: int, texts: int) -> dict[str, int]:
    return {
        "samples": samples,
        "encoded_latents": latents,
        "encoded_texts": texts,
        "reused_latents": samples - latents,
        "reused_texts": samples - texts,
    }


def _shards(report: Any) -> dict[str, int]:
    return {name: report.counts[name] for name in ("shards_written", "shards_kept")}


def _ids(layout: Layout) -> dict[str, str]:
    """Captions of the set that is trained on, by id."""
    cache = MappedCache.open(layout.cache_index, layout.shards)
    return {one.id: cache.details(one.id)["captions"][0] for one in cache.samples}


def test_a_first_run_encodes_everything_once(
    small_model: Path, tmp_path: Path, encoded_set: "PictureSet", calls: "Calls"
) -> None:
    fresh = type(encoded_set)(tmp_path / "fresh", small_model)
    for index in range(3):
        fresh.draw(f"{index}.png", "the same words" if index else "other words", seed=index)
    report = fresh.cached()
    assert report.counts.items() >= _counts(3, latents=3, texts=2).items()
    assert _shards(report) == {"shards_written": 2, "shards_kept": 0}
    assert calls.latents == 3
    # Three more for the empty caption, the negative prompt and the preview's prompt.
    assert calls.texts == 2 + 3


def test_nothing_changed_nothing_is_encoded(encoded_set: "PictureSet", calls: "Calls") -> None:
    before = encoded_set.shard_bytes()
    index = encoded_set.layout.cache_index.read_bytes()
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(5, latents=0, texts=0).items()
    assert _shards(report) == {"shards_written": 0, "shards_kept": 3}
    assert (calls.latents, calls.texts) == (0, 0)
    assert encoded_set.shard_bytes() == before
    assert encoded_set.layout.cache_index.read_bytes() == index


def test_a_run_that_encodes_nothing_does_not_import_torch(encoded_set: "PictureSet") -> None:
    program = (
        "import pickle, sys; stage = pickle.load(sys.stdin.buffer);"
        "assert not stage.plan(); stage.finish([]); assert 'torch' not in sys.modules"
    )
    import pickle

    stage = pickle.dumps(encoded_set.stage())
    subprocess.run([sys.executable, "-c", program], input=stage, check=True, timeout=60)


def test_a_changed_caption_encodes_that_text_and_back_again_nothing(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    before = encoded_set.shard_bytes()
    caption = encoded_set.data / "1.txt"
    caption.write_text("a new text")
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(5, latents=0, texts=1).items()
    assert (calls.latents, calls.texts) == (0, 1)
    assert encoded_set.shard_bytes().items() >= before.items()
    assert "a new text" in _ids(encoded_set.layout).values()
    caption.write_text("picture number 1")
    report = encoded_set.cached()
    assert (calls.latents, calls.texts) == (0, 1)
    assert _shards(report) == {"shards_written": 0, "shards_kept": 3}
    assert "a new text" not in _ids(encoded_set.layout).values()


def test_changed_pixels_encode_that_latent_only(encoded_set: "PictureSet", calls: "Calls") -> None:
    encoded_set.draw("1.png", "picture number 1", seed=99)
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(5, latents=1, texts=0).items()
    assert (calls.latents, calls.texts) == (1, 0)


def test_a_new_time_name_or_metadata_encodes_nothing(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    from PIL import Image, PngImagePlugin

    os.utime(encoded_set.data / "0.png", (1, 1))
    for suffix in (".png", ".txt"):
        old = encoded_set.data / f"1{suffix}"
        old.rename(encoded_set.data / f"renamed{suffix}")
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("parameters", "made by nobody")
    path = encoded_set.data / "2.png"
    Image.open(path).save(path, pnginfo=metadata)
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(5, latents=0, texts=0).items()
    assert (calls.latents, calls.texts) == (0, 0)


def test_an_added_picture_encodes_one_and_other_shards_keep_their_bytes(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    before = encoded_set.shard_bytes()
    encoded_set.draw("5.png", "a newcomer", seed=5)
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(6, latents=1, texts=1).items()
    assert _shards(report) == {"shards_written": 1, "shards_kept": 3}
    assert (calls.latents, calls.texts) == (1, 1)
    assert encoded_set.shard_bytes().items() >= before.items()


def test_a_removed_picture_encodes_nothing_and_is_not_trained_on(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    before = encoded_set.shard_bytes()
    (encoded_set.data / "1.png").unlink()
    report = encoded_set.cached()
    assert report.counts.items() >= _counts(4, latents=0, texts=0).items()
    assert (calls.latents, calls.texts) == (0, 0)
    assert encoded_set.shard_bytes() == before
    assert "picture number 1" not in _ids(encoded_set.layout).values()


def test_another_resolution_encodes_latents_only_and_both_live_side_by_side(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    before = encoded_set.shard_bytes()
    larger = BucketSettings(area=96, step=16, min=32, max=192)
    report = encoded_set.cached(bucket=larger)
    assert report.counts.items() >= _counts(5, latents=5, texts=0).items()
    assert (calls.latents, calls.texts) == (5, 0)
    assert encoded_set.shard_bytes().items() >= before.items()
    assert encoded_set.cached().counts["encoded_latents"] == 0


@pytest.mark.parametrize(
    ("part", "latents", "texts"),
    [("vae", 5, 0), ("text_encoder", 0, 5), ("unet", 0, 0), ("scheduler", 0, 0)],
)
def test_another_model_encodes_only_what_its_changed_part_touches(
    encoded_set: "PictureSet", tmp_path: Path, calls: "Calls", part: str, latents: int, texts: int
) -> None:
    model = _changed_model(encoded_set.model, tmp_path / "model", part)
    report = encoded_set.cached(model=ModelSettings(id=str(model)))
    assert report.counts.items() >= _counts(5, latents, texts).items()
    # A new text encoder also encodes the empty caption and two prompts.
    assert (calls.latents, calls.texts) == (latents, texts and texts + 3)


def _changed_model(model: Path, copy: Path, part: str) -> Path:
    """Copy a model with one weight of one part changed (for the scheduler: a setting)."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(model, copy)
    for path in (copy / part).glob("*.safetensors"):
        tensors = load_file(path)
        name = sorted(tensors)[0]
        tensors[name] += 0.25
        save_file(tensors, path)
    if part == "scheduler":
        path = copy / part / "scheduler_config.json"
        path.write_text(path.read_text().replace("epsilon", "v_prediction"))
    return copy


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": CacheSettings(shard_size=2, device="cpu", clip_skip=2)},
        {"sources": (Source(path="data", trigger="zwx"),)},
    ],
    ids=["clip_skip", "trigger"],
)
def test_another_clip_skip_or_trigger_encodes_texts_only(
    encoded_set: "PictureSet", calls: "Calls", changes: dict[str, Any]
) -> None:
    report = encoded_set.cached(**changes)
    assert report.counts.items() >= _counts(5, latents=0, texts=5).items()
    assert calls.latents == 0
    prefix = "zwx, " if "sources" in changes else ""
    assert f"{prefix}picture number 0" in _ids(encoded_set.layout).values()


def test_another_dtype_encodes_all(encoded_set: "PictureSet") -> None:
    settings = CacheSettings(shard_size=2, device="cpu", dtype="float32")
    report = encoded_set.cached(settings=settings)
    assert report.counts.items() >= _counts(5, latents=5, texts=5).items()


def test_repeats_and_weights_change_the_index_and_encode_nothing(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    layout = encoded_set.layout
    before = MappedCache.open(layout.cache_index, layout.shards)
    encoded_set.cached(sources=(Source(path="data", repeats=3, weight=0.5),))
    after = MappedCache.open(layout.cache_index, layout.shards)
    assert {(one.repeats, one.weight) for one in after.samples} == {(3, 0.5)}
    assert after.data_digest != before.data_digest
    assert (calls.latents, calls.texts) == (0, 0)


def test_two_works_share_one_cache(
    encoded_set: "PictureSet", tmp_path: Path, calls: "Calls"
) -> None:
    shared = encoded_set.layout.work / "cache"
    second = Layout(tmp_path / "second work", shared_cache=shared)
    second.manifest.parent.mkdir(parents=True)
    second.manifest.write_bytes(encoded_set.layout.manifest.read_bytes())
    stage = encoded_set.stage(layout=second)
    assert stage.plan() == []
    report = stage.finish([])
    assert report.counts.items() >= _counts(5, latents=0, texts=0).items()
    assert calls.latents == 0
    assert len(MappedCache.open(second.cache_index, second.shards).samples) == 5


def test_changed_and_missing_pictures_are_all_named_before_anything_is_encoded(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    encoded_set.validated()
    encoded_set.draw("0.png", "picture number 0", seed=77)
    (encoded_set.data / "3.png").unlink()
    with pytest.raises(DataError) as caught:
        encoded_set.stage().plan()
    assert caught.value.exit_code == 3
    assert "0.png (other pixels)" in caught.value.where
    assert "3.png (missing)" in caught.value.where
    assert caught.value.run[0] == Command("validate")
    assert (calls.latents, calls.texts) == (0, 0)


def test_a_picture_that_changes_during_the_run_is_not_encoded(encoded_set: "PictureSet") -> None:
    encoded_set.draw("new.png", "new", seed=50)
    stage = encoded_set.validated().stage()
    (unit,) = stage.plan()
    encoded_set.draw("new.png", "new", seed=51)
    before = encoded_set.shard_bytes()
    with pytest.raises(DataError, match=r"changed since"):
        stage.work(unit, lambda _: None)
    assert encoded_set.shard_bytes() == before


def test_captions_that_wait_stop_the_run(encoded_set: "PictureSet") -> None:
    manifest = encoded_set.layout.manifest
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    lines[0]["caption"] = None
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match="wait"):
        encoded_set.stage().plan()


def test_without_a_manifest_validate_is_asked_for(encoded_set: "PictureSet") -> None:
    encoded_set.layout.manifest.unlink()
    with pytest.raises(UsageError) as caught:
        encoded_set.stage().plan()
    assert caught.value.run[0] == Command("validate")


@pytest.mark.parametrize("negative", ["", "a red circle"])
def test_a_negative_prompt_may_equal_another_text(encoded_set: "PictureSet", negative: str) -> None:
    sample = SampleSettings(prompts=("a red circle",), negative=negative)
    encoded_set.cached(sample=sample)
    cache = MappedCache.open(encoded_set.layout.cache_index, encoded_set.layout.shards)
    twin = cache.empty_text if negative == "" else cache.prompts[0].embedding
    assert cache.negative.embedding.equal(twin)


def test_the_end_of_a_caption_that_is_cut_off_is_named(encoded_set: "PictureSet") -> None:
    words = " ".join(f"word{index % 10}" for index in range(60))
    encoded_set.draw("long.png", words, seed=8)
    for _ in range(2):
        (problem,) = encoded_set.cached().problems
        assert (problem.code, problem.path, problem.level) == (
            "caption-too-long",
            "long.png",
            "warning",
        )
        assert "word9'" in problem.message


def test_a_disk_without_room_is_found_before_the_start(
    encoded_set: "PictureSet", monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    encoded_set.draw("new.png", "new", seed=50)
    free = shutil.disk_usage(encoded_set.root)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(DiskFullError, match="MiB are free"):
        encoded_set.validated().stage().plan()


def test_a_disk_that_fills_up_leaves_nothing_half_written(
    encoded_set: "PictureSet", monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    encoded_set.draw("new.png", "new", seed=50)
    before = encoded_set.shard_bytes()
    stage = encoded_set.validated().stage()
    (unit,) = stage.plan()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError):
        stage.work(unit, lambda _: None)
    assert encoded_set.shard_bytes() == before


def test_a_step_that_the_vae_cannot_divide_is_refused(encoded_set: "PictureSet") -> None:
    stage = encoded_set.stage(bucket=BucketSettings(area=64, step=10, min=32, max=128))
    with pytest.raises(UsageError, match=r"bucket\.step is 10.*shrinks pictures by 4"):
        stage.plan()


def test_the_user_s_folder_is_left_alone(encoded_set: "PictureSet") -> None:
    before = {path: path.stat().st_mtime_ns for path in encoded_set.data.iterdir()}
    encoded_set.cached(settings=replace_settings(dtype="float32"))
    assert {path: path.stat().st_mtime_ns for path in encoded_set.data.iterdir()} == before


def replace_settings(**changes: Any) -> CacheSettings:
    return CacheSettings(shard_size=2, device="cpu").model_copy(update=changes)
