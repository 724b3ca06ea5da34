"""A small copy of a picture -> what near-duplicates have in common, mirrored ones too."""

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

HASH_BITS = 64
_GRID = 8
_HASHED_PX = 64


@dataclass(frozen=True, slots=True)
class Likeness:
    """`hash` and `mirrored` are perceptual hashes of a picture and its mirror image, in hex.

    `colours` are its 8 x 8 mean colours in base64. `contrast` is the standard deviation of its grey
    levels: without contrast a hash is noise.
    """

    hash: str
    mirrored: str
    colours: str
    contrast: float


def likeness(small: Image.Image) -> Likeness:
    """Measure an RGB picture, of which a reduced copy serves."""
    import imagehash

    grey = small.convert("L").resize((_HASHED_PX, _HASHED_PX), Image.Resampling.BOX)
    grid = small.resize((_GRID, _GRID), Image.Resampling.BOX)
    return Likeness(
        str(imagehash.phash(grey)),
        str(imagehash.phash(ImageOps.mirror(grey))),
        base64.b64encode(grid.tobytes()).decode("ascii"),
        round(float(np.asarray(grey, dtype=np.float64).std()), 2),
    )


def colour_grids(encoded: list[str]) -> NDArray[np.float32]:
    """Return [n, 8, 8, 3] mean colours from `Likeness.colours`."""
    joined = b"".join(base64.b64decode(one) for one in encoded)
    return np.frombuffer(joined, np.uint8).reshape(-1, _GRID, _GRID, 3).astype(np.float32)
