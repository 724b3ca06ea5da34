"""Pixels -> how plainly the 8 x 8 grid of a JPEG shows in them, also when saved again since."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BLOCK_PX = 8
_TILE_PX = 192
_TILES = 3  # Each way: a fixed sample of a large picture.
_TIMES, _LEVELS = 1.3, 3  # By this a step on the grid must stand out from the steps beside it.
_FEW_COLOURS = 64  # Drawn cell by cell, as pixel art is: rounding leaves a JPEG many more.
_LEAST_EDGES = 1000  # In all eight places: fewer are left to chance.
_STANDARD_SUM = 3680
"""Sum of the brightness table of the JPEG standard (Annex K), which libjpeg calls quality 50."""

Grey = NDArray[np.int16]


def blockiness(image: Image.Image) -> float:
    """Return the share of block edges that stand out, less what stands out by chance.

    About 0 for an untouched photograph, and for one scaled after it was compressed. The grid may
    begin anywhere, so cropped copies are told as well. 0 for a picture of few colours.
    """
    if image.getcolors(_FEW_COLOURS) is not None:
        return 0.0
    samples = [np.asarray(tile.convert("L"), dtype=np.int16) for tile in _tiles(image)]
    across = _contrast(samples)
    down = _contrast([np.ascontiguousarray(sample.T) for sample in samples])
    return round(max(0.0, min(across, down)), 3)


def quality_of(tables: Mapping[int, Sequence[int]]) -> int:
    """Return the libjpeg quality 1..100 that coarsens brightness as much; 0 without a table."""
    if not tables or len(tables[min(tables)]) != BLOCK_PX**2:
        return 0
    share = sum(tables[min(tables)]) / _STANDARD_SUM
    return max(1, min(100, round(50 / share if share > 1 else 100 - 50 * share)))


def _tiles(image: Image.Image) -> list[Image.Image]:
    width, height = min(image.width, _TILE_PX), min(image.height, _TILE_PX)
    lefts, tops = _starts(image.width), _starts(image.height)
    return [image.crop((x, y, x + width, y + height)) for y in tops for x in lefts]


def _starts(length: int) -> list[int]:
    """Return where samples begin: on multiples of 8, for all to see the grid at one place."""
    room = max(0, length - _TILE_PX)
    return sorted({room * at // (_TILES - 1) // BLOCK_PX * BLOCK_PX for at in range(_TILES)})


def _contrast(samples: Sequence[Grey]) -> float:
    """Compare the place where most vertical edges stand out with the next best of the eight."""
    edges, standing = np.zeros(BLOCK_PX), np.zeros(BLOCK_PX)
    for sample in samples:
        if min(sample.shape) < 2 * BLOCK_PX:
            continue
        high, wide = sample.shape[0] // BLOCK_PX, sample.shape[1]
        steps = np.abs(np.diff(sample[: high * BLOCK_PX], axis=1))
        sums = steps.reshape(high, BLOCK_PX, wide - 1).sum(axis=1, dtype=np.int32)
        beside = np.maximum(sums[:, :-2], sums[:, 2:])
        stands = sums[:, 1:-1] > _TIMES * beside + _LEVELS * BLOCK_PX
        place = np.arange(1, wide - 2) % BLOCK_PX
        edges += np.bincount(place, minlength=BLOCK_PX) * high
        standing += np.bincount(place, stands.sum(axis=0), BLOCK_PX)
    if edges.sum() < _LEAST_EDGES:
        return 0.0
    next_best, best = np.sort(standing / np.maximum(edges, 1))[-2:]
    return float(best - next_best)
