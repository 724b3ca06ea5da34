"""Every way a file says which side is up: followed once, pixel by pixel where nothing is lost."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from latentmill.datasets.images import LoadRules, Picture, load_picture

UNDO = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
ALL = pytest.mark.parametrize("orientation", range(1, 9))


def quadrants(width: int = 96, height: int = 64) -> Image.Image:
    """Red, green / blue, white blocks: no two orientations look the same."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, : width // 2] = (0, 0, 255)
    return Image.fromarray(pixels)


def stored_for(orientation: int, upright: Image.Image | None = None) -> Image.Image:
    """The pixels that a camera stores so that the tag turns them upright."""
    undo = UNDO[orientation]
    upright = upright or quadrants()
    return upright if undo is None else upright.transpose(undo)


def tag(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def encoded(image: Image.Image, format_name: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_name, **options)
    return stream.getvalue()


def load(path: Path, content: bytes) -> Picture:
    path.write_bytes(content)
    return load_picture(path, LoadRules())


def difference(picture: Picture) -> int:
    """The greatest difference to the upright blocks, away from their edges."""
    assert picture.image.size == (96, 64)
    found, meant = np.asarray(picture.image, int), np.asarray(quadrants(), int)
    blocks = np.s_[[*range(4, 28), *range(36, 60)]], np.s_[[*range(4, 44), *range(52, 92)]]
    return int(np.abs(found - meant)[np.ix_(*blocks)].max())


@ALL
@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_deflate"}),
    ],
)
def test_lossless_formats_are_turned_to_the_pixel(
    tmp_path: Path, orientation: int, format_name: str, options: dict[str, object]
) -> None:
    content = encoded(stored_for(orientation), format_name, exif=tag(orientation), **options)
    picture = load(tmp_path / "a", content)
    assert picture.image.tobytes() == quadrants().tobytes()
    assert picture.notes == (("turned-upright",) if orientation > 1 else ())


@ALL
def test_what_is_upright_already_is_not_turned_when_saved_and_read_again(
    tmp_path: Path, orientation: int
) -> None:
    content = encoded(stored_for(orientation), "PNG", exif=tag(orientation))
    again = encoded(load(tmp_path / "a", content).image, "PNG")
    assert load(tmp_path / "b", again).image.tobytes() == quadrants().tobytes()


@ALL
def test_the_box_of_an_avif_turns_it_and_its_exif_does_not_a_second_time(
    tmp_path: Path, orientation: int
) -> None:
    content = encoded(
        stored_for(orientation),
        "AVIF",
        exif=tag(orientation) + b"\0" * 4,
        quality=100,
        subsampling="4:4:4",
    )
    assert (b"irot" in content or b"imir" in content) == (orientation > 1)
    assert difference(load(tmp_path / "a", content)) <= 4


def test_the_exif_of_an_avif_alone_turns_nothing(tmp_path: Path) -> None:
    """As the format demands: only its boxes turn."""
    exif = Image.Exif()
    exif[0x0103] = 6  # Another tag of the same form: Pillow writes no orientation here.
    content = encoded(quadrants(), "AVIF", exif=exif.tobytes(), quality=100, subsampling="4:4:4")
    assert content.count(b"\x01\x03\x00\x03") == 1
    picture = load(tmp_path / "a", content.replace(b"\x01\x03\x00\x03", b"\x01\x12\x00\x03"))
    assert difference(picture) <= 4
    assert picture.notes == ()


@ALL
@pytest.mark.parametrize("name", ["a.heic", "a.HIF", "a.jpg"])
def test_heic_is_turned_by_its_library_and_not_again(
    tmp_path: Path, orientation: int, name: str
) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    content = encoded(stored_for(orientation), "HEIF", exif=tag(orientation), quality=100)
    assert (b"irot" in content or b"imir" in content) == (orientation > 1)
    picture = load(tmp_path / name, content)
    assert difference(picture) <= 12
    assert picture.format == "HEIF"
    assert picture.notes == (("name-does-not-match",) if name == "a.jpg" else ())


def test_the_exif_of_a_heic_alone_turns_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    content = encoded(quadrants(), "HEIF", exif=tag(1), quality=100)
    assert content.count(tag(1)) == 1
    assert difference(load(tmp_path / "a", content.replace(tag(1), tag(6)))) <= 12


@ALL
def test_jpeg_xl_is_turned_once(tmp_path: Path, orientation: int) -> None:
    pytest.importorskip("pillow_jxl")
    content = encoded(stored_for(orientation), "JXL", exif=tag(orientation), lossless=True)
    picture = load(tmp_path / "a.png", content)
    assert picture.image.tobytes() == quadrants().tobytes()


START = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08"
BROKEN = {
    "bytes as text": b"Exif\x00\x00b'Exif\\x00\\x00MM'",
    "zero divisor": START + b"\x00\x01\x01\x12\x00\x05\x00\x00\x00\x01\x00\x00\x00\x1a" + bytes(12),
    "text": START + b"\x00\x01\x01\x12\x00\x02\x00\x00\x00\x04six\x00" + bytes(4),
    "offset beyond the end": b"Exif\x00\x00MM\x00*\xff\xff\xff\xff",
    "cut in its header": b"Exif\x00\x00II",
    "cut in its table": START + b"\x00\x01\x01\x12",
    "endless count": START + b"\xff\xff\x01\x12\x00\x03\xff\xff\xff\xff\x00\x06\x00\x00",
    "nothing": b"Exif\x00\x00",
}


def test_a_doubled_exif_header_is_read_or_told(tmp_path: Path) -> None:
    content = with_exif(encoded(stored_for(6), "PNG"), "PNG", b"Exif\0\0Exif\0\0" + tag(6))
    picture = load(tmp_path / "a", content)
    turned = picture.image.tobytes() == quadrants().tobytes()
    assert picture.notes == (("turned-upright",) if turned else ("orientation-unreadable",))


@pytest.mark.parametrize("exif", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_costs_no_pixel(tmp_path: Path, format_name: str, exif: bytes) -> None:
    plain = encoded(quadrants(), format_name, quality=95)
    content = with_exif(plain, format_name, exif)
    picture, without = load(tmp_path / "a", content), load(tmp_path / "b", plain)
    assert picture.image.tobytes() == without.image.tobytes()
    assert set(picture.notes) <= {"orientation-unreadable"}


def with_exif(content: bytes, format_name: str, exif: bytes) -> bytes:
    """Put a block of EXIF into a file as it stands, however broken it is."""
    if format_name == "JPEG":
        return content[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + content[2:]
    if format_name == "PNG":
        body = b"eXIf" + exif.removeprefix(b"Exif\x00\x00")
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        return content[:33] + chunk + content[33:]
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes([8, 0, 0, 0, 95, 0, 0, 63, 0, 0])
    padded = exif + b"\0" * (len(exif) % 2)
    body = b"WEBP" + canvas + content[12:] + b"EXIF" + struct.pack("<I", len(exif)) + padded
    return b"RIFF" + struct.pack("<I", len(body)) + body
