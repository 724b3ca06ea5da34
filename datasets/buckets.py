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


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Which buckets there are, in px: areas up to `area` squared, sides in steps and limits."""

    area: int
    step: int
    min: int
    max: int
    upscale: Literal["allowed", "never"] = "allowed"


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
class Placement:
    """How a picture gets into its bucket: scaled to cover it, then cut to it in the middle.

    `resized_*` is the size that the whole picture would get, `left` and `top` where the bucket
    lies in that. `cropped` is the share of the area that is cut away, `scale` above 1 enlarges.
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
        return [self.bucket.label, size, [self.left, self.top], RESAMPLING]


@lru_cache(maxsize=8)
def make_buckets(rules: BucketRules) -> tuple[Bucket, ...]:
    """Return every bucket: for each side within the limits the longest other side, both ways.

    512, 64, 256 to 1024 gives the usual 17. Raises UsageError when the rules leave none.
    """
    found = {Bucket(width, height) for width, height in _shapes(rules, rules.max, rules.max)}
    if not found:
        raise UsageError(
            f"no bucket of area {rules.area}x{rules.area} has sides from {rules.min} to "
            f"{rules.max} in steps of {rules.step}",
            where="the [bucket] settings",
            fix=f"choose bucket.min and bucket.area as multiples of bucket.step ({rules.step})",
        )
    return tuple(sorted(found | {bucket.turned for bucket in found}))


@lru_cache(maxsize=4096)
def place(width: int, height: int, rules: BucketRules) -> Placement:
    """Choose the bucket of the nearest aspect ratio, alike for a picture and its turned twin.

    With `upscale = never` a picture that would be enlarged gets the largest shape it fills.
    """
    if height > width:
        bucket = _choose(height, width, rules).turned
    else:
        bucket = _choose(width, height, rules)
    return _cover(width, height, bucket)


def fit(image: "Image", placement: Placement) -> "Image":
    """Resize and crop a picture to its bucket; one of exactly that size comes back untouched."""
    from PIL.Image import Resampling

    bucket = placement.bucket
    size = (bucket.width, bucket.height)
    if image.size == size:
        return image
    across = image.width / placement.resized_width
    down = image.height / placement.resized_height
    left, top = placement.left * across, placement.top * down
    # The box is cut out first: a thin strip, resized whole, could fill the memory.
    right = min(left + bucket.width * across, image.width)
    bottom = min(top + bucket.height * down, image.height)
    box = (left, top, right, bottom)
    return image.resize(size, Resampling.LANCZOS, box=box, reducing_gap=_REDUCING_GAP)


def _choose(width: int, height: int, rules: BucketRules) -> Bucket:
    """Choose for a picture that is at least as wide as high."""
    buckets = [bucket for bucket in make_buckets(rules) if bucket.width >= bucket.height]
    nearest = min(buckets, key=lambda bucket: _distance(width, height, bucket))
    if rules.upscale == "allowed" or _fills(width, height, nearest):
        return nearest
    filled = [Bucket(*shape) for shape in _shapes(rules, width, height)]
    if not filled:
        return nearest
    return min(filled, key=lambda b: (-b.width * b.height, _distance(width, height, b)))


def _shapes(rules: BucketRules, max_width: int, max_height: int) -> Iterator[tuple[int, int]]:
    """Yield for each width the highest shape within the limits and the area."""
    step = rules.step
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


def _cover(width: int, height: int, bucket: Bucket) -> Placement:
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
        top=(resized[1] - bucket.height) // 2,
        cropped=1 - bucket.width * bucket.height / (resized[0] * resized[1]),
        scale=scale,
    )


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
