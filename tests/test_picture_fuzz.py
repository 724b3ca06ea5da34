"""Whatever is done to a picture's bytes, the loader answers with a picture or with a reject."""

import io
import os
import random
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from latentmill.datasets.images import LoadRules, PictureError, load_picture

RULES = LoadRules(max_megapixels=4)


def _seed(format_name: str, mode: str, **options: object) -> bytes:
    noise = random.Random(format_name + mode).randbytes(24 * 16 * 4)
    raw = Image.frombytes("RGBA", (24, 16), noise)
    image = raw.convert(mode) if mode in ("RGBA", "LA") else raw.convert("RGB").convert(mode)
    if format_name in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF"):
        exif = Image.Exif()
        exif[0x0112] = 6
        options["exif"] = exif
    stream = io.BytesIO()
    image.save(stream, format_name, **options)
    return stream.getvalue()


SEEDS = [
    _seed("PNG", "RGBA"),
    _seed("PNG", "P"),
    _seed("PNG", "I;16"),
    _seed("PNG", "RGB", save_all=True, append_images=[Image.new("RGB", (24, 16))]),
    _seed("JPEG", "RGB"),
    _seed("JPEG", "CMYK", progressive=True),
    _seed("MPO", "RGB", save_all=True, append_images=[Image.new("RGB", (24, 16))]),
    _seed("WEBP", "RGBA", lossless=True),
    _seed("WEBP", "RGB", save_all=True, append_images=[Image.new("RGB", (24, 16))]),
    _seed("GIF", "P", save_all=True, append_images=[Image.new("P", (24, 16))]),
    _seed("TIFF", "RGB"),
    _seed("TIFF", "RGB", compression="tiff_lzw"),
    _seed("TIFF", "F", compression="tiff_deflate"),
    _seed("TIFF", "1", compression="group4"),
    _seed("TIFF", "RGB", compression="jpeg"),
    _seed("BMP", "RGB"),
    _seed("BMP", "P"),
    _seed("AVIF", "RGB", speed=10),
    _seed("JPEG2000", "RGB"),
    _seed("PPM", "RGB"),
    _seed("TGA", "RGBA", compression="tga_rle"),
    _seed("QOI", "RGB"),
]
PLACE = st.integers(0, 1 << 16)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), PLACE, PLACE),
    st.tuples(st.just("flip"), PLACE, PLACE),
    st.tuples(st.just("extreme"), PLACE, PLACE),
    st.tuples(st.just("swap"), PLACE, PLACE),
    st.tuples(st.just("repeat"), PLACE, PLACE),
    st.tuples(st.just("splice"), PLACE, PLACE),
    st.tuples(st.just("head"), PLACE, PLACE),
    st.tuples(st.just("junk"), PLACE, PLACE),
)


def damaged(content: bytes, damage: list[tuple[str, int, int]]) -> bytes:
    """Do to the bytes what each entry says, one after the other."""
    data = bytearray(content)
    for kind, where, what in damage:
        at = where % (len(data) or 1)
        other = SEEDS[what % len(SEEDS)]
        piece = data[at : at + what % 64]
        if kind == "cut":
            del data[at:]
        elif kind == "flip" and data:
            data[at] ^= 1 + what % 255
        elif kind == "extreme":
            data[at : at + 4] = [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"][what % 3]
        elif kind == "swap":
            del data[at : at + len(piece)]
            data[what % (len(data) or 1) : 0] = piece
        elif kind == "repeat":
            data[at:at] = piece * 3
        elif kind == "splice":
            data[at:] = other[what % len(other) :]
        elif kind == "head":
            data[: at % 64] = other[: at % 64]
        else:
            data += random.Random(what).randbytes(what % 300)
    return bytes(data)


def outcome(path: Path) -> str:
    """Load as a stage does; return the code, or an empty string for a picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            picture = load_picture(path, RULES)
        except PictureError as error:
            assert error.message
            assert error.fix
            return error.code
    assert picture.image.mode == "RGB"
    assert min(picture.image.size) > 0
    assert len(picture.image.tobytes()) == 3 * picture.image.width * picture.image.height
    return ""


def test_every_seed_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.tga").write_bytes(b"")
    codes = []
    for seed in SEEDS:
        (tmp_path / "a.tga").write_bytes(seed)
        codes.append(outcome(tmp_path / "a.tga"))
    assert sorted(set(codes)) == ["", "animated"]
    assert codes.count("animated") == 3


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("FUZZ_CASES", "2500")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.sampled_from(SEEDS), damage=st.lists(DAMAGE, min_size=1, max_size=5))
def test_damage_of_any_kind_is_a_picture_or_a_reject(
    tmp_path: Path, seed: bytes, damage: list[tuple[str, int, int]]
) -> None:
    path = tmp_path / "a.tga"  # The one name that lets content of no known kind be tried.
    path.write_bytes(damaged(seed, damage))
    outcome(path)


def test_a_few_cases_of_damage_are_tried_in_every_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tga"
    chance = random.Random(7)
    kinds = ["cut", "flip", "extreme", "swap", "repeat", "splice", "head", "junk"]
    for seed in SEEDS * 10:
        one = (chance.choice(kinds), chance.randrange(1 << 16), chance.randrange(1 << 16))
        path.write_bytes(damaged(seed, [one, one]))
        outcome(path)
    assert capfd.readouterr().out == ""
