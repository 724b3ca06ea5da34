import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops

from latentmill.datasets.buckets import Anchor, Bucket, BucketRules, fit, make_buckets, place
from latentmill.datasets.errors import UsageError

RULES = BucketRules(area=512, step=64, min=256, max=1024)
NEVER = BucketRules(area=512, step=64, min=256, max=1024, upscale="never")
SIDES = st.integers(1, 20_000)


def test_the_usual_settings_give_the_usual_17_buckets() -> None:
    upright = {"256x832", "256x896", "256x960", "256x1024", "320x704", "320x768"}
    upright |= {"384x640", "448x576"}
    labels = {bucket.label for bucket in make_buckets(RULES)}
    assert labels == upright | {"x".join(reversed(label.split("x"))) for label in upright} | {
        "512x512"
    }


def test_the_square_mode_has_one_bucket() -> None:
    square = BucketRules(area=512, step=64, min=256, max=1024, shape="square")
    assert [bucket.label for bucket in make_buckets(square)] == ["512x512"]
    assert place(4000, 300, square).bucket.label == "512x512"
    never = BucketRules(area=512, step=64, min=256, max=1024, shape="square", upscale="never")
    assert place(400, 330, never).bucket.label == "320x320"


def test_a_bucket_that_is_left_out_gives_its_pictures_to_the_next() -> None:
    assert place(4000, 1000, RULES).bucket.label == "1024x256"
    fewer = replace(RULES, without=("1024x256", "960x256"))
    assert place(4000, 1000, fewer).bucket.label == "896x256"
    assert place(1000, 4000, fewer).bucket.label == "256x1024"
    with pytest.raises(UsageError, match="96x96, which is no bucket"):
        make_buckets(replace(RULES, without=("96x96",)))
    square = BucketRules(512, 64, 256, 1024, shape="square", without=("512x512",))
    with pytest.raises(UsageError, match="leaves no bucket"):
        make_buckets(square)


@st.composite
def rules(draw: st.DrawFn) -> BucketRules:
    step = draw(st.sampled_from([8, 16, 64]))
    low, middle, high = sorted(draw(st.lists(st.integers(1, 12), min_size=3, max_size=3)))
    upscale = draw(st.sampled_from(["allowed", "never"]))
    shape = draw(st.sampled_from(["any", "square"]))
    return BucketRules(middle * step, step, low * step, high * step, upscale, shape)


@given(rules())
def test_a_side_of_every_bucket_is_as_long_as_the_rules_let_it(limits: BucketRules) -> None:
    for bucket in make_buckets(limits):
        if limits.shape == "square":
            assert bucket == Bucket(limits.area, limits.area)
            continue
        sides = ((bucket.width, bucket.height), (bucket.height, bucket.width))
        assert any(
            side + limits.step > limits.max or other * (side + limits.step) > limits.area**2
            for side, other in sides
        )


@given(SIDES, SIDES, rules(), st.sampled_from(["centre", "top"]))
def test_a_crop_is_no_more_than_is_said_and_never_all(
    width: int, height: int, limits: BucketRules, anchor: Anchor
) -> None:
    placement = place(width, height, limits, anchor)
    box = placement.picture
    bucket = placement.bucket
    assert (box.left, box.top, box.right, box.bottom) == (0, 0, bucket.width, bucket.height)
    assert not placement.is_padded
    shown = bucket.width * bucket.height / placement.scale**2
    half_a_pixel = 0.5 / min(bucket.width, bucket.height) + 1e-6
    assert placement.cropped == pytest.approx(1 - shown / (width * height), abs=half_a_pixel)
    centred = place(width, height, limits)
    assert placement.left == centred.left
    assert placement.top == (0 if anchor == "top" else centred.top)


@given(SIDES, SIDES, rules())
def test_a_padded_picture_is_whole_and_touches_its_bucket(
    width: int, height: int, limits: BucketRules
) -> None:
    placement = place(width, height, replace(limits, fit="pad"))
    bucket, box = placement.bucket, placement.picture
    assert bucket == place(width, height, limits).bucket
    assert placement.cropped == 0
    assert 0 <= box.left < box.right <= bucket.width
    assert 0 <= box.top < box.bottom <= bucket.height
    assert (box.right - box.left, box.bottom - box.top) == (
        placement.resized_width,
        placement.resized_height,
    )
    margins = (box.left, box.top, bucket.width - box.right, bucket.height - box.bottom)
    assert abs(margins[0] - margins[2]) <= 1
    assert abs(margins[1] - margins[3]) <= 1
    if limits.upscale == "never":
        assert placement.scale <= 1
    else:
        assert min(margins) == 0
    area = placement.resized_width * placement.resized_height
    assert placement.padded == pytest.approx(1 - area / (bucket.width * bucket.height))


@pytest.mark.parametrize("size", [(20_000, 1), (1, 20_000), (1, 1), (90, 60), (61, 90), (64, 64)])
def test_padding_lays_the_whole_picture_on_grey(size: tuple[int, int]) -> None:
    placement = place(*size, BucketRules(64, 16, 32, 128, shape="square", fit="pad"))
    picture = fit(Image.new("RGB", size, "red"), placement)
    assert picture.size == (64, 64)
    num_red = placement.resized_width * placement.resized_height
    colours = {colour: count for count, colour in picture.getcolors() or ()}
    assert colours[255, 0, 0] == num_red
    assert colours.get((128, 128, 128), 0) == 64 * 64 - num_red


