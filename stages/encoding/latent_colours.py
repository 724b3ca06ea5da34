"""Fits the linear map from latents to colours that quick previews use."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from latentmill.cache.mapped import LatentToRgb

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_RIDGE = 1e-4
_DECIMALS = 5


def fit_latent_to_rgb(pairs: "Iterable[tuple[torch.Tensor, Image]]") -> LatentToRgb:
    """Fit by least squares over pairs of an unscaled latent mean [c, h, w] and its picture.

    Colours are averaged over the pixels of each latent cell. Flat pictures leave the fit
    undecided: a small ridge makes it unique. Results are rounded, so that they repeat.
    """
    import torch

    moments, total, squares, num_cells = None, None, 0.0, 0
    for latent, picture in pairs:
        inputs, colours = _cells(latent, picture)
        moments = inputs.T @ inputs + (0 if moments is None else moments)
        total = inputs.T @ colours + (0 if total is None else total)
        squares += float((colours**2).sum())
        num_cells += len(inputs)
    assert moments is not None and total is not None
    ridge = _RIDGE * num_cells * torch.eye(len(moments), dtype=torch.float64)
    solution = torch.linalg.solve(moments + ridge, total)
    unexplained = squares - 2 * (solution * total).sum() + (solution * (moments @ solution)).sum()
    error = (max(float(unexplained), 0.0) / (3 * num_cells)) ** 0.5
    rounded = solution.T.round(decimals=_DECIMALS).float()
    return LatentToRgb(rounded[:, :-1].contiguous(), rounded[:, -1].contiguous(), round(error, 4))


def _cells(latent: "torch.Tensor", picture: "Image") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the latent's cells with a one [h*w, c+1] and their mean colours [h*w, 3], 0 to 1."""
    import torch
    from PIL.Image import Resampling

    channels, height, width = latent.shape
    small = picture.resize((width, height), Resampling.BOX)
    colours = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).reshape(-1, 3)
    values = latent.double().reshape(channels, -1).T
    ones = torch.ones(len(values), 1, dtype=torch.float64)
    return torch.cat([values, ones], dim=1), colours.double() / 255
