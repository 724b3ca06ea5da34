import io
import os
import socket
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps

from latentmill.datasets.images import LoadRules, Picture, PictureError, load_picture, pixel_hash

RULES = LoadRules()
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def load(path: Path, **rules: object) -> Picture:
    return load_picture(path, LoadRules(**rules))  # type: ignore[arg-type]


def reject_of(path: Path, **rules: object) -> PictureError:
    with pytest.raises(PictureError) as caught:
        load(path, **rules)
    return caught.value


def quadrants(width: int = 48, height: int = 32) -> Image.Image:
    """Red, green / blue, white blocks: no two orientations look the same."""
    image = Image.new("RGB", (width, height), WHITE)
    image.paste(RED, (0, 0, width // 2, height // 2))
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    return image


def stored_for(orientation: int, upright: Image.Image) -> Image.Image:
    """Return the pixels that a camera stores so that the tag turns them upright."""
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    return upright if undo is None else upright.transpose(undo)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.jpg", {"quality": 100, "subsampling": 0}),
        ("a.png", {}),
        ("a.webp", {"lossless": True}),
        ("a.tif", {}),
        ("b.tif", {"compression": "tiff_lzw"}),
        ("a.avif", {"quality": 100, "subsampling": "4:4:4"}),
    ],
)
def test_every_exif_orientation_is_turned_once(
    tmp_path: Path, orientation: int, name: str, options: dict[str, object]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored_for(orientation, quadrants()).save(tmp_path / name, exif=exif, **options)
    picture = load(tmp_path / name)
    assert picture.image.size == (48, 32)
    assert picture.image.mode == "RGB"
    assert picture.image.getexif() == {}
    for point, colour in {(8, 8): RED, (40, 8): GREEN, (8, 24): BLUE, (40, 24): WHITE}.items():
        found = picture.image.getpixel(point)
        assert np.abs(np.subtract(found, colour)).max() <= 3, (point, found)


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\x00\x00Exif\x00\x00MM\x00*\x00\x00\x00\x08",
        b"Exif\x00\x00b'Exif'rubbish",
        b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x05\x00\x00\x00\x01\x00\x00",
        b"Exif\x00\x00MM\x00*\xff\xff\xff\xff",
        b"Exif\x00\x00II",
    ],
)
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.avif"])
def test_broken_exif_never_costs_the_picture(tmp_path: Path, name: str, exif: bytes) -> None:
    path = tmp_path / name
    try:
        quadrants().save(path, exif=exif)
    except (SyntaxError, struct.error, TypeError, ValueError):
        pytest.skip("Pillow refuses to write this block")
    assert load(path).image.size == (48, 32)


def test_an_orientation_that_does_not_exist_is_a_note(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 77
    quadrants().save(tmp_path / "a.png", exif=exif)
    assert load(tmp_path / "a.png").notes == ("orientation-unreadable",)


def save_ramp(path: Path, mode: str) -> None:
    ramp = np.arange(256, dtype=np.uint32).repeat(4).reshape(32, 32) * 257
    if mode == "F01":
        Image.fromarray((ramp / 65535).astype(np.float32)).save(path)
    elif mode == "F":
        Image.fromarray(ramp.astype(np.float32)).save(path)
    elif mode == "I;16B":
        big = Image.frombytes("I;16B", (32, 32), ramp.astype(">u2").tobytes())
        big.save(path)
    elif mode == "I":
        Image.fromarray(ramp.astype(np.int32)).save(path)
    else:
        Image.fromarray(ramp.astype(np.uint16)).save(path)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.png", "I;16"),
        ("a.tif", "I;16"),
        ("a.tif", "I;16B"),
        ("a.tif", "I"),
        ("a.tif", "F"),
        ("a.tif", "F01"),
    ],
)
def test_a_deep_grey_ramp_keeps_its_256_levels(tmp_path: Path, name: str, mode: str) -> None:
    save_ramp(tmp_path / name, mode)
    picture = load(tmp_path / name)
    levels = np.asarray(picture.image)[..., 0].ravel()
    assert levels.tolist() == np.arange(256).repeat(4).tolist()
    assert "depth-reduced" in picture.notes


