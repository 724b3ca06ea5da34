"""Every mode, depth and profile becomes the right 8-bit sRGB value."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops, ImageCms

from latentmill.datasets.colour import scale_depth, to_srgb
from latentmill.datasets.images import LoadRules, Picture, PictureError, load_picture

WHITE = "#ffffff"
RED = (255, 0, 0)
# To XYZ under D50, row by row; from B. Lindbloom's tables of RGB working spaces.
MATRICES = {
    "Adobe RGB": [
        [0.60974, 0.20528, 0.14919],
        [0.31111, 0.62567, 0.06322],
        [0.01947, 0.06087, 0.74457],
    ],
    "ProPhoto": [[0.79767, 0.13519, 0.03135], [0.28804, 0.71187, 0.00009], [0.0, 0.0, 0.82521]],
    "Display P3": [
        [0.51512, 0.29198, 0.15710],
        [0.24120, 0.69225, 0.06657],
        [-0.00105, 0.04189, 0.78407],
    ],
}
SRGB = [[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]]
GAMMAS = {"Adobe RGB": 563 / 256, "ProPhoto": 1.8, "Display P3": 2.2}


def load(path: Path) -> Picture:
    return load_picture(path, LoadRules())


def distance(found: object, meant: object) -> int:
    return int(np.abs(np.subtract(found, meant, dtype=int)).max())  # type: ignore[call-overload]


# Depth


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I;16N"])
def test_every_byte_order_of_16_bits_keeps_its_levels(mode: str) -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    order = ">u2" if mode == "I;16B" else "<u2"
    image = Image.frombytes(mode, (16, 16), values.astype(order).tobytes())
    coloured = to_srgb(image, WHITE)
    assert np.asarray(coloured.image)[..., 1].ravel().tolist() == list(range(256))
    assert coloured.notes == ("depth-reduced",)


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("I", [0, 65535, 32768, 128], [0, 255, 128, 0]),
        ("I", [-100, 1, 100, 50], [0, 129, 255, 191]),
        ("I", [0, 1_000_000, 500_000, 250_000], [0, 255, 128, 64]),
        ("F", [0.0, 1.0, 0.5, 0.25], [0, 255, 128, 64]),
        ("F", [0.0, 200.0, 255.0, 1.5], [0, 200, 255, 2]),
        ("F", [0.0, 65535.0, 257.0, 514.0], [0, 255, 1, 2]),
        ("F", [-1.0, 1.0, 0.0, 0.5], [0, 255, 128, 191]),
        ("F", [7.0, 7.0, 7.0, 7.0], [7, 7, 7, 7]),
    ],
)
def test_numbers_are_scaled_by_the_range_they_lie_in(
    mode: str, values: list[float], expected: list[int]
) -> None:
    kind = np.int32 if mode == "I" else np.float32
    scaled = scale_depth(Image.fromarray(np.array([values], kind)))
    assert np.asarray(scaled).ravel().tolist() == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_pixel_that_is_no_number_is_a_reject(tmp_path: Path, bad: float) -> None:
    values = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    values[3, 3] = bad
    Image.fromarray(values).save(tmp_path / "a.tif")
    with pytest.raises(PictureError, match="not finite") as caught:
        load(tmp_path / "a.tif")
    assert caught.value.code == "decoder-error"


def png(depth: int, colour_type: int, row: bytes) -> bytes:
    """A PNG of one row, chunk by chunk: Pillow writes none of 16 bits per colour."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    samples = {2: 3, 6: 4, 4: 2, 0: 1}[colour_type]
    width = len(row) // (samples * depth // 8)
    header = struct.pack(">IIBBBBB", width, 1, depth, colour_type, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def test_16_bits_per_colour_are_reduced_not_clipped(tmp_path: Path) -> None:
    values = [0, 65535, 0x1200, 0x8000, 0x7F00, 0x0100]
    (tmp_path / "a.png").write_bytes(png(16, 2, struct.pack(">6H", *values)))
    picture = load(tmp_path / "a.png")
    assert list(picture.image.tobytes()) == [0, 255, 0x12, 0x80, 0x7F, 1]
    assert picture.notes == ("depth-reduced",)


def test_16_bit_transparency_is_composited(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(16, 6, struct.pack(">4H", 65535, 0, 0, 0x3333)))
    picture = load(tmp_path / "a.png")
    assert picture.image.getpixel((0, 0)) == (255, 204, 204)
    assert picture.notes == ("depth-reduced", "transparency-flattened")


def test_16_bit_tiff_of_three_colours_is_reduced(tmp_path: Path) -> None:
    entries = [
        (256, 3, 1, 1),
        (257, 3, 1, 1),
        (258, 3, 3, 134),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 140),
        (277, 3, 1, 3),
        (278, 3, 1, 1),
        (279, 4, 1, 6),
        (339, 3, 1, 1),
    ]
    table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    content = b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4)
    content += struct.pack("<3H", 16, 16, 16) + struct.pack("<3H", 0xFFFF, 0x8000, 0x1200)
    (tmp_path / "a.tif").write_bytes(content)
    picture = load(tmp_path / "a.tif")
    assert picture.image.getpixel((0, 0)) == (255, 128, 18)
    assert picture.notes == ("depth-reduced",)


