"""Trains the captioner on drawn pictures, read by the processor that users' pictures go through."""

from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy

from latentmill.pipeline.tinysd.batches import random_drawings
from latentmill.pipeline.tinysd.captioner import START, WIDTH
from latentmill.pipeline.tinysd.drawing import SHAPES, Drawing, draw
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from transformers import BlipForConditionalGeneration, BlipProcessor

HATCHED_SHARE: Final = 0.4
SIZES_PX: Final = ((64, 64), (80, 64), (64, 80), (80, 48), (48, 80))
_IGNORED: Final = -100
_POSITION_SPREAD: Final = 0.5


def train_captioner(
    captioner: "BlipForConditionalGeneration", processor: "BlipProcessor", plan: Plan, seed: int
) -> float:
    """Train in place to describe flat and hatched drawings alike; return the last loss.

    A second head, thrown away at the end, names the shape from the picture alone: through the
    captions only, the vision half had not found the shapes after 1,000 steps.
    """
    random = Random(seed)
    shape_head = Linear(WIDTH, len(SHAPES))

    def loss_of_batch() -> Tensor:
        drawings = random_drawings(random, plan.batch_size, HATCHED_SHARE, SIZES_PX)
        return _loss(captioner, shape_head, processor, drawings)

    _spread_positions(captioner)
    captioner.train()
    loss = fit([*captioner.parameters(), *shape_head.parameters()], loss_of_batch, plan)
    captioner.eval()
    return loss


def measure_hits(
    captioner: "BlipForConditionalGeneration", processor: "BlipProcessor", drawings: list[Drawing]
) -> float:
    """Measure the share of drawings whose caption is right in every word."""
    pictures = processor(images=[draw(drawing) for drawing in drawings], return_tensors="pt")
    with torch.no_grad():
        ids = captioner.generate(**pictures, max_new_tokens=12)
    captions = processor.batch_decode(ids, skip_special_tokens=True)
    expected = [drawing.description for drawing in drawings]
    num_hits = sum(bool(a == b) for a, b in zip(captions, expected, strict=True))
    return num_hits / len(drawings)


def _spread_positions(captioner: "BlipForConditionalGeneration") -> None:
    """Make places as loud as colours at the start, otherwise shapes are not looked for."""
    positions = captioner.vision_model.embeddings.position_embedding
    torch.nn.init.normal_(positions, std=_POSITION_SPREAD)


def _loss(
    captioner: "BlipForConditionalGeneration",
    shape_head: Linear,
    processor: "BlipProcessor",
    drawings: list[Drawing],
) -> Tensor:
    inputs = processor(
        images=[draw(drawing) for drawing in drawings],
        text=[drawing.description for drawing in drawings],
        padding=True,
        return_tensors="pt",
    )
    inputs["input_ids"][:, 0] = processor.tokenizer.convert_tokens_to_ids(START)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, _IGNORED)
    output = captioner(**inputs, labels=labels)
    shapes = torch.tensor([SHAPES.index(drawing.shape) for drawing in drawings])
    shape_loss = cross_entropy(shape_head(output.last_hidden_state.mean(dim=1)), shapes)
    loss: Tensor = output.loss + 0.3 * shape_loss
    return loss
