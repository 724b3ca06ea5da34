"""The one transparent colour of a PNG, at every depth that PNG has."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from latentmill.datasets.images import LoadRules, load_picture

GREY, RGB = 0, 2


def png(depth: int, colour: int, pixels: list[list[int]], key: tuple[int, ...]) -> bytes:
    """A PNG of these samples, row by row, with `key` as its transparent colour."""
    samples = 1 if colour == GREY else 3
    bits = ["".join(f"{value:0{depth}b}" for value in row) for row in pixels]
    rows = b"".join(
        b"\0" + bytes(int(row[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(row), 8))
        for row in bits
    )
    head = struct.pack(">IIBBBBB", len(pixels[0]) // samples, len(pixels), depth, colour, 0, 0, 0)
    chunks = [
        (b"IHDR", head),
        (b"tRNS", struct.pack(f">{len(key)}H", *key)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_the_grey_that_is_transparent_shows_the_background(tmp_path: Path, depth: int) -> None:
    top = 2**depth - 1
    key = top // 3
    (tmp_path / "a.png").write_bytes(png(depth, GREY, [[key, top, key + 1]], (key,)))
    picture = load_picture(tmp_path / "a.png", LoadRules("#0000ff"))
    other = round((key + 1) * 255 / top)
    expected = [[[0, 0, 255], [255] * 3, [other] * 3]]
    assert np.asarray(picture.image).tolist() == expected
    assert "transparency-flattened" in picture.notes


@pytest.mark.parametrize("depth", [8, 16])
def test_the_colour_that_is_transparent_shows_the_background(tmp_path: Path, depth: int) -> None:
    step = 1 if depth == 8 else 257
    pixels = [[9 * step, 90 * step, 200 * step, 10 * step, 90 * step, 200 * step]]
    key = (9 * step, 90 * step, 200 * step)
    (tmp_path / "a.png").write_bytes(png(depth, RGB, pixels, key))
    picture = load_picture(tmp_path / "a.png", LoadRules("#ffffff"))
    assert np.asarray(picture.image).tolist() == [[[255, 255, 255], [10, 90, 200]]]
    assert "transparency-flattened" in picture.notes


def test_without_a_pixel_of_that_colour_nothing_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(16, GREY, [[0, 65535]], (7,)))
    assert load_picture(tmp_path / "a.png", LoadRules()).notes == ("depth-reduced",)
