"""A small copy of a picture -> how bright its darkest and brightest parts are, and what is lost."""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

_WHITE = 250  # All three channels: no detail is left.
_ALMOST_WHITE = 230  # Light that ran over leaves such a rim; white paper ends sharply.
_LEAST_WHITE = 0.05
_SOFT_RIM = 0.3
_WHITE_GROUND = 0.8  # Share of the picture's own edge that is white when the ground is.


@dataclass(frozen=True, slots=True)
class Exposure:
    """Grey levels 0..255: a hundredth of the pixels is darker than `low`, one brighter than `high`.

    `burnt` is the share of pixels that are white because light ran over, and 0 for a white ground.
    """

    low: int
    high: int
    burnt: float


def exposure(image: Image.Image) -> Exposure:
    """Measure an RGB picture, of which a reduced copy serves."""
    grey = image.convert("L")
    counts = list(accumulate(grey.histogram()))
    low, high = (sum(count < share * counts[-1] for count in counts) for share in (0.01, 0.99))
    red, green, blue = image.split()
    darkest = ImageChops.darker(ImageChops.darker(red, green), blue)
    white = np.asarray(darkest) >= _WHITE
    if white.mean() < _LEAST_WHITE:
        return Exposure(low, high, 0.0)
    return Exposure(low, high, round(_burnt(white, np.asarray(grey)), 3))


def _burnt(white: NDArray[np.bool_], grey: NDArray[np.uint8]) -> float:
    edge = np.concatenate([white[0], white[-1], white[:, 0], white[:, -1]])
    beside = np.zeros_like(white)
    beside[1:] |= white[:-1]
    beside[:-1] |= white[1:]
    beside[:, 1:] |= white[:, :-1]
    beside[:, :-1] |= white[:, 1:]
    rim = grey[beside & ~white]
    if not rim.size or edge.mean() >= _WHITE_GROUND:
        return 0.0
    soft = (rim >= _ALMOST_WHITE).mean()
    return float(white.mean()) if soft >= _SOFT_RIM else 0.0
