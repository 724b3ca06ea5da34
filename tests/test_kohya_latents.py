"""kohya's cached latents: taken where they fit, refused by name where they do not."""

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch

from latentmill.cache.kohya_latents import KohyaError, LatentShape, kohya_file, read_kohya
from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Report
from latentmill.stages.settings import BucketSettings, CacheSettings, ModelSettings, Source
from latentmill.stages.upkeep.import_kohya import ImportPlan, import_kohya

if TYPE_CHECKING:
    from conftest import Calls, PictureSet

pytestmark = pytest.mark.slow

SHAPE = LatentShape(4, 16, 12)


def _values(seed: int = 0, shape: LatentShape = SHAPE) -> "numpy.ndarray[Any, Any]":
    generator = numpy.random.default_rng(seed)
    size = (shape.channels, shape.height, shape.width)
    return generator.standard_normal(size).astype(numpy.float32)


def _write(path: Path, suffix: str = "", **changes: Any) -> Path:
    """Write what sd-scripts writes: latents, original size, crop, each with the size's ending."""
    arrays = {
        "latents": _values(),
        "original_size": numpy.array([100, 140]),
        "crop_ltrb": numpy.array([0, 1, 100, 139]),
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name + suffix: value for name, value in arrays.items() if value is not None}
    numpy.savez(path, **kept)
    return path


def test_old_and_new_files_are_read_alike(tmp_path: Path) -> None:
    old = read_kohya(_write(tmp_path / "a.npz"), SHAPE)
    new = read_kohya(_write(tmp_path / "b.npz", suffix="_16x12"), SHAPE)
    assert old.digest == new.digest
    assert torch.equal(old.draw, torch.from_numpy(_values()))
    assert (old.original_size, old.crop, old.flipped) == ([100, 140], [0, 1, 100, 139], None)
    both = read_kohya(_write(tmp_path / "c.npz", latents_flipped=_values(1)), SHAPE)
    assert both.flipped is not None
    assert torch.equal(both.flipped, torch.from_numpy(_values(1)))
    assert both.digest != old.digest


