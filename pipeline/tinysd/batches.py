"""Turns random drawings into picture tensors."""

from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from latentmill.pipeline.tinysd.drawing import Drawing, draw, random_drawing

SIZES_PX: Final = ((64, 64), (64, 64), (80, 48), (48, 80))
"""Width and height of the training pictures; squares are as frequent as the other two."""


def random_drawings(
    random: Random,
    num: int,
    hatched_share: float,
    sizes_px: Sequence[tuple[int, int]] = SIZES_PX,
) -> list[Drawing]:
    """Choose drawings of one size, the size by chance too."""
    width, height = random.choice(sizes_px)
    return [
        random_drawing(
            random, hatched=random.random() < hatched_share, width_px=width, height_px=height
        )
        for _ in range(num)
    ]


def drawn_tensor(drawings: Sequence[Drawing]) -> Tensor:
    """Draw one batch `[N, 3, height, width]`, values from -1 to 1."""
    return torch.stack([picture_tensor(draw(drawing)) for drawing in drawings])


def picture_tensor(picture: Image.Image) -> Tensor:
    """Turn an RGB picture into `[3, height, width]`, values from -1 to 1."""
    pixels = np.asarray(picture, dtype=np.float32) / 127.5 - 1.0
    return torch.from_numpy(pixels).permute(2, 0, 1)
