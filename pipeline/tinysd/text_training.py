"""Teaches the text encoder what the captions name, before any picture is seen."""

from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy

from latentmill.pipeline.tinysd.architecture import TEXT_WIDTH
from latentmill.pipeline.tinysd.batches import random_drawings
from latentmill.pipeline.tinysd.captions import embed, varied_caption
from latentmill.pipeline.tinysd.drawing import COLOURS, SHAPES, Drawing
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

_UNNAMED: Final = -100
_NUM_COLOURS: Final = len(COLOURS)


def train_text_encoder(pipeline: "StableDiffusionPipeline", plan: Plan, seed: int) -> float:
    """Train in place until the mean over all positions tells shape, colour and ground.

    A UNet's attention starts out as that mean. Trained through the noise alone at full size,
    captions were still ignored after 1,800 steps: flat colours show through almost any noise.
    """
    random = Random(seed)
    head = Linear(TEXT_WIDTH, len(SHAPES) + 2 * _NUM_COLOURS)

    def loss_of_batch() -> Tensor:
        drawings = random_drawings(random, plan.batch_size, hatched_share=0.0)
        captions = [varied_caption(drawing, random) for drawing in drawings]
        return _loss(head(embed(pipeline, captions).mean(dim=1)), drawings, captions)

    encoder = pipeline.text_encoder
    encoder.train()
    loss = fit([*encoder.parameters(), *head.parameters()], loss_of_batch, plan)
    encoder.eval()
    return loss


def _loss(scores: Tensor, drawings: list[Drawing], captions: list[str]) -> Tensor:
    """Compare with what each caption names; what it leaves out does not count."""
    shapes, colours, grounds = torch.split(scores, [len(SHAPES), _NUM_COLOURS, _NUM_COLOURS], dim=1)
    names = list(COLOURS)
    pairs = list(zip(drawings, captions, strict=True))
    of_shape = [SHAPES.index(d.shape) if d.shape in c else _UNNAMED for d, c in pairs]
    of_colour = [names.index(d.colour) if d.shape in c else _UNNAMED for d, c in pairs]
    of_ground = [names.index(d.ground) if "background" in c else _UNNAMED for d, c in pairs]
    return (
        cross_entropy(shapes, torch.tensor(of_shape), ignore_index=_UNNAMED)
        + cross_entropy(colours, torch.tensor(of_colour), ignore_index=_UNNAMED)
        + cross_entropy(grounds, torch.tensor(of_ground), ignore_index=_UNNAMED)
    )