def test_a_higher_picture_keeps_its_upper_end() -> None:
    image = Image.new("RGB", (64, 100), "blue")
    image.paste("red", (0, 0, 64, 64))
    limits = BucketRules(64, 16, 32, 128, shape="square")
    assert fit(image, place(64, 100, limits, "top")).getcolors() == [(64 * 64, (255, 0, 0))]
    assert len(fit(image, place(64, 100, limits)).getcolors() or ()) > 1


def test_recipes_that_name_existing_latents_stay_what_they_are() -> None:
    assert place(4000, 3000, RULES).recipe == [
        "576x448",
        [597, 448],
        [10, 0],
        "lanczos, reducing gap 3, centre crop",
    ]
    padded = replace(RULES, fit="pad")
    assert place(576, 448, padded).recipe == place(576, 448, RULES).recipe
    assert place(4000, 3000, padded).recipe != place(4000, 3000, RULES).recipe


@given(SIDES, SIDES, rules())
def test_every_picture_covers_a_bucket_within_the_rules(
    width: int, height: int, limits: BucketRules
) -> None:
    placement = place(width, height, limits)
    bucket = placement.bucket
    for side in (bucket.width, bucket.height):
        assert side % limits.step == 0
        assert limits.min <= side <= limits.max
    assert bucket.width * bucket.height <= limits.area**2
    assert placement.resized_width >= bucket.width
    assert placement.resized_height >= bucket.height
    assert 0 <= placement.left <= placement.resized_width - bucket.width
    assert 0 <= placement.top <= placement.resized_height - bucket.height
    assert bucket.width == placement.resized_width or bucket.height == placement.resized_height
    assert 0 <= placement.cropped < 1


@given(SIDES, SIDES, rules())
def test_nothing_is_distorted_by_more_than_half_a_pixel(
    width: int, height: int, limits: BucketRules
) -> None:
    placement = place(width, height, limits)
    assert abs(placement.resized_width - width * placement.scale) <= 0.5 + 1e-6
    assert abs(placement.resized_height - height * placement.scale) <= 0.5 + 1e-6


@given(SIDES, SIDES, rules())
def test_a_turned_picture_gets_the_turned_bucket(
    width: int, height: int, limits: BucketRules
) -> None:
    if width != height:
        upright, turned = place(width, height, limits), place(height, width, limits)
        assert upright.bucket == turned.bucket.turned
        assert upright.cropped == turned.cropped


@pytest.mark.parametrize("bucket", make_buckets(RULES), ids=lambda bucket: bucket.label)
@pytest.mark.parametrize("limits", [RULES, NEVER], ids=["allowed", "never"])
def test_a_picture_of_exactly_a_buckets_size_is_untouched(
    bucket: Bucket, limits: BucketRules
) -> None:
    placement = place(bucket.width, bucket.height, limits)
    assert placement.bucket == bucket
    assert (placement.cropped, placement.scale, placement.left, placement.top) == (0, 1, 0, 0)
    image = Image.new("RGB", (bucket.width, bucket.height))
    assert fit(image, placement) is image


@pytest.mark.parametrize(
    ("width", "height", "label", "resized"),
    [
        (1024, 1024, "512x512", (512, 512)),
        (4000, 3000, "576x448", (597, 448)),
        (3000, 4000, "448x576", (448, 597)),
        (1920, 1080, "640x384", (683, 384)),
        (20_000, 1, "1024x256", (5_120_000, 256)),
        (1, 20_000, "256x1024", (256, 5_120_000)),
        (1, 1, "512x512", (512, 512)),
    ],
)
def test_placements_of_known_sizes(
    width: int, height: int, label: str, resized: tuple[int, int]
) -> None:
    placement = place(width, height, RULES)
    assert placement.bucket.label == label
    assert (placement.resized_width, placement.resized_height) == resized


@given(SIDES, SIDES)
def test_never_enlarges_only_what_fills_no_shape_at_all(width: int, height: int) -> None:
    placement = place(width, height, NEVER)
    if min(width, height) >= 256:
        assert placement.scale <= 1
    if placement.scale > 1:
        assert min(width, height) < 256


def test_never_takes_the_largest_shape_that_a_small_picture_fills() -> None:
    assert place(600, 400, NEVER).bucket == Bucket(576, 384)
    assert place(600, 400, NEVER).cropped == 0
    assert place(500, 500, NEVER).bucket == Bucket(448, 448)
    assert place(600, 400, RULES).scale > 1


def test_rules_that_leave_no_bucket_say_so() -> None:
    with pytest.raises(UsageError, match=r"steps of 64"):
        make_buckets(BucketRules(area=300, step=64, min=280, max=1024))


def test_fit_equals_resizing_the_whole_picture_and_cropping_it() -> None:
    image = Image.frombytes("RGB", (90, 60), random.Random(0).randbytes(90 * 60 * 3))
    limits = BucketRules(area=32, step=16, min=16, max=64)
    placement = place(90, 60, limits)
    whole = image.resize(
        (placement.resized_width, placement.resized_height), Image.Resampling.LANCZOS
    )
    corner = (placement.left, placement.top)
    expected = whole.crop((*corner, corner[0] + 32, corner[1] + 32))
    assert placement.bucket == Bucket(32, 32)
    difference = ImageChops.difference(fit(image, placement), expected)
    assert max(high for _, high in difference.getextrema()) <= 1


@pytest.mark.parametrize("size", [(20_000, 1), (1, 20_000), (1, 1), (3, 7001)])
def test_extreme_pictures_fit_without_a_giant_in_between(size: tuple[int, int]) -> None:
    placement = place(*size, RULES)
    picture = fit(Image.new("RGB", size, "red"), placement)
    assert picture.size == (placement.bucket.width, placement.bucket.height)
    assert picture.getcolors() == [(picture.width * picture.height, (255, 0, 0))]