def test_floats_of_any_other_range_are_stretched(tmp_path: Path) -> None:
    values = np.linspace(-3, 5, 64 * 64, dtype=np.float32).reshape(64, 64)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert load(tmp_path / "a.tif").image.getextrema() == ((0, 255),) * 3


def test_non_finite_pixels_are_a_reject(tmp_path: Path) -> None:
    Image.fromarray(np.full((64, 64), np.nan, dtype=np.float32)).save(tmp_path / "a.tif")
    assert reject_of(tmp_path / "a.tif").code == "decoder-error"


def test_a_palette_is_expanded_not_read_as_grey(tmp_path: Path) -> None:
    image = Image.new("P", (4, 2), 0)
    image.putpalette([*GREEN, *BLUE])
    image.paste(1, (2, 0, 4, 2))
    image.save(tmp_path / "a.png", bits=1)
    loaded = load(tmp_path / "a.png")
    assert [loaded.image.getpixel((x, 0)) for x in (0, 3)] == [GREEN, BLUE]
    assert loaded.notes == ()


def test_palette_transparency_shows_the_background(tmp_path: Path) -> None:
    image = Image.new("P", (4, 2), 0)
    image.putpalette([*GREEN, *BLUE])
    image.paste(1, (2, 0, 4, 2))
    image.save(tmp_path / "a.png", transparency=bytes([0, 255]))
    loaded = load(tmp_path / "a.png", background="#102030")
    assert [loaded.image.getpixel((x, 0)) for x in (0, 3)] == [(16, 32, 48), BLUE]
    assert loaded.notes == ("transparency-flattened",)


@pytest.mark.parametrize(
    ("mode", "colour", "transparency", "expected"),
    [
        ("RGB", RED, RED, WHITE),
        ("L", 7, 7, WHITE),
        ("1", 0, 0, WHITE),
        ("RGBA", (255, 0, 0, 0), None, WHITE),
        ("RGBA", (255, 0, 0, 51), None, (255, 204, 204)),
        ("LA", (0, 51), None, (204, 204, 204)),
    ],
)
def test_transparency_of_every_mode_is_composited(
    tmp_path: Path, mode: str, colour: object, transparency: object, expected: object
) -> None:
    options = {} if transparency is None else {"transparency": transparency}
    Image.new(mode, (4, 4), colour).save(tmp_path / "a.png", **options)  # type: ignore[arg-type]
    loaded = load(tmp_path / "a.png")
    assert loaded.image.getpixel((0, 0)) == expected
    assert loaded.notes == ("transparency-flattened",)


def test_opaque_alpha_is_no_finding(tmp_path: Path) -> None:
    quadrants().convert("RGBA").save(tmp_path / "a.png")
    loaded = load(tmp_path / "a.png")
    assert loaded.image.tobytes() == quadrants().tobytes()
    assert loaded.notes == ()


