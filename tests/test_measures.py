import io
import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter, ImageOps

from latentmill.datasets.blockiness import quality_of
from latentmill.datasets.borders import Borders
from latentmill.datasets.measures import (
    SIDES_PX,
    Measures,
    measure,
    measures_from_json,
    reduced,
)


def measured(image: Image.Image, quality: int = 0) -> Measures:
    return measure(image, reduced(image, SIDES_PX[-1]), quality)


def photograph(size: tuple[int, int] = (512, 384), seed: int = 3) -> Image.Image:
    """Draw shapes of many sizes with soft shading and fine noise: edges, texture and even parts."""
    random = np.random.default_rng(seed)
    image = Image.new("RGB", (512, 384), "#608060")
    draw = ImageDraw.Draw(image)
    for radius in (*range(120, 10, -10), *range(40, 4, -1)):
        x, y = (float(random.uniform(0, side)) for side in image.size)
        colour = tuple(int(level) for level in random.integers(20, 230, 3))
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    image = image.resize(size, Image.Resampling.LANCZOS)
    values = np.asarray(image, dtype=np.float32)
    grain = random.normal(0, 2, (*values.shape[:2], 1))
    shade = np.linspace(0.8, 1.1, size[0])[None, :, None]
    return Image.fromarray(np.clip(values * shade + grain, 0, 255).astype(np.uint8))


def line_art() -> Image.Image:
    image = Image.new("RGB", (600, 400), "white")
    draw = ImageDraw.Draw(image)
    for at in range(12):
        draw.line((100 + 30 * at, 80, 420 - 20 * at, 330), fill="black", width=2)
    draw.ellipse((220, 120, 360, 260), outline="#c02020", width=3)
    return image


