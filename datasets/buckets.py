"""Turns a picture's size into the bucket it is trained in, and the picture into that bucket."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from latentmill.datasets.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

RESAMPLING = "lanczos, reducing gap 3, centre crop"
"""How pixels get from the picture to the bucket; a change of it changes every latent's key."""
_REDUCING_GAP = 3.0
_GREY = (128, 128, 128)
_PADDING = "grey 128 around it"

Anchor = Literal["centre", "top"]
"""What stays of a picture that is too high for its bucket: the middle, or the upper end."""


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Which buckets there are, in px: areas up to `area` squared, sides in steps and limits.

    `without` are labels of buckets that are left out: their pictures go to the nearest other one.
    """

    area: int
    step: int
    min: int
    max: int
    upscale: Literal["allowed", "never"] = "allowed"
    shape: Literal["any", "square"] = "any"
    fit: Literal["crop", "pad"] = "crop"
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A shape that pictures are brought to, in px."""

    width: int
    height: int

    @property
    def label(self) -> str:
        """The bucket's name: `512x768` is upright."""
        return f"{self.width}x{self.height}"

    @property
    def turned(self) -> "Bucket":
        """The same shape on its side."""
        return Bucket(self.height, self.width)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a bucket, in px."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, slots=True)
class Placement:
    """How a picture gets into its bucket: scaled to cover it and cut, or to fit in, grey around it.

    `resized_*` is the size that the whole picture would get, `left` and `top` where the bucket
    lies in that (negative where it reaches beyond). `cropped` is the share of the picture that is
    cut away, `scale` above 1 enlarges.
    """

    bucket: Bucket
    resized_width: int
    resized_height: int
    left: int
    top: int
    cropped: float
    scale: float

    @property
    def recipe(self) -> list[Any]:
        """All that decides the bucket's pixels, given those of the picture."""
        size = [self.resized_width, self.resized_height]
        recipe = [self.bucket.label, size, [self.left, self.top], RESAMPLING]
        return [*recipe, _PADDING] if self.is_padded else recipe

    @property
    def is_padded(self) -> bool:
        """Whether the bucket is larger than the resized picture."""
        bucket = self.bucket
        return self.resized_width < bucket.width or self.resized_height < bucket.height

    @property
    def picture(self) -> Box:
        """Where in the bucket the picture lies; all of it unless it is padded."""
        left, top = max(-self.left, 0), max(-self.top, 0)
        right = min(left + self.resized_width, self.bucket.width)
        bottom = min(top + self.resized_height, self.bucket.height)
        return Box(left, top, right, bottom)

    @property
    def padded(self) -> float:
        """The share of the bucket that is grey."""
        box = self.picture
        area = (box.right - box.left) * (box.bottom - box.top)
        return 1 - area / (self.bucket.width * self.bucket.height)


@lru_cache(maxsize=8)
def make_buckets(rules: BucketRules) -> tuple[Bucket, ...]:
    """Return every bucket: for each side within the limits the longest other side, both ways.

    512, 64, 256 to 1024 gives the usual 17. Raises UsageError when the rules leave none.
    """
    shapes = {Bucket(width, height) for width, height in _shapes(rules, rules.max, rules.max)}
    every = shapes | {bucket.turned for bucket in shapes}
    found = {bucket for bucket in every if bucket.label not in rules.without}
    if not every:
        raise UsageError(
            f"no bucket of area {rules.area}x{rules.area} has sides from {rules.min} to "
            f"{rules.max} in steps of {rules.step}",
            where="the [bucket] settings",
            fix=f"choose bucket.min and bucket.area as multiples of bucket.step ({rules.step})",
        )
    unknown = sorted(set(rules.without) - {bucket.label for bucket in every})
    if unknown or not found:
        raise UsageError(
            f"bucket.without leaves out {', '.join(unknown)}, which is no bucket of these settings"
            if unknown
            else "bucket.without leaves no bucket",
            where="the [bucket] settings",
            expected=f"some of {', '.join(sorted(bucket.label for bucket in every))}",
        )
    return tuple(sorted(found))


@lru_cache(maxsize=4096)
def place(width: int, height: int, rules: BucketRules, anchor: Anchor = "centre") -> Placement:
    """Choose the bucket of the nearest aspect ratio, alike for a picture and its turned twin.

    With `upscale = never` a picture that would be enlarged gets the largest shape it fills; with
    `fit = pad` it keeps its size where it fills none.
    """
    if height > width:
        bucket = _choose(height, width, rules, turned=True).turned
    else:
        bucket = _choose(width, height, rules, turned=False)
    if rules.fit == "pad":
        return _contain(width, height, bucket, enlarge=rules.upscale == "allowed")
    return _cover(width, height, bucket, anchor)