def test_cmyk_without_profile_is_converted_and_said(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    loaded = load(tmp_path / "a.jpg")
    assert np.abs(np.subtract(loaded.image.getpixel((8, 8)), RED)).max() <= 3
    assert loaded.notes == ("cmyk-uncertain",)


def wide_gamut_profile() -> bytes:
    """An RGB matrix profile like sRGB with its red and green columns swapped: unmistakable."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    entries = {bytes(data[at : at + 4]): at + 4 for at in range(132, 132 + 12 * 20, 12)}
    red, green = entries[b"rXYZ"], entries[b"gXYZ"]
    data[red : red + 8], data[green : green + 8] = (
        data[green : green + 8],
        data[red : red + 8],
    )
    return bytes(data).replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))


def test_another_rgb_profile_is_converted(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), RED).save(tmp_path / "a.png", icc_profile=wide_gamut_profile())
    loaded = load(tmp_path / "a.png")
    assert np.abs(np.subtract(loaded.image.getpixel((0, 0)), GREEN)).max() <= 2
    assert loaded.notes == ("profile-converted",)
    assert "icc_profile" not in loaded.image.info


def test_an_srgb_profile_changes_no_value(tmp_path: Path) -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    noise.save(tmp_path / "a.png", icc_profile=srgb)
    loaded = load(tmp_path / "a.png")
    assert loaded.image.tobytes() == noise.tobytes()
    assert loaded.notes == ()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "RGBA"])
def test_an_unreadable_profile_costs_a_note_only(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new(mode, (8, 8)).save(path, icc_profile=b"rubbish")
    assert "profile-unreadable" in load(path).notes


def test_an_rgb_profile_on_a_grey_picture_works(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 90).save(tmp_path / "a.png", icc_profile=wide_gamut_profile())
    grey = load(tmp_path / "a.png").image.getpixel((0, 0))
    assert np.abs(np.subtract(grey, (90, 90, 90))).max() <= 1


def test_lab_becomes_srgb(tmp_path: Path) -> None:
    Image.new("LAB", (8, 8), (255, 128, 128)).save(tmp_path / "a.tif")
    assert min(load(tmp_path / "a.tif").image.getpixel((0, 0))) >= 250


def test_an_infinite_limit_of_pixels_is_no_limit(tmp_path: Path) -> None:
    quadrants().save(tmp_path / "a.png")
    assert load(tmp_path / "a.png", max_megapixels=float("inf")).image.size == (48, 32)


def test_a_jpeg_that_no_decoder_takes_is_rejected_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff" + bytes(100))
    error = reject_of(tmp_path / "a.jpg")
    assert error.code == "decoder-error"
    assert error.message == "JPEG that cannot be decoded (its decoder does not recognise it)"


def test_mpo_is_a_jpeg_with_its_first_frame(tmp_path: Path) -> None:
    second = Image.new("RGB", (48, 32), BLUE)
    quadrants().save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second])
    loaded = load(tmp_path / "a.jpg")
    assert loaded.format == "JPEG"
    assert loaded.notes == ()
    assert np.abs(np.subtract(loaded.image.getpixel((8, 8)), RED)).max() <= 3


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.tif", "a.avif"])
def test_animated_files_are_rejected_unless_the_first_frame_is_asked(
    tmp_path: Path, name: str
) -> None:
    second = ImageOps.mirror(quadrants())
    quadrants().save(tmp_path / name, save_all=True, append_images=[second])
    assert reject_of(tmp_path / name).code == "animated"
    loaded = load(tmp_path / name, animated="first-frame")
    assert "first-frame" in loaded.notes
    assert np.abs(np.subtract(loaded.image.getpixel((8, 8)), RED)).max() <= 8


def test_the_content_decides_and_a_wrong_name_is_a_note(tmp_path: Path) -> None:
    quadrants().save(tmp_path / "a.jpg", "PNG")
    loaded = load(tmp_path / "a.jpg")
    assert (loaded.format, loaded.notes) == ("PNG", ("name-does-not-match",))


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert reject_of(tmp_path / "a.png").code == "unreadable"


def test_what_is_no_file_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "device.png").symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path)  # The path of a socket has at most 107 bytes.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.png")
    kinds = {"pipe.png": "named pipe", "device.png": "device", "socket.png": "socket"}
    for name, kind in kinds.items():
        error = reject_of(tmp_path / name)
        assert error.code == "not-a-file"
        assert kind in error.message


def test_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "dead.png").symlink_to("gone.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "folder.png").mkdir()
    dead, loop = reject_of(tmp_path / "dead.png"), reject_of(tmp_path / "loop.png")
    assert (dead.code, dead.message) == ("unreadable", "A link whose target is missing")
    assert (loop.code, "symbolic links" in loop.message) == ("unreadable", True)
    assert reject_of(tmp_path / "folder.png").code == "unreadable"


def test_a_file_without_permission_is_told(tmp_path: Path) -> None:
    quadrants().save(tmp_path / "a.png")
    (tmp_path / "a.png").chmod(0)
    if os.access(tmp_path / "a.png", os.R_OK):
        pytest.skip("this user may read everything")
    assert "Permission denied" in reject_of(tmp_path / "a.png").message


HEIC_HEAD = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("a.png", b"", "zero-bytes", "0 bytes"),
        ("a.png", b"<!DOCTYPE html><html>404</html>", "not-a-picture", "web page"),
        ("a.jpg", b"version https://git-lfs.github.com/spec/v1\n", "not-a-picture", "git lfs pull"),
        ("a.jpg", bytes(4096), "not-a-picture", "zeros only"),
        ("a.jpg", b"just some text", "not-a-picture", "not a known picture format"),
        ("a.jxl", b"\xff\x0a\x00\x00", "unsupported-format", "JPEG XL"),
        ("a.cr2", b"II*\x00\x10\x00\x00\x00CR\x02\x00", "unsupported-format", "raw"),
        ("a.webp", b"RIFF\x10\x00\x00\x00WEBPVP8 ", "decoder-error", "WEBP"),
    ],
)
def test_what_is_no_usable_picture_is_named(
    tmp_path: Path,
    name: str,
    content: bytes,
    code: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pillow_jxl", None)
    (tmp_path / name).write_bytes(content)
    error = reject_of(tmp_path / name)
    assert error.code == code
    assert said in str(error)
    assert error.fix


def test_heic_without_its_decoder_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    (tmp_path / "a.jpeg").write_bytes(HEIC_HEAD)
    error = reject_of(tmp_path / "a.jpeg")
    assert error.code == "unsupported-format"
    assert "latentmill[heif]" in error.fix
    assert "HEIC" in error.message


def test_heic_is_read_when_its_decoder_is_there(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    quadrants(64, 64).save(tmp_path / "a.heic", quality=100)
    loaded = load(tmp_path / "a.heic")
    assert loaded.image.size == (64, 64)
    assert np.abs(np.subtract(loaded.image.getpixel((8, 8)), RED)).max() <= 12


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.bmp", "a.gif", "a.avif"])
def test_a_cut_file_is_rejected(tmp_path: Path, name: str) -> None:
    noise = Image.effect_noise((128, 128), 90).convert("RGB")
    noise.save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    assert reject_of(tmp_path / name).code in {"truncated", "decoder-error"}


def png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("side", [20_000, 100_000])
def test_a_bomb_is_refused_from_its_header(tmp_path: Path, side: int) -> None:
    (tmp_path / "a.png").write_bytes(png_header(side, side) + b"\x00\x00\x00\x08IDAT" + bytes(12))
    error = reject_of(tmp_path / "a.png")
    assert error.code == "too-many-pixels"
    assert "max_megapixels" in error.message


def test_the_pixel_limit_is_ours_in_both_directions(tmp_path: Path) -> None:
    quadrants(100, 100).save(tmp_path / "a.png")
    assert reject_of(tmp_path / "a.png", max_megapixels=0.009).code == "too-many-pixels"
    before = Image.MAX_IMAGE_PIXELS
    assert load(tmp_path / "a.png", max_megapixels=0.01).image.size == (100, 100)
    assert before == Image.MAX_IMAGE_PIXELS


def test_big_text_chunks_do_not_cost_the_picture(tmp_path: Path) -> None:
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("workflow", "x" * 3_000_000, zip=True)
    quadrants().save(tmp_path / "a.png", pnginfo=text)
    assert load(tmp_path / "a.png").image.size == (48, 32)


def test_no_warning_leaks(tmp_path: Path) -> None:
    image = Image.new("P", (4, 2), 0)
    image.save(tmp_path / "a.png", transparency=bytes([0, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "a.png")


def test_equal_pixels_have_an_equal_hash_in_every_format(tmp_path: Path) -> None:
    hashes = set()
    for name in ("a.png", "a.bmp", "a.tif"):
        quadrants().save(tmp_path / name)
        hashes.add(pixel_hash(load(tmp_path / name).image))
    assert hashes == {pixel_hash(quadrants())}
    assert pixel_hash(quadrants(48, 32)) != pixel_hash(quadrants(32, 48))


def encoded(name: str) -> bytes:
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    quadrants().save(stream, name, exif=exif)
    return stream.getvalue()


SEEDS = {name: encoded(name) for name in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF")}


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(sorted(SEEDS)),
    keep=st.floats(0, 1),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=6),
)
def test_whatever_a_damaged_file_raises_is_a_reject(
    tmp_path: Path, name: str, keep: float, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(SEEDS[name])
    for at, mask in flips:
        content[at % len(content)] ^= mask
    if keep < 0.7:
        del content[int(len(content) * keep / 0.7) :]
    path = tmp_path / "fuzzed.png"
    path.write_bytes(content)
    try:
        picture = load_picture(path, RULES)
    except PictureError as error:
        assert error.code
        assert error.message
        assert error.fix
    else:
        assert picture.image.mode == "RGB"