def saved(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(io.BytesIO(stream.getvalue())).convert("RGB")


def lit(image: Image.Image, factor: float) -> Image.Image:
    """Expose as a camera would: light multiplied, clipped, and coded with gamma again."""
    light = (np.asarray(image, dtype=np.float64) / 255) ** 2.2 * factor
    return Image.fromarray(np.rint(np.clip(light, 0, 1) ** (1 / 2.2) * 255).astype(np.uint8))


def in_focus(image: Image.Image) -> Image.Image:
    """Blur all but a small subject."""
    box = (220, 150, 320, 250)
    soft = image.filter(ImageFilter.GaussianBlur(6))
    soft.paste(image.crop(box), box)
    return soft


@pytest.mark.parametrize("sigma", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("gain", [1.0, 0.25])
def test_the_width_of_edges_is_that_of_the_blur_whatever_the_contrast(
    sigma: float, gain: float
) -> None:
    edges = np.kron(np.random.default_rng(1).integers(0, 2, (13, 13)), np.ones((39, 39))) * 200 + 20
    blurred = Image.fromarray((edges * gain).astype(np.uint8)).filter(
        ImageFilter.GaussianBlur(sigma)
    )
    assert measured(blurred.convert("RGB")).edges[0] == pytest.approx(sigma, rel=0.3)


def test_a_camera_that_moved_sideways_is_told() -> None:
    values = np.asarray(photograph(), dtype=np.float32)
    moved = sum(np.roll(values, step, axis=1) for step in range(-6, 7)) / 13
    assert measured(photograph()).edges[0] < 0.5
    assert measured(Image.fromarray(moved.astype(np.uint8))).edges[0] > 1.05


@pytest.mark.parametrize(
    "make",
    [
        photograph,
        line_art,
        lambda: lit(photograph(), 0.03),
        lambda: in_focus(photograph()),
        lambda: photograph((4000, 3000)).filter(ImageFilter.GaussianBlur(2)),
    ],
    ids=["photograph", "line art", "dark", "subject in focus", "soft only at full size"],
)
def test_what_is_sharp_where_it_matters_is_sharp(make: Callable[[], Image.Image]) -> None:
    assert 0 < measured(make()).edge_at(512) < 0.9


def test_an_even_ramp_has_no_edges_to_judge() -> None:
    assert measured(Image.linear_gradient("L").convert("RGB")).edges == (0.0, 0.0)


def test_blur_is_the_same_for_a_picture_and_its_large_copy() -> None:
    soft = photograph((1024, 768)).filter(ImageFilter.GaussianBlur(4))
    large = soft.resize((4096, 3072), Image.Resampling.BICUBIC)
    assert measured(large).edge_at(512) == pytest.approx(measured(soft).edge_at(512), rel=0.15)


def test_edges_of_another_size_are_scaled() -> None:
    one = measured(photograph((2048, 1536)).filter(ImageFilter.GaussianBlur(6)))
    assert one.edge_at(256) == one.edges[0] / 2
    assert one.edge_at(1024) == one.edges[1] > one.edge_at(512)


def test_exposure_names_the_darkest_and_the_brightest_hundredth() -> None:
    levels = np.repeat(np.arange(100, dtype=np.uint8) * 2, 100).reshape(100, 100)
    found = measured(Image.fromarray(levels).convert("RGB")).exposure
    assert (found.low, found.high) == (0, 196)


def test_an_underexposed_picture_is_dark_and_a_night_with_lights_is_not() -> None:
    assert measured(lit(photograph(), 1 / 20)).exposure.high < 70
    night = lit(photograph(), 1 / 40)
    ImageDraw.Draw(night).ellipse((100, 100, 170, 170), fill="#ffe0a0")
    assert measured(night).exposure.high > 200


def test_light_that_ran_over_is_burnt_and_paper_is_not() -> None:
    soft = photograph().filter(ImageFilter.GaussianBlur(3))
    assert measured(lit(soft, 12)).exposure.burnt > 0.4
    for white in (line_art(), ImageOps.pad(photograph(), (900, 900), color="white")):
        assert measured(white).exposure.burnt == 0
        assert measured(white).exposure.low < 200


@pytest.mark.parametrize("quality", [5, 10])
def test_blocks_of_a_compressed_picture_show_after_cropping_and_saving_again(quality: int) -> None:
    copy = saved(photograph(), quality).crop((3, 5, 500, 380))
    assert measured(copy).blocks > 0.12
    assert measured(saved(copy, 97)).blocks > 0.12


@pytest.mark.parametrize(
    "image",
    [
        photograph(),
        saved(photograph(), 92),
        saved(photograph((1024, 768)), 20).resize((512, 384), Image.Resampling.BOX),
        line_art(),
        photograph((64, 48)).resize((320, 240), Image.Resampling.NEAREST),
    ],
    ids=["untouched", "quality 92", "scaled since", "line art", "pixel art"],
)
def test_what_shows_no_blocks_is_not_accused(image: Image.Image) -> None:
    assert measured(image).blocks < 0.06


@pytest.mark.parametrize("quality", [20, 25, 40, 50, 75, 90, 100])
def test_the_quality_of_a_jpeg_is_read_from_its_tables(quality: int) -> None:
    stream = io.BytesIO()
    photograph((64, 64)).save(stream, "JPEG", quality=quality)
    with Image.open(io.BytesIO(stream.getvalue())) as image:
        assert abs(quality_of(image.quantization) - quality) <= 2  # type: ignore[attr-defined]


def test_files_without_a_table_have_no_quality() -> None:
    assert quality_of({}) == quality_of({0: [1, 2]}) == 0


@pytest.mark.parametrize("size", [(512, 384), (2000, 1500), (300, 400)])
@pytest.mark.parametrize("colour", ["black", "white", "#804020"])
def test_borders_are_told_to_the_pixel(size: tuple[int, int], colour: str) -> None:
    high, wide = size[1] // 8, size[0] // 9
    letterbox = ImageOps.expand(photograph(size), (0, high, 0, high + 7), colour)
    assert measured(letterbox).borders == Borders(0, high, 0, high + 7)
    frame = ImageOps.expand(photograph(size), (wide, high, wide, high), colour)
    assert measured(frame).borders == Borders(wide, high, wide, high)
    assert measured(saved(letterbox, 60)).borders.top == pytest.approx(high, abs=2)


def logo() -> Image.Image:
    image = Image.new("RGB", (512, 512), "white")
    ImageDraw.Draw(image).ellipse((120, 120, 390, 390), fill="#2040c0")
    return image


def sky() -> Image.Image:
    image = photograph()
    image.paste("#a0c0e0", (0, 0, 512, 130))
    return image


@pytest.mark.parametrize("make", [photograph, line_art, logo, sky])
def test_a_plain_ground_is_no_border(make: Callable[[], Image.Image]) -> None:
    assert not measured(make()).borders.found


def test_what_is_inside_the_borders_is_measured() -> None:
    blurred = photograph().filter(ImageFilter.GaussianBlur(3))
    framed = measured(ImageOps.expand(blurred, 60, "white"))
    assert framed.edges[0] == pytest.approx(measured(blurred).edges[0], rel=0.15)
    assert framed.exposure.high < 240


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 255), st.integers(0, 9))
def test_any_picture_can_be_measured_and_kept(
    width: int, height: int, level: int, seed: int
) -> None:
    levels = np.random.default_rng(seed).integers(0, level + 1, (height, width, 3), dtype=np.uint8)
    found = measured(Image.fromarray(levels), seed)
    assert measures_from_json(json.loads(json.dumps(asdict(found)))) == found


def test_a_reduced_copy_has_about_the_area_asked_for() -> None:
    for size in ((4000, 3000), (1500, 1500), (700, 500), (9000, 300), (8000, 6000)):
        copy = reduced(Image.new("RGB", size), 1024)
        assert 600 <= (copy.width * copy.height) ** 0.5 <= 1536 or copy.size == size
        assert copy.width / copy.height == pytest.approx(size[0] / size[1], rel=0.02)


def test_pixel_art_on_the_grid_is_not_taken_for_a_compressed_picture() -> None:
    cells = np.random.default_rng(1).integers(0, 4, (32, 32)).astype(np.uint8) * 80
    art = Image.fromarray(cells).resize((512, 512), Image.Resampling.NEAREST).convert("RGB")
    assert measured(art).blocks == 0
