"""What `--fix` writes, where the manifest then points, and what stays as it is."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from latentmill.datasets.errors import DiskFullError
from latentmill.datasets.images import LoadRules, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record, Report, read_manifest
from latentmill.datasets.sources import record_id
from latentmill.pipeline import main
from latentmill.stages.checking import decoding
from latentmill.stages.checking.copies import CopyOrder, write_copy
from latentmill.stages.settings import Source, ValidateSettings
from latentmill.stages.validate import Validate

GBK = "1girl, 红色连衣裙, 长发, 微笑, 户外"


def noise(seed: int = 0, size: tuple[int, int] = (80, 72)) -> Image.Image:
    bands = [Image.effect_noise(size, 20 + 3 * seed + band) for band in range(3)]
    return Image.merge("RGB", bands)


def turned(path: Path, seed: int = 0) -> None:
    """A JPEG that lies on its side and says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "at home"
    noise(seed).save(path, quality=95, exif=exif)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A sound picture, one turned by EXIF, and captions."""
    folder = tmp_path / "data"
    folder.mkdir()
    noise(1).save(folder / "sound.png")
    (folder / "sound.txt").write_bytes(b"a sound picture\n")
    turned(folder / "turned.jpg", 2)
    (folder / "turned.txt").write_bytes(b"a turned picture")
    return folder


def stage_for(data: Path, **settings: object) -> Validate:
    values = {"fix": "needed", "max_rejects": 9, "fail_on": (), **settings}
    sources = (Source(path=str(data)),)
    return Validate(Layout(data.parent / "work"), sources, ValidateSettings(**values))  # type: ignore[arg-type]


def run(stage: Validate) -> Report:
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])


def records(stage: Validate) -> dict[str, Record]:
    return {record.path: record for record in read_manifest(stage.layout.manifest)}


def fixed(data: Path) -> Path:
    return data.parent / "work" / "validate" / "fixed"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def state(folder: Path) -> list[tuple[str, bytes, int, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(f), f.read_bytes(), f.stat().st_mtime_ns, f.stat().st_ino) for f in files]


def test_a_turned_picture_gets_an_upright_copy_with_its_caption(data: Path) -> None:
    stage = stage_for(data)
    report = run(stage)
    stem = f"{record_id('turned.jpg')}-turned"
    assert names(fixed(data)) == [f"{stem}.png", f"{stem}.txt"]
    copy = Image.open(fixed(data) / f"{stem}.png")
    assert (copy.format, copy.mode, copy.size) == ("PNG", "RGB", (72, 80))
    assert (copy.getexif(), copy.info) == ({}, {})
    assert copy.tobytes() == load_picture(data / "turned.jpg", LoadRules()).image.tobytes()
    assert (fixed(data) / f"{stem}.txt").read_bytes() == b"a turned picture"
    assert report.counts["repaired"] == 1
    record = records(stage)["turned.jpg"]
    assert record.file == str((fixed(data) / f"{stem}.png").absolute())
    assert (record.format, record.width, record.height) == ("PNG", 72, 80)
    status = Path(record.file).stat()
    assert (record.bytes, record.modified_ns) == (status.st_size, status.st_mtime_ns)
    assert records(stage)["sound.png"].file == str(data / "sound.png")


def test_pixels_are_the_same_with_and_without_repair(data: Path) -> None:
    noise(3).convert("L").save(data / "deep.png")
    Image.new("I;16", (80, 72), 40000).save(data / "flat.png")
    grey = Image.effect_noise((80, 72), 60).convert("I").point(lambda level: level * 257)
    grey.convert("I;16").save(data / "deep.png")
    clear = noise(4).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((80, 72)))
    clear.save(data / "clear.webp", lossless=True)
    noise(5).convert("CMYK").save(data / "print.tif")
    noise(6).convert("LAB").save(data / "lab.tif")
    noise(7).save(data / "film.jpg", "MPO", save_all=True, append_images=[noise(8)])
    noise(9).save(data / "liar.png", "JPEG")
    stage = stage_for(data)
    run(stage_for(data, fix="no"))
    before = {path: record.pixels for path, record in records(stage).items()}
    report = run(stage)
    assert {path: record.pixels for path, record in records(stage).items()} == before
    for record in records(stage).values():
        image = load_picture(Path(record.file), LoadRules()).image
        assert pixel_hash(image) == record.pixels
    copied = {path for path, record in records(stage).items() if "fixed" in record.file}
    assert copied == {"clear.webp", "deep.png", "film.jpg", "lab.tif", "liar.png", "turned.jpg"}
    assert report.counts["repaired"] == 6
    assert report.counts["found"] == report.counts["usable"] + report.counts["rejected"] == 9


def test_a_jpeg_whose_wrapping_is_at_fault_keeps_its_coded_data(data: Path) -> None:
    noise(7).save(data / "film.jpg", "MPO", save_all=True, append_images=[noise(8)])
    noise(9).save(data / "liar.png", "JPEG")
    stage = stage_for(data)
    run(stage)
    for path in ("film.jpg", "liar.png"):
        record = records(stage)[path]
        assert record.file.endswith(".jpg")
        assert Path(record.file).stat().st_size <= (data / path).stat().st_size
        assert Image.open(record.file).format == "JPEG"


@pytest.mark.parametrize("fix", ["needed", "all"])
def test_running_twice_writes_nothing_again(data: Path, fix: str) -> None:
    (data / "sound.txt").write_bytes(GBK.encode("gbk"))
    stage = stage_for(data, fix=fix, encoding="gb18030")
    run(stage)
    before, manifest = state(fixed(data)), stage.layout.manifest.read_bytes()
    assert len(before) == 4
    assert stage.plan() == []
    assert run(stage).counts["decoded"] == 0
    assert state(fixed(data)) == before
    assert stage.layout.manifest.read_bytes() == manifest


def test_the_data_folder_is_untouched(data: Path) -> None:
    (data / "sound.txt").write_bytes(GBK.encode("gbk"))
    before, folder_time = state(data), data.stat().st_mtime_ns
    run(stage_for(data, fix="all", encoding="gb18030"))
    assert state(data) == before
    assert data.stat().st_mtime_ns == folder_time


def test_the_copy_is_no_link_into_the_data_folder(data: Path) -> None:
    stage = stage_for(data, fix="all")
    run(stage)
    copy = Path(records(stage)["sound.png"].file)
    assert copy.parent == fixed(data).absolute()
    assert not copy.is_symlink()
    assert copy.stat().st_nlink == 1
    assert copy.read_bytes() == (data / "sound.png").read_bytes()


def test_a_copy_that_was_damaged_or_removed_is_written_again(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    copy = Path(records(stage)["turned.jpg"].file)
    good = copy.read_bytes()
    copy.write_bytes(b"painted over")
    assert [item.found.path for unit in stage.plan() for item in unit.items] == ["turned.jpg"]
    run(stage)
    assert copy.read_bytes() == good
    copy.unlink()
    copy.with_suffix(".txt").write_bytes(b"edited")
    run(stage)
    assert copy.read_bytes() == good
    assert copy.with_suffix(".txt").read_bytes() == b"a turned picture"


def test_a_changed_original_is_repaired_anew(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    before = records(stage)["turned.jpg"]
    turned(data / "turned.jpg", 20)
    run(stage)
    after = records(stage)["turned.jpg"]
    assert after.file == before.file
    assert after.pixels != before.pixels
    assert pixel_hash(load_picture(Path(after.file), LoadRules()).image) == after.pixels


def test_an_interrupted_run_keeps_its_copies(data: Path) -> None:
    stage = stage_for(data)
    for unit in stage.plan():
        stage.work(unit, lambda _: None)
    (copy,) = fixed(data).iterdir()
    before = copy.stat()
    assert sum(len(unit.items) for unit in stage.plan()) == 0
    stage.finish([])
    assert copy.stat().st_ino == before.st_ino
    assert records(stage)["turned.jpg"].file == str(copy.absolute())


def test_files_of_removed_originals_leave_the_set_and_are_kept_aside(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    (fixed(data) / "mine.txt").write_bytes(b"a stranger's file stays")
    gone = [name for name in names(fixed(data)) if name.startswith("p")]
    (data / "turned.jpg").unlink()
    report = run(stage)
    assert names(fixed(data)) == ["mine.txt"]
    assert names(fixed(data).with_name("fixed-unused")) == gone
    assert list(records(stage)) == ["sound.png"]
    assert report.counts["repaired"] == 0


def test_switched_off_the_manifest_points_to_the_originals(data: Path) -> None:
    run(stage_for(data))
    kept = state(fixed(data))
    off = stage_for(data, fix="no")
    report = run(off)
    assert {record.file for record in records(off).values()} == {
        str(data / "sound.png"),
        str(data / "turned.jpg"),
    }
    assert report.counts["repaired"] == 0
    assert "turned-upright" in records(off)["turned.jpg"].codes
    assert report.exit_code == 0
    assert state(fixed(data)) == kept
    assert run(stage_for(data)).counts["decoded"] == 0


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        (b"\xef\xbb\xbfa cat", ["byte-order-mark"]),
        ("a cat".encode("utf-16"), ["encoding-utf-16"]),
        (b"a cat\r\n", ["line-ends"]),
        (b"\n a cat", ["blanks"]),
        (b"a \x07cat", ["caption-control-characters"]),
        (b"a\ncat", ["caption-multiline"]),
        (b"a\r\ncat", ["caption-multiline", "line-ends"]),
    ],
)
def test_a_caption_becomes_one_line_of_utf8_beside_its_picture(
    data: Path, content: bytes, reasons: list[str]
) -> None:
    (data / "turned.jpg").unlink()
    (data / "turned.txt").unlink()
    (data / "sound.txt").write_bytes(content)
    stage = stage_for(data)
    report = run(stage)
    stem = f"{record_id('sound.png')}-sound"
    text = "a, cat" if "caption-multiline" in reasons else "a cat"
    assert (fixed(data) / f"{stem}.txt").read_bytes() == text.encode()
    assert (fixed(data) / f"{stem}.png").read_bytes() == (data / "sound.png").read_bytes()
    assert report.counts["repaired"] == 1
    (repair,) = report.to_json()["facts"]["repairs"]
    assert (repair["path"], repair["file"]) == ("sound.txt", f"fixed/{stem}.txt")
    assert (list(repair["reasons"]), repair["after"]) == (reasons, text)


@pytest.mark.parametrize("content", [b"a cat", b"a cat\n", b"a cat \n\n", "une t\u00eate".encode()])
def test_a_plain_caption_needs_no_copy(data: Path, content: bytes) -> None:
    (data / "turned.jpg").unlink()
    (data / "turned.txt").unlink()
    (data / "sound.txt").write_bytes(content)
    assert run(stage_for(data)).counts["repaired"] == 0
    assert names(fixed(data)) == []


def test_a_likely_reading_is_repaired_and_told(data: Path) -> None:
    (data / "sound.txt").write_bytes(GBK.encode("gbk"))
    stage = stage_for(data, fail_on=("check",), target_side=64)
    report = run(stage)
    record = records(stage)["sound.png"]
    assert (record.checks, record.codes) == ((), ("encoding-guessed",))
    assert Path(record.file).with_suffix(".txt").read_bytes() == GBK.encode()
    assert (report.counts["unsure"], report.exit_code) == (0, 0)


@pytest.mark.parametrize("content", ["中".encode("gbk"), "a \ufffd cat".encode()])
def test_what_is_unsure_stays_as_it_is(data: Path, content: bytes) -> None:
    (data / "sound.txt").write_bytes(content)
    (data / "turned.txt").write_bytes(content)
    stage = stage_for(data)
    run(stage)
    assert names(fixed(data)) == [f"{record_id('turned.jpg')}-turned.png"]
    assert records(stage)["sound.png"].file == str(data / "sound.png")
    assert records(stage)["sound.png"].checks != ()


def test_all_makes_a_whole_set_of_pairs(data: Path) -> None:
    (data / "sub").mkdir()
    noise(30).save(data / "sub" / "sound.png")
    (data / "sub" / "sound.txt").write_bytes(b"another of the same name")
    (data / "bad.png").touch()
    stage = stage_for(data, fix="all")
    report = run(stage)
    stems = [Path(name).stem for name in names(fixed(data))]
    assert len(stems) == 6
    assert all(stems.count(stem) == 2 for stem in stems)
    for record in records(stage).values():
        assert Path(record.file).parent == fixed(data).absolute()
        assert Path(record.file).with_suffix(".txt").read_text("utf-8") == record.caption
    assert report.counts["repaired"] == 1
    assert run(stage_for(data)).counts["repaired"] == 1
    assert len(names(fixed(data))) == 2


def test_as_jpeg_the_hash_is_that_of_the_copy(data: Path) -> None:
    stage = stage_for(data, fix_format="jpeg")
    run(stage)
    record = records(stage)["turned.jpg"]
    assert (Path(record.file).suffix, record.format) == (".jpg", "JPEG")
    with Image.open(record.file) as copy:
        assert (copy.size, copy.getexif()) == ((72, 80), {})
        assert {part[1:3] for part in copy.layer} == {(1, 1)}
    assert record.pixels == pixel_hash(load_picture(Path(record.file), LoadRules()).image)
    assert run(stage).counts["decoded"] == 0
    lossless = stage_for(data)
    run(lossless)
    assert records(lossless)["turned.jpg"].file.endswith(".png")
    assert sum(name.endswith(".jpg") for name in names(fixed(data))) == 0


def test_other_rules_change_the_copy(data: Path) -> None:
    clear = noise(4).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((80, 72)))
    clear.save(data / "clear.png")
    stage = stage_for(data)
    run(stage)
    white = records(stage)["clear.png"].pixels
    dark = stage_for(data, background="#000000")
    run(dark)
    record = records(dark)["clear.png"]
    assert record.pixels != white
    assert record.pixels == pixel_hash(load_picture(Path(record.file), LoadRules()).image)


def test_a_picture_that_is_rejected_gets_no_copy(data: Path) -> None:
    noise(1, (80, 20)).save(data / "small.tif")
    run(stage_for(data))
    assert all("small" not in name for name in names(fixed(data)))
    run(stage_for(data, min_side=16))
    assert any("small" in name for name in names(fixed(data)))


def test_repairs_are_listed_with_before_and_after(data: Path) -> None:
    stage = stage_for(data)
    report = run(stage)
    (repair,) = json.loads(json.dumps(report.to_json()))["facts"]["repairs"]
    assert repair == {
        "id": record_id("turned.jpg"),
        "path": "turned.jpg",
        "file": f"fixed/{record_id('turned.jpg')}-turned.png",
        "reasons": ["turned-upright"],
        "before": "JPEG (RGB), 80 x 72 px",
        "after": "PNG (RGB), 72 x 80 px",
    }


def test_a_full_disk_leaves_no_half_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Image.Image.save

    def full(image: Image.Image, target: Any, *rest: Any, **options: Any) -> None:
        if not isinstance(target, Path):  # A hash, not a file.
            return save(image, target, *rest, **options)
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    picture = load_picture(data / "turned.jpg", LoadRules())
    with pytest.raises(OSError, match="No space"):
        write_copy(data / "turned.jpg", picture, CopyOrder(data / "fixed", "a", "png"), LoadRules())
    assert names(data / "fixed") == []


def test_a_full_disk_is_explained(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(decoding, "decode_apart", full)
    with pytest.raises(DiskFullError, match="the disk is full"):
        run(stage_for(data))


def test_what_does_not_fit_is_told_before_it_is_copied(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFullError, match="1 MiB are free"):
        run(stage_for(data, fix="all"))
    assert not any("sound" in name for name in names(fixed(data)))


def test_names_of_any_kind_get_safe_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    wild = ["a.b", "-x", "猫 🐈", os.fsdecode(b"\xff\xfe"), "a_b_c_d_e", "con", "x" * 200]
    for number, name in enumerate(wild):
        turned(data / f"{name}.jpg", number)
    stage = stage_for(data)
    assert run(stage).counts["repaired"] == len(wild)
    found = names(fixed(data))
    assert len(found) == len(wild)
    assert all(len(os.fsencode(name)) < 120 and "_" not in name for name in found)


@pytest.mark.slow
def test_a_cache_made_before_repair_is_used_after_it(
    data: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "sound.txt").write_bytes(b"\xef\xbb\xbfa sound picture\r\n")
    noise(7).save(data / "film.jpg", "MPO", save_all=True, append_images=[noise(8)])
    (data / "film.txt").write_bytes(b"a phone picture")
    flags = ["--data", str(data), "--work", str(data.parent / "work"), "--model", str(small_model)]
    for setting in ("bucket.area=64", "bucket.step=16", "bucket.min=32", "bucket.max=128"):
        flags += ["--set", setting]

    def counts(*command: str) -> dict[str, int]:
        assert main.run([*command, *flags, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out)["counts"])

    assert counts("validate")["repaired"] == 0
    assert counts("cache")["encoded_latents"] == 3
    assert counts("validate", "--fix")["repaired"] == 3
    (data / "turned.jpg").write_bytes((data / "turned.jpg").read_bytes())
    again = counts("cache")
    assert (again["samples"], again["encoded_latents"], again["encoded_texts"]) == (3, 0, 0)
    assert counts("validate")["repaired"] == 0
    assert counts("cache")["encoded_latents"] == 0
