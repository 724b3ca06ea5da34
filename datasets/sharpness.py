"""A grey picture -> how wide its sharpest edges are, whatever their contrast."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_TILE_PX = 24
_LEAST_GRADIENT = 1.0  # Levels per px, root mean square over a tile: below it noise decides.
_SHARPEST = 0.05  # Share of all tiles that decide: a subject in focus is enough.
_LEAST_TILES = 3
_SAMPLE_PX = 3 * _TILE_PX + 5
_EVERY_PX = 3 * _SAMPLE_PX

Grey = NDArray[np.floating[Any]]


def edge_width(grey: Grey) -> float:
    """Return the sigma in px of the blur on the sharpest edges; 0 where there are none to judge.

    `grey` is [h, w], or [n, h, w] for parts of one picture, of 24 px and more each way. An edge of
    width s keeps the share s^2 / (s^2 + 1) of its squared slope when it is blurred by one more px
    (after Zhuo and Sim, 2011): the loss tells s, whatever the contrast. The softer of the two
    directions counts, for a camera that moved blurs one of them only.
    """
    if min(grey.shape[-2:]) < _TILE_PX:
        return 0.0
    smooth = _blurred(grey)
    sharp = grey[..., 2:-2, 2:-2]
    widths = [_sharpest(_energy(sharp, axis), _energy(smooth, axis)) for axis in (-1, -2)]
    return round(max(widths), 3)


def sampled(grey: Grey) -> Grey:
    """Return a ninth of a picture as [n, h, w]: parts spread evenly, which cost less to judge."""
    if min(grey.shape) < _EVERY_PX:
        return grey
    shape = (_SAMPLE_PX, _SAMPLE_PX)
    parts = np.lib.stride_tricks.sliding_window_view(grey, shape)[::_EVERY_PX, ::_EVERY_PX]
    return parts.reshape(-1, *shape)


def _blurred(grey: Grey) -> Grey:
    """Blur by one px ([1, 4, 6, 4, 1] / 16 each way); two px are lost on each side."""
    for _ in range(2):
        grey = (grey[..., 2:, :] + grey[..., :-2, :]) * 0.25 + grey[..., 1:-1, :] * 0.5
        grey = (grey[..., 2:] + grey[..., :-2]) * 0.25 + grey[..., 1:-1] * 0.5
    return grey


def _energy(grey: Grey, axis: int) -> Grey:
    """Return the variance of the slope in each tile: an even ramp is no edge."""
    slope = np.diff(grey, axis=axis)
    side = min(_TILE_PX, *slope.shape[-2:])
    high, wide = slope.shape[-2] // side, slope.shape[-1] // side
    whole = slope[..., : high * side, : wide * side]
    tiles = whole.reshape(-1, high, side, wide, side)
    count = side * side
    mean = np.einsum("nabcd->nac", tiles) / count
    energy: Grey = np.einsum("nabcd,nabcd->nac", tiles, tiles) / count - mean * mean
    return energy


def _sharpest(energy: Grey, left: Grey) -> float:
    clear = energy >= _LEAST_GRADIENT**2
    needed = max(_LEAST_TILES, int(energy.size * _SHARPEST))
    if np.count_nonzero(clear) < needed:
        return 0.0
    kept = np.sort(np.clip(left[clear] / energy[clear], 0.0, 0.999))[:needed]
    share = float(np.median(kept))
    return float((share / (1 - share)) ** 0.5)
