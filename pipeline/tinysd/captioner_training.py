"""Trains the captioner on drawn pictures, read by the processor that users' pictures go through."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from latentmill.pipeline.tinysd.batches import random_drawings
from latentmill.pipeline.tinysd.captioner import START
from latentmill.pipeline.tinysd.drawing import COLOURS, Drawing, draw
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from transformers import BlipForConditionalGeneration, BlipProcessor

HATCHED_SHARE: Final = 0.4
_IGNORED: Final = -100


def train_captioner(
    captioner: "BlipForConditionalGeneration",
    processor: "BlipProcessor",
    plan: Plan,
    seed: int,
    colours: Sequence[str] = tuple(COLOURS),
) -> float:
    """Train in place to describe flat and hatched drawings alike; return the last loss."""
    random = Random(seed)

    def loss_of_batch() -> Tensor:
        drawings = random_drawings(random, plan.batch_size, HATCHED_SHARE, colours)
        return _loss(captioner, processor, drawings)

    captioner.train()
    loss = fit(captioner.parameters(), loss_of_batch, plan)
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


def _loss(
    captioner: "BlipForConditionalGeneration", processor: "BlipProcessor", drawings: list[Drawing]
) -> Tensor:
    inputs = processor(
        images=[draw(drawing) for drawing in drawings],
        text=[drawing.description for drawing in drawings],
        padding=True,
        return_tensors="pt",
    )
    tokenizer = processor.tokenizer
    inputs["input_ids"][:, 0] = tokenizer.convert_tokens_to_ids(START)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, _IGNORED)
    loss: Tensor = captioner(**inputs, labels=labels).loss
    return loss
