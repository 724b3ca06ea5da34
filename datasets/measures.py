"""A decoded picture -> the numbers that tell its quality and its likeness to others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from latentmill.datasets.blockiness import blockiness
from latentmill.datasets.borders import Borders, find_borders, scaled_borders
from latentmill.datasets.exposure import Exposure, exposure
from latentmill.datasets.likeness import Likeness, likeness
from latentmill.datasets.sharpness import edge_width, sampled

MEASURES_VERSION = 2
"""Raise when the same pixels would give other numbers than before."""

SIDES_PX = (512, 1024)
"""Edges are told in px of copies of these areas (sides of squares): what training will see."""

_ROUNDED_UP = 0.7  # Reduce by 4, not 3, from 3.3 on: two halvings cost half as much.


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured once, whatever the limits.

    `edges` are their widths (sigma) in px of copies of SIDES_PX, or of the picture where it is
    smaller. `blocks` is the share of block edges that show. `quality` is that of the JPEG file
    (1..100, 0 for other formats).
    """

    edges: tuple[float, ...]
    exposure: Exposure
    borders: Borders
    blocks: float
    quality: int
    likeness: Likeness

    def edge_at(self, side: int) -> float:
        """Return the width of edges (sigma) in px of a copy of the area of a square of `side`."""
        nearest = next((at for at, least in enumerate(SIDES_PX) if least >= side), -1)
        return self.edges[nearest] * min(1.0, side / SIDES_PX[nearest])


def measure(image: Image.Image, large: Image.Image, quality: int) -> Measures:
    """Measure an upright RGB picture; `large` is its reduced copy, `quality` its JPEG file's."""
    small = reduced(large, SIDES_PX[0])
    borders = find_borders(small)
    inner = borders.inside(small)
    inner_large = scaled_borders(borders, small, large).inside(large)
    return Measures(
        (_edge(inner, SIDES_PX[0]), _edge(inner_large, SIDES_PX[1])),
        exposure(inner),
        scaled_borders(borders, small, image),
        blockiness(image),
        quality,
        likeness(small),
    )


def measures_from_json(values: Mapping[str, Any]) -> Measures:
    """Return what `dataclasses.asdict` made of measures; raise TypeError or KeyError for less."""
    return Measures(
        tuple(values["edges"]),
        Exposure(**values["exposure"]),
        Borders(**values["borders"]),
        values["blocks"],
        values["quality"],
        Likeness(**values["likeness"]),
    )


def reduced(image: Image.Image, side: int) -> Image.Image:
    """Return a copy of about the area of a square of `side` px; a smaller picture as it is.

    Every second row and column of a large picture is left out first, which halves the time; what
    is left is averaged.
    """
    factor = int((image.width * image.height) ** 0.5 / side + _ROUNDED_UP)
    if factor >= 4:
        half = (image.width // 2, image.height // 2)
        image, factor = image.resize(half, Image.Resampling.NEAREST), factor // 2
    return image.reduce(factor) if factor > 1 else image


def _edge(image: Image.Image, side: int) -> float:
    own = (image.width * image.height) ** 0.5
    grey = np.asarray(image.convert("L"))
    parts = sampled(grey) if own > SIDES_PX[0] * 1.5 else grey
    width = edge_width(parts.astype(np.float32)) * min(1.0, side / own)
    return round(float(width), 3)