def fit(image: "Image", placement: Placement) -> "Image":
    """Resize and crop a picture to its bucket; one of exactly that size comes back untouched."""
    from PIL.Image import Resampling

    bucket = placement.bucket
    size = (bucket.width, bucket.height)
    if image.size == size:
        return image
    if placement.is_padded:
        return _padded(image, placement)
    across = image.width / placement.resized_width
    down = image.height / placement.resized_height
    left, top = placement.left * across, placement.top * down
    # The box is cut out first: a thin strip, resized whole, could fill the memory.
    right = min(left + bucket.width * across, image.width)
    bottom = min(top + bucket.height * down, image.height)
    box = (left, top, right, bottom)
    return image.resize(size, Resampling.LANCZOS, box=box, reducing_gap=_REDUCING_GAP)


def _padded(image: "Image", placement: Placement) -> "Image":
    """Resize the whole picture and lay it on grey."""
    from PIL import Image
    from PIL.Image import Resampling

    size = (placement.resized_width, placement.resized_height)
    whole = image.resize(size, Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)
    bucket, box = placement.bucket, placement.picture
    canvas = Image.new("RGB", (bucket.width, bucket.height), _GREY)
    canvas.paste(whole, (box.left, box.top))
    return canvas


def _choose(width: int, height: int, rules: BucketRules, turned: bool) -> Bucket:
    """Choose for a picture that is at least as wide as high; `turned` gives it lying down."""
    every = [bucket.turned if turned else bucket for bucket in make_buckets(rules)]
    # Without all buckets of its own direction a picture takes what is nearest among the others.
    buckets = [bucket for bucket in every if bucket.width >= bucket.height] or every
    nearest = min(buckets, key=lambda bucket: _distance(width, height, bucket))
    if rules.upscale == "allowed" or _fills(width, height, nearest):
        return nearest
    shapes = [Bucket(*shape) for shape in _shapes(rules, width, height)]
    filled = [one for one in shapes if (one.turned if turned else one).label not in rules.without]
    if not filled:
        return nearest
    return min(filled, key=lambda b: (-b.width * b.height, _distance(width, height, b)))


def _shapes(rules: BucketRules, max_width: int, max_height: int) -> Iterator[tuple[int, int]]:
    """Yield for each width the highest shape within the limits and the area."""
    step = rules.step
    if rules.shape == "square":
        side = min(rules.area, max_width, max_height) // step * step
        if side >= rules.min:
            yield side, side
        return
    first = -(-rules.min // step) * step
    for width in range(first, min(rules.max, max_width) + 1, step):
        height = min(rules.max, max_height, rules.area**2 // width) // step * step
        if height >= first:
            yield width, height


def _distance(width: int, height: int, bucket: Bucket) -> tuple[float, int, int]:
    """Order buckets: nearest in log aspect ratio, then the picture's own size, then the largest."""
    gap = abs(math.log(width * bucket.height) - math.log(height * bucket.width))
    is_other = int((bucket.width, bucket.height) != (width, height))
    return round(gap, 9), is_other, -bucket.width * bucket.height


def _fills(width: int, height: int, bucket: Bucket) -> bool:
    return width >= bucket.width and height >= bucket.height


def _cover(width: int, height: int, bucket: Bucket, anchor: Anchor) -> Placement:
    """Scale to the smallest size that covers the bucket; whole numbers, so nothing drifts."""
    if bucket.width * height >= bucket.height * width:
        scale = bucket.width / width
        resized = (bucket.width, max(bucket.height, _rounded(height * bucket.width, width)))
    else:
        scale = bucket.height / height
        resized = (max(bucket.width, _rounded(width * bucket.height, height)), bucket.height)
    return Placement(
        bucket=bucket,
        resized_width=resized[0],
        resized_height=resized[1],
        left=(resized[0] - bucket.width) // 2,
        top=0 if anchor == "top" else (resized[1] - bucket.height) // 2,
        cropped=1 - bucket.width * bucket.height / (resized[0] * resized[1]),
        scale=scale,
    )


def _contain(width: int, height: int, bucket: Bucket, enlarge: bool) -> Placement:
    """Scale to the largest size that fits into the bucket (not above its own unless `enlarge`)."""
    if not enlarge and width <= bucket.width and height <= bucket.height:
        scale, resized = 1.0, (width, height)
    elif bucket.width * height <= bucket.height * width:
        scale = bucket.width / width
        resized = (bucket.width, min(bucket.height, _rounded(height * bucket.width, width) or 1))
    else:
        scale = bucket.height / height
        resized = (min(bucket.width, _rounded(width * bucket.height, height) or 1), bucket.height)
    return Placement(
        bucket=bucket,
        resized_width=resized[0],
        resized_height=resized[1],
        left=-((bucket.width - resized[0]) // 2),
        top=-((bucket.height - resized[1]) // 2),
        cropped=0.0,
        scale=scale,
    )


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