# Modes


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    image = Image.new("1", (2, 1), 0)
    image.putpixel((1, 0), 1)
    for name in ("a.png", "a.tif", "a.bmp", "a.pbm"):
        image.save(tmp_path / name)
        assert load(tmp_path / name).image.tobytes() == bytes([0] * 3 + [255] * 3)


def test_palettes_with_alpha_of_every_form_are_composited() -> None:
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    with_alpha = palette.convert("PA")
    with_alpha.putalpha(Image.frombytes("L", (2, 1), bytes([51, 255])))
    by_bytes, by_index = palette.copy(), palette.copy()
    by_bytes.info["transparency"], by_index.info["transparency"] = bytes([51]), 1
    expected = [(255, 204, 204), (0, 0, 255)]
    assert list(to_srgb(with_alpha, WHITE).image.get_flattened_data()) == expected
    assert list(to_srgb(by_bytes, WHITE).image.get_flattened_data()) == expected
    assert list(to_srgb(by_index, WHITE).image.get_flattened_data()) == [RED, (255, 255, 255)]


@pytest.mark.parametrize("mode", ["RGBA", "RGBa", "LA", "La"])
def test_alpha_is_composited_whether_premultiplied_or_not(mode: str) -> None:
    plain = Image.new("RGBA", (1, 1), (100, 100, 100, 128))
    if mode in ("LA", "La"):
        plain = plain.convert("LA")
    image = plain.convert(mode) if mode in ("RGBa", "La") else plain
    coloured = to_srgb(image, "#000000")
    assert distance(coloured.image.getpixel((0, 0)), (50, 50, 50)) <= 1
    assert coloured.notes == ("transparency-flattened",)


@pytest.mark.parametrize("mode", ["HSV", "YCbCr"])
def test_other_colour_spaces_come_back(mode: str) -> None:
    image = Image.new("RGB", (1, 1), (200, 100, 50))
    assert distance(to_srgb(image.convert(mode), WHITE).image.getpixel((0, 0)), (200, 100, 50)) <= 2


@pytest.mark.parametrize("compression", [None, "jpeg"])
def test_ycbcr_tiff_is_read_in_its_colours(tmp_path: Path, compression: str | None) -> None:
    image = Image.new("RGB", (16, 16), (200, 100, 50)).convert("YCbCr")
    image.save(tmp_path / "a.tif", compression=compression)
    assert distance(load(tmp_path / "a.tif").image.getpixel((8, 8)), (200, 100, 50)) <= 4


def test_lab_has_its_colours(tmp_path: Path) -> None:
    """L 53, a 80, b 67 is sRGB red; Pillow counts a and b from 128."""
    Image.new("LAB", (4, 4), (round(53.2 * 2.55), 128 + 80, 128 + 67)).save(tmp_path / "a.tif")
    found = load(tmp_path / "a.tif").image.getpixel((0, 0))
    assert distance(found, RED) <= 12  # L, a and b are whole numbers.


def jpeg(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=100, subsampling=0)
    return stream.getvalue()


def without_adobe(content: bytes) -> bytes:
    at = content.index(b"\xff\xee\x00\x0eAdobe")
    return content[:at] + content[at + 16 :]


