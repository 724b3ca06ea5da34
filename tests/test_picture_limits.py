"""A small file that declares much is refused from what it declares, whatever its format."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from latentmill.datasets.images import LoadRules, Picture, PictureError, load_picture

SIDE = 60_000


def reject_of(path: Path, content: bytes) -> PictureError:
    path.write_bytes(content)
    with pytest.raises(PictureError) as caught:
        load_picture(path, LoadRules())
    return caught.value


def load(path: Path, content: bytes, animated: str = "reject") -> Picture:
    path.write_bytes(content)
    return load_picture(path, LoadRules(animated=animated))


def small(format_name: str, mode: str = "RGB", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (16, 16)).save(stream, format_name, **options)
    return stream.getvalue()


def patched(content: bytes, at: int, form: str, *values: int) -> bytes:
    data = bytearray(content)
    struct.pack_into(form, data, at, *values)
    return bytes(data)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(*chunks: bytes, side: int = 16) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


def tiff(compression: str | None, tags: dict[int, int]) -> bytes:
    data = bytearray(small("TIFF", compression=compression))
    table = struct.unpack_from("<I", data, 4)[0]
    for entry in range(struct.unpack_from("<H", data, table)[0]):
        at = table + 2 + 12 * entry
        tag = struct.unpack_from("<H", data, at)[0]
        if tag in tags:
            struct.pack_into("<HHII", data, at, tag, 4, 1, tags[tag])
    return bytes(data)


def webp_canvas(width: int, height: int) -> bytes:
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + canvas + small("WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def huge() -> dict[str, bytes]:
    jpeg, gif, bmp, jp2, avif = (small(name) for name in ("JPEG", "GIF", "BMP", "JPEG2000", "AVIF"))
    siz = jp2.index(b"\xff\x51")
    wide = patched(
        patched(jp2, jp2.index(b"ihdr") + 4, ">II", SIDE, SIDE), siz + 6, ">II", SIDE, SIDE
    )
    tga = struct.pack("<BBBHHBHHHHBB", 0, 0, 10, 0, 0, 0, 0, 0, SIDE, SIDE, 24, 0)
    lossless = small("WEBP", lossless=True)
    sides = {256: SIDE, 257: SIDE, 278: SIDE}
    return {
        "png": png(side=SIDE),
        "jpeg": patched(jpeg, jpeg.index(b"\xff\xc0") + 5, ">HH", SIDE, SIDE),
        "gif": patched(gif, 6, "<HH", SIDE, SIDE),
        "gif frame": patched(gif, gif.index(b",\0\0\0\0") + 5, "<HH", SIDE, SIDE),
        "bmp": patched(bmp, 18, "<ii", SIDE, SIDE),
        "bmp top down": patched(bmp, 18, "<ii", SIDE, -SIDE),
        "tiff": tiff(None, sides),
        "tiff lzw": tiff("tiff_lzw", sides),
        "tiff deflate": tiff("tiff_deflate", sides),
        "tiff jpeg": tiff("jpeg", sides),
        "webp": patched(lossless, lossless.index(b"VP8L") + 9, "<I", 16383 | 16383 << 14),
        "webp canvas": webp_canvas(1 << 24, 256),
        "avif": patched(avif, avif.index(b"ispe") + 8, ">II", 16_000, 16_000),
        "jpeg 2000": wide,
        "jpeg 2000 stream": wide[siz - 2 :],
        "ppm": b"P6\n%d %d\n255\nxxx" % (SIDE, SIDE),
        "pgm 16": b"P5\n%d %d\n65535\nxxx" % (SIDE, SIDE),
        "pbm": b"P4\n%d %d\nxxx" % (SIDE, SIDE),
        "qoi": b"qoif" + struct.pack(">IIBB", SIDE, SIDE, 3, 0) + b"\xfe" * 64,
        "tga": tga + b"\xffabc",
    }


@pytest.mark.parametrize("content", huge().values(), ids=huge())
def test_what_declares_too_many_pixels_is_refused(tmp_path: Path, content: bytes) -> None:
    error = reject_of(tmp_path / "a.tga", content)
    assert error.code == "too-many-pixels"
    assert "megapixels" in error.message


@pytest.mark.parametrize("tags", [{279: 0xFFFFFFF0}, {278: 1}, {273: 0xFFFFFF00}, {258: 2**31}])
def test_strips_that_lie_are_a_reject(tmp_path: Path, tags: dict[int, int]) -> None:
    error = reject_of(tmp_path / "a.tif", tiff("tiff_deflate", tags))
    assert error.code in {"decoder-error", "truncated"}


BOMB = zlib.compress(bytes(80 << 20), 9)
SMALL_BOMB = zlib.compress(bytes(20 << 20), 9)
PIXELS = chunk(b"IDAT", zlib.compress(bytes(16 * 49)))


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b"zTXt", b"k\0\0" + BOMB), PIXELS],
        [chunk(b"iTXt", b"k\0\1\0\0\0" + BOMB), PIXELS],
        [chunk(b"iCCP", b"k\0\0" + BOMB), PIXELS],
        [PIXELS, chunk(b"zTXt", b"k\0\0" + BOMB)],
        [*(chunk(b"zTXt", b"%d\0\0" % one + SMALL_BOMB) for one in range(5)), PIXELS],
    ],
    ids=["zTXt", "iTXt", "iCCP", "after the pixels", "many"],
)
def test_metadata_that_unpacks_to_too_much_is_refused(tmp_path: Path, chunks: list[bytes]) -> None:
    assert reject_of(tmp_path / "a.png", png(*chunks)).code == "metadata-too-large"


def test_pixels_beyond_the_declared_ones_are_not_unpacked(tmp_path: Path) -> None:
    assert load(tmp_path / "a.png", png(chunk(b"IDAT", BOMB))).image.size == (16, 16)


@pytest.mark.parametrize("format_name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_many_frames_are_not_counted(
    tmp_path: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [Image.new("RGB", (16, 16), (one, 255 - one, 9)) for one in range(60)]
    stream = io.BytesIO()
    frames[0].save(stream, format_name, save_all=True, append_images=frames[1:])
    content = stream.getvalue()
    damaged = content[: len(content) * 3 // 4] if format_name in ("GIF", "TIFF") else content
    assert reject_of(tmp_path / "a", content).code == "animated"
    first = load(tmp_path / "a", damaged, animated="first-frame")
    assert "first-frame" in first.notes
    assert np.abs(np.subtract(first.image.getpixel((8, 8)), (0, 255, 9))).max() <= 9


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (small("ICO"), "a set of icons (ICO)"),
        (small("ICNS"), "a set of icons (ICNS)"),
        (b"8BPS\0\1" + bytes(30), "a Photoshop document"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "a PostScript document"),
        (b'\xef\xbb\xbf<?xml version="1.0"?><svg/>', "XML or SVG text"),
        (b'\n<svg width="99999" height="99999"/>', "SVG text"),
        (b"\0\0\0\x18ftypmp42", "a film"),
        (b"Rar!\x1a\7\0", "a RAR archive"),
    ],
)
def test_other_content_under_a_picture_name_is_named(
    tmp_path: Path, content: bytes, said: str
) -> None:
    error = reject_of(tmp_path / "a.png", content)
    assert (error.code, said in error.message) == ("not-a-picture", True)


def test_tga_is_taken_at_its_word_but_not_under_other_names(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (9, 120, 230)).save(stream, "TGA", compression="tga_rle")
    picture = load(tmp_path / "a.TGA", stream.getvalue())
    assert (picture.format, picture.image.getpixel((3, 3))) == ("TGA", (9, 120, 230))
    assert reject_of(tmp_path / "a.png", stream.getvalue()).code == "not-a-picture"