def test_a_file_of_several_sizes_gives_the_wanted_one(tmp_path: Path) -> None:
    other = LatentShape(4, 8, 24)
    arrays = {}
    for shape in (SHAPE, other):
        suffix = f"_{shape.height}x{shape.width}"
        arrays[f"latents{suffix}"] = _values(3, shape)
        arrays[f"original_size{suffix}"] = numpy.array([1, 2])
        arrays[f"crop_ltrb{suffix}"] = numpy.array([0, 0, 1, 2])
    numpy.savez(tmp_path / "a.npz", **arrays)
    assert read_kohya(tmp_path / "a.npz", other).draw.shape == (4, 8, 24)
    with pytest.raises(KohyaError, match=r"no latent of 9x9 cells.*16x12, 8x24"):
        read_kohya(tmp_path / "a.npz", LatentShape(4, 9, 9))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"latents": _values()[:3]}, "expected"),
        ({"latents": _values()[:, :8]}, "expected"),
        ({"latents": _values().astype(numpy.int32)}, "int32"),
        ({"latents": _values() * numpy.nan}, "not finite"),
        ({"latents": None}, "found .*none"),
        ({"latents": numpy.zeros((4, 640, 480), numpy.float32)}, "bytes; expected"),
        ({"original_size": None}, "cannot be read"),
        ({"original_size": numpy.array([1.0, 2, 3])}, "expected 2 numbers"),
        ({"crop_ltrb": numpy.array([numpy.nan] * 4)}, "cannot be read"),
        ({"latents_flipped": _values()[:, :8]}, "latents_flipped is"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(KohyaError, match=said):
        read_kohya(_write(tmp_path / "a.npz", **changes), SHAPE)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (trap,)

    objects = numpy.array([Trap()], dtype=object)
    _write(tmp_path / "a.npz", latents=objects)
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(KohyaError):
            read_kohya(tmp_path / name, SHAPE)
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 rubbish", b"<html>"])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(KohyaError, match="cannot be read"):
        read_kohya(tmp_path / "a.npz", SHAPE)


def test_any_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    content = _write(tmp_path / "a.npz").read_bytes()
    for size in range(0, len(content), 97):
        (tmp_path / "a.npz").write_bytes(content[:size])
        with pytest.raises(KohyaError):
            read_kohya(tmp_path / "a.npz", SHAPE)


def test_files_are_found_by_name_as_kohya_does(tmp_path: Path) -> None:
    new = _write(tmp_path / "sub" / "a.b_0080x0070_sd.npz")
    assert kohya_file(tmp_path, "sub/a.b.png", 80, 70) == new
    assert kohya_file(tmp_path, "sub/a.b.png", 70, 80) is None
    assert kohya_file(tmp_path, "sub/a.png", 80, 70) is None
    old = _write(tmp_path / "sub" / "a.b.npz")
    assert kohya_file(tmp_path, "sub/a.b.png", 80, 70) == old


def _import(pictures: "PictureSet", folder: Path) -> Report:
    plan = ImportPlan(
        pictures.layout,
        (Source(path=str(pictures.data)),),
        BucketSettings(area=64, step=16, min=32, max=128),
        ModelSettings(id=str(pictures.model)),
    )
    return import_kohya(plan, folder)


def _npz(pictures: "PictureSet", name: str, **changes: Any) -> Path:
    """The file of picture `name` (80x70, bucket 64x64) with other values than our encoder's."""
    arrays = {
        "latents": _values(7, LatentShape(4, 16, 16)),
        "original_size": numpy.array([80, 70]),
        "crop_ltrb": numpy.array([0, 0, 64, 64]),
        **changes,
    }
    return _write(pictures.root / "npz" / name, **arrays)


def test_fitting_latents_take_the_place_of_encoding(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    shutil.rmtree(encoded_set.layout.shards)
    _npz(encoded_set, "0_0080x0070_sd.npz")
    _npz(encoded_set, "1.npz", latents_flipped=_values(8, LatentShape(4, 16, 16)))
    report = _import(encoded_set, encoded_set.root / "npz")
    assert report.counts == {"pictures": 5, "imported": 2, "not_taken": 0, "without_file": 3}
    cached = encoded_set.cached()
    assert (calls.latents, cached.counts["encoded_latents"]) == (3, 3)
    shutil.rmtree(encoded_set.root / "npz")
    assert encoded_set.cached().counts["shards_written"] == 0
    cache = MappedCache.open(encoded_set.layout.cache_index, encoded_set.layout.shards)
    details = {cache.details(one.id)["captions"][0]: one.id for one in cache.samples}
    stored = cache.read(details["picture number 0"])
    expected = torch.from_numpy(_values(7, LatentShape(4, 16, 16))).half()
    assert torch.equal(stored.latent_mean, expected)
    assert not stored.latent_std.any()
    assert stored.latent_std.shape == expected.shape
    note = cache.details(details["picture number 0"])
    assert (note["draws"], note["imported_from"]) == (1, "kohya")
    assert "draws" not in cache.details(details["picture number 4"])


def test_a_mirror_image_is_taken_where_the_file_has_one(encoded_set: "PictureSet") -> None:
    _npz(encoded_set, "0.npz", latents_flipped=_values(8, LatentShape(4, 16, 16)))
    _npz(encoded_set, "1.npz")
    _import(encoded_set, encoded_set.root / "npz")
    settings = CacheSettings(shard_size=2, device="cpu", flip=True)
    encoded_set.cached(settings=settings)
    cache = MappedCache.open(encoded_set.layout.cache_index, encoded_set.layout.shards)
    mirrored = {
        cache.details(one.id)["captions"][0]: cache.read(one.id).flipped_mean
        for one in cache.samples
    }
    assert mirrored["picture number 0"] is not None
    expected = torch.from_numpy(_values(8, LatentShape(4, 16, 16))).half()
    assert torch.equal(mirrored["picture number 0"], expected)
    assert mirrored["picture number 1"] is None
    assert mirrored["picture number 2"] is not None


def test_changed_pixels_are_encoded_and_a_new_choice_undoes_the_old(
    encoded_set: "PictureSet",
) -> None:
    _npz(encoded_set, "0.npz")
    _npz(encoded_set, "1.npz")
    _import(encoded_set, encoded_set.root / "npz")
    assert encoded_set.cached().counts["encoded_latents"] == 0
    encoded_set.draw("0.png", "picture number 0", seed=77)
    assert encoded_set.cached().counts["encoded_latents"] == 1
    (encoded_set.root / "npz" / "1.npz").rename(encoded_set.root / "npz" / "elsewhere.npz")
    report = _import(encoded_set, encoded_set.root / "npz")
    assert report.counts["imported"] == 1  # It fits the changed picture as well as the old one.
    assert [one.code for one in report.problems] == ["kohya-without-picture"]
    assert encoded_set.cached().counts["encoded_latents"] == 0


def test_every_misfit_is_named_and_the_others_are_taken(encoded_set: "PictureSet") -> None:
    folder = encoded_set.root / "npz"
    _npz(encoded_set, "0.npz", original_size=numpy.array([81, 70]))
    _npz(encoded_set, "1.npz", latents=_values(7, LatentShape(4, 12, 20)))
    _npz(encoded_set, "2.npz")
    (folder / "3.npz").write_bytes(b"half")
    report = _import(encoded_set, folder)
    assert report.counts == {"pictures": 5, "imported": 1, "not_taken": 3, "without_file": 1}
    messages = {one.path: one.message for one in report.problems}
    assert "of 81x70" in messages["0.png"]
    assert "expected (4, 16, 16)" in messages["1.png"]
    assert "cannot be read" in messages["3.png"]


def test_pictures_that_share_a_file_do_not_get_it(encoded_set: "PictureSet") -> None:
    """sd-scripts trains both on the latent of one."""
    for name in ("1.png", "1.x.png"):
        encoded_set.draw(name, "twin")
    lines = encoded_set.validated().layout.manifest.read_text().splitlines()
    text = "\n".join(lines).replace('"path": "1.x.png"', '"path": "1.jpg"') + "\n"
    encoded_set.layout.manifest.write_text(text)
    _npz(encoded_set, "1.npz")
    report = _import(encoded_set, encoded_set.root / "npz")
    assert {one.path for one in report.problems} == {"1.png", "1.jpg"}
    assert report.counts["imported"] == 0


def test_a_file_that_is_gone_before_it_is_in_a_shard_is_named(encoded_set: "PictureSet") -> None:
    path = _npz(encoded_set, "0.npz")
    _import(encoded_set, path.parent)
    path.unlink()
    with pytest.raises(DataError) as caught:
        encoded_set.cached()
    assert caught.value.where == str(path)
    assert caught.value.run == (Command("cache", ("import-kohya", "DIR")),)


def test_a_damaged_choice_names_itself(encoded_set: "PictureSet") -> None:
    _import(encoded_set, _npz(encoded_set, "0.npz").parent)
    path = encoded_set.layout.stage("cache") / "imported.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="imported latents is damaged") as caught:
        encoded_set.cached()
    assert caught.value.where == str(path)


def test_a_folder_without_latents_is_a_usage_error(encoded_set: "PictureSet") -> None:
    with pytest.raises(UsageError, match="no file of cached latents"):
        _import(encoded_set, encoded_set.data)