def test_cmyk_of_adobe_is_stored_inverted_and_plain_cmyk_is_not(tmp_path: Path) -> None:
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    (tmp_path / "adobe.jpg").write_bytes(jpeg(red))
    (tmp_path / "plain.jpg").write_bytes(without_adobe(jpeg(ImageChops.invert(red))))
    for name in ("adobe.jpg", "plain.jpg"):
        picture = load(tmp_path / name)
        assert distance(picture.image.getpixel((8, 8)), RED) <= 3, name
        assert picture.notes == ("cmyk-uncertain",)


def test_ycck_is_turned_to_cmyk_first(tmp_path: Path) -> None:
    """Y 100, Cb 128, Cr 178 is R 170, G 64, B 100: the ink, as Adobe stores CMYK inverted."""
    stored = (100, 128, 178, 255)
    content = bytearray(jpeg(Image.new("CMYK", (16, 16), tuple(255 - one for one in stored))))
    content[content.index(b"Adobe") + 11] = 2
    (tmp_path / "a.jpg").write_bytes(content)
    assert distance(load(tmp_path / "a.jpg").image.getpixel((8, 8)), (85, 191, 155)) <= 3


# Profiles


def icc(
    space: bytes, tags: dict[bytes, bytes], connection: bytes = b"XYZ ", kind: bytes = b"mntr"
) -> bytes:
    """A profile of version 2 with these tags beside the ones every profile has."""
    text = b"desc" + bytes(4) + struct.pack(">I", 5) + b"test\0" + bytes(78)
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    tags = {b"desc": text, b"cprt": b"text" + bytes(4) + b"none\0", b"wtpt": white, **tags}
    table, body, at = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, data in tags.items():
        padded = data + bytes(-len(data) % 4)
        table += name + struct.pack(">II", at + len(body), len(data))
        body += padded
    head = struct.pack(">I4sI4s4s4s", at + len(body), b"lcms", 0x02400000, kind, space, connection)
    head += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    head += struct.pack(">3i", 63190, 65536, 54061) + bytes(48)
    return head + table + body


def curve(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256))


def matrix_profile(name: str) -> bytes:
    columns = np.array(MATRICES[name]).T
    tags = {
        tag: b"XYZ " + bytes(4) + struct.pack(">3i", *(round(value * 65536) for value in column))
        for tag, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), columns, strict=True)
    }
    curves = dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve(GAMMAS[name]))
    return icc(b"RGB ", {**tags, **curves})


def srgb_of(name: str, colour: tuple[int, int, int]) -> list[int]:
    """The colour in sRGB by the formulas alone."""
    linear = (np.array(colour) / 255) ** GAMMAS[name]
    light = np.clip(np.linalg.inv(SRGB) @ np.array(MATRICES[name]) @ linear, 0, 1)
    coded = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(coded * 255).astype(int).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", list(MATRICES))
@pytest.mark.parametrize(
    "colour", [(180, 120, 100), (90, 140, 90), (128, 128, 128), (255, 255, 255)]
)
def test_wide_gamut_becomes_srgb(tmp_path: Path, name: str, colour: tuple[int, int, int]) -> None:
    Image.new("RGB", (8, 8), colour).save(tmp_path / "a.png", icc_profile=matrix_profile(name))
    picture = load(tmp_path / "a.png")
    assert distance(picture.image.getpixel((0, 0)), srgb_of(name, colour)) <= 2
    assert picture.notes == ("profile-converted",)


def test_linear_colours_are_converted_though_the_profile_is_named_srgb(tmp_path: Path) -> None:
    """Light of 128 / 255, stored as it is, is 188 in sRGB; Krita and darktable name it so."""
    columns = np.array(SRGB).T
    tags = {
        tag: b"XYZ " + bytes(4) + struct.pack(">3i", *(round(value * 65536) for value in column))
        for tag, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), columns, strict=True)
    }
    linear = icc(b"RGB ", {**tags, **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve(1.0))})
    named = linear.replace(b"test\0", b"sRGB\0")
    Image.new("RGB", (8, 8), (128, 128, 128)).save(tmp_path / "a.png", icc_profile=named)
    picture = load(tmp_path / "a.png")
    assert distance(picture.image.getpixel((0, 0)), (188, 188, 188)) <= 1
    assert picture.notes == ("profile-converted",)


