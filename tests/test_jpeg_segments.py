import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms

from latentmill.datasets.jpeg_segments import without_metadata


def noise(size: tuple[int, int] = (80, 72)) -> Image.Image:
    return Image.merge("RGB", [Image.effect_noise(size, 30 + band) for band in range(3)])


def jpeg(**options: object) -> bytes:
    stream = io.BytesIO()
    noise().save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("progressive", [False, True])
def test_the_pixels_stay_and_the_metadata_goes(progressive: bool) -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    options = {"exif": exif, "icc_profile": profile, "comment": b"secret"}
    data = jpeg(progressive=progressive, **options)
    plain = without_metadata(data)
    assert plain is not None
    assert not any(word in plain for word in (b"taken at home", b"ICC_PROFILE", b"secret", b"Exif"))
    assert b"JFIF" in plain
    before, after = Image.open(io.BytesIO(data)), Image.open(io.BytesIO(plain))
    assert before.tobytes() == after.tobytes()
    assert after.getexif() == {}


def test_only_the_first_picture_of_several_stays() -> None:
    stream = io.BytesIO()
    other = Image.new("RGB", (80, 72), "red")
    noise().save(stream, "MPO", save_all=True, append_images=[other])
    data = stream.getvalue()
    assert Image.open(io.BytesIO(data)).format == "MPO"
    plain = without_metadata(data)
    assert plain is not None
    assert plain.endswith(b"\xff\xd9")
    assert Image.open(io.BytesIO(plain)).format == "JPEG"
    assert Image.open(io.BytesIO(plain)).tobytes() == Image.open(io.BytesIO(data)).tobytes()


def test_what_follows_the_picture_goes() -> None:
    data = jpeg()
    assert without_metadata(data + b"trailing bytes of a camera") == without_metadata(data)


def test_the_mark_of_inverted_colours_stays() -> None:
    stream = io.BytesIO()
    noise().convert("CMYK").save(stream, "JPEG")
    assert b"Adobe" in stream.getvalue()
    plain = without_metadata(stream.getvalue())
    assert plain is not None
    assert b"Adobe" in plain


@given(st.integers(0, 2000), st.binary(max_size=4))
def test_damage_gives_none_or_bytes_and_never_an_error(cut: int, rubbish: bytes) -> None:
    data = _SMALL[:cut] + rubbish
    assert without_metadata(data) is None or cut + len(rubbish) >= 100


_SMALL = jpeg(quality=30)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xda"])
def test_what_is_no_jpeg_gives_none(data: bytes) -> None:
    assert without_metadata(data) is None
