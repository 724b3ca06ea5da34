"""A picture -> the bars or the frame of one colour around it, in px."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_EVEN = 12  # Levels between px of one colour: compression leaves noise in a black bar.
_LEAST = 0.015  # Share of a side; thinner lines are no matter.
_MOST = 0.45
_BOUNDED = 0.6  # Share of the line behind a border that must differ from it.
_STEP = 20  # Levels by which it must.
_STRAY = 0.01  # Share of a line that may differ nevertheless.
_RINGING = 0.032  # Share of a side: compression spreads an edge over 16 px.

Pixels = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Borders:
    """Width of each border in px, 0 where there is none."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    @property
    def found(self) -> bool:
        """Whether there is any."""
        return bool(self.left or self.top or self.right or self.bottom)

    def inside(self, image: Image.Image) -> Image.Image:
        """Return what is inside the borders."""
        if not self.found:
            return image
        size = (image.width - self.right, image.height - self.bottom)
        return image.crop((self.left, self.top, *size))


def find_borders(small: Image.Image) -> Borders:
    """Find bars on opposite sides, or all around, that end in a straight edge.

    A subject on a plain ground has none: what is behind the ground's last line is mostly ground.
    """
    pixels = np.asarray(small, dtype=np.int16)
    top, bottom = _pair(pixels)
    left, right = _pair(pixels[top : pixels.shape[0] - bottom].transpose(1, 0, 2))
    return Borders(left, top, right, bottom)


def scaled_borders(borders: Borders, small: Image.Image, image: Image.Image) -> Borders:
    """Bring borders of a small copy to the px of the picture that it was made from."""
    wide, high = image.width / small.width, image.height / small.height
    return Borders(
        _placed(image, borders.left, wide, Image.Transpose.ROTATE_270),
        _placed(image, borders.top, high, None),
        _placed(image, borders.right, wide, Image.Transpose.ROTATE_90),
        _placed(image, borders.bottom, high, Image.Transpose.ROTATE_180),
    )


def _placed(image: Image.Image, depth: int, scale: float, turn: Image.Transpose | None) -> int:
    """Find the line of the greatest step within two px of the small copy; `turn` puts it on top."""
    if not depth or scale == 1:
        return depth
    first, last = max(0, int((depth - 2) * scale)), int((depth + 2) * scale) + 1
    width, height = image.size
    boxes = {
        None: (0, first, width, last),
        Image.Transpose.ROTATE_180: (0, height - last, width, height - first),
        Image.Transpose.ROTATE_270: (first, 0, last, height),
        Image.Transpose.ROTATE_90: (width - last, 0, width - first, height),
    }
    strip = image.crop(boxes[turn])
    lines = np.asarray(strip if turn is None else strip.transpose(turn), dtype=np.int16)
    steps = np.abs(np.diff(lines, axis=0)).mean(axis=(1, 2))
    return first + 1 + int(steps.argmax())


def _pair(pixels: Pixels) -> tuple[int, int]:
    first, last = _depth(pixels), _depth(pixels[::-1])
    return (first, last) if first and last else (0, 0)


def _depth(pixels: Pixels) -> int:
    """Return how many lines from the first are of its colour, if what follows is clearly not."""
    colour = np.median(pixels[0], axis=0)
    least = max(1, math.ceil(len(pixels) * _LEAST))
    if (np.abs(pixels[0] - colour).max(axis=1) > _EVEN).mean() > _STRAY:
        return 0
    reach, ringing = int(len(pixels) * _MOST), max(1, round(len(pixels) * _RINGING))
    far = np.abs(pixels[: reach + ringing] - colour).max(axis=2)
    odd = (far > _EVEN).mean(axis=1) > _STRAY
    even = int(odd.argmax()) if odd.any() else 0
    bounded = (far[even : even + ringing] > _STEP).mean(axis=1) >= _BOUNDED
    depth = even + int(bounded.argmax())
    return depth if bounded.any() and depth >= least else 0