def test_srgb_under_another_name_changes_no_value(tmp_path: Path) -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    nameless = srgb.replace("sRGB".encode("utf-16-be"), "c2ci".encode("utf-16-be"))
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    noise.save(tmp_path / "a.png", icc_profile=nameless)
    picture = load(tmp_path / "a.png")
    assert nameless != srgb
    assert (picture.image.tobytes(), picture.notes) == (noise.tobytes(), ())


def test_the_wide_gamut_under_alpha_is_converted_before_it_is_laid_down(tmp_path: Path) -> None:
    profile = matrix_profile("Adobe RGB")
    Image.new("RGBA", (8, 8), (90, 140, 90, 0)).save(tmp_path / "a.png", icc_profile=profile)
    picture = load(tmp_path / "a.png")
    assert picture.image.getpixel((0, 0)) == (255, 255, 255)
    assert picture.notes == ("profile-converted", "transparency-flattened")


@pytest.mark.parametrize(("mode", "value"), [("L", 128), ("LA", (128, 255))])
def test_a_grey_profile_is_used_on_grey(tmp_path: Path, mode: str, value: object) -> None:
    """Light of 128 / 255, stored as it is, is 188 in sRGB."""
    profile = icc(b"GRAY", {b"kTRC": curve(1.0)})
    Image.new(mode, (8, 8), value).save(tmp_path / "a.png", icc_profile=profile)  # type: ignore[arg-type]
    picture = load(tmp_path / "a.png")
    assert distance(picture.image.getpixel((0, 0)), (188, 188, 188)) <= 1
    assert picture.notes == ("profile-converted",)


def test_a_grey_profile_of_gamma_2_2_hardly_changes_grey(tmp_path: Path) -> None:
    profile = icc(b"GRAY", {b"kTRC": curve(2.2)})
    Image.new("L", (8, 8), 128).save(tmp_path / "a.jpg", icc_profile=profile, quality=100)
    assert distance(load(tmp_path / "a.jpg").image.getpixel((0, 0)), (128, 128, 128)) <= 2


def cmyk_profile() -> bytes:
    """Ink by ink a table of Lab colours: cyan ink looks green, no ink white, all else black."""
    looks = {(0, 0, 0, 0): (255, 128, 128), (1, 0, 0, 0): (224, 42, 211)}
    grid = [tuple(corner >> bit & 1 for bit in (3, 2, 1, 0)) for corner in range(16)]
    ramp = bytes(range(256))
    identity = struct.pack(">9i", *(65536 * (at % 4 == 0) for at in range(9)))
    table = b"".join(bytes(looks.get(inks, (0, 128, 128))) for inks in grid)
    lut = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity + ramp * 4 + table + ramp * 3
    tags = dict.fromkeys((b"A2B0", b"A2B1", b"A2B2"), lut)
    return icc(b"CMYK", tags, b"Lab ", b"prtr")


def test_cmyk_goes_through_its_profile(tmp_path: Path) -> None:
    image = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    image.save(tmp_path / "a.jpg", quality=100, icc_profile=cmyk_profile())
    picture = load(tmp_path / "a.jpg")
    assert picture.notes == ("profile-converted",)
    assert distance(picture.image.getpixel((8, 8)), (0, 255, 0)) <= 20
    assert "icc_profile" not in picture.image.info


@pytest.mark.parametrize(
    ("mode", "profile"),
    [
        ("RGB", icc(b"GRAY", {b"kTRC": curve(2.2)})),
        ("RGB", cmyk_profile()),
        ("L", cmyk_profile()),
        ("RGB", b"rubbish"),
        ("RGB", matrix_profile("ProPhoto")[:200]),
        ("RGB", b""),
    ],
)
def test_a_profile_of_another_kind_changes_no_pixel(mode: str, profile: bytes) -> None:
    image = Image.new(mode, (4, 4), 77 if mode == "L" else (10, 120, 230))  # type: ignore[arg-type]
    image.info["icc_profile"] = profile
    coloured = to_srgb(image, WHITE)
    assert coloured.image.tobytes() == image.convert("RGB").tobytes()
    assert coloured.notes == (("profile-unreadable",) if profile else ())


def test_cmyk_with_a_profile_of_another_kind_is_uncertain_too() -> None:
    image = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    image.info["icc_profile"] = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    coloured = to_srgb(image, WHITE)
    assert coloured.image.getpixel((0, 0)) == RED
    assert coloured.notes == ("profile-unreadable", "cmyk-uncertain")
