"""Varies the captions of drawings and encodes them as SD 1.x does."""

from random import Random
from typing import TYPE_CHECKING, Final

from latentmill.pipeline.tinysd.drawing import Drawing

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline
    from torch import Tensor

CAPTION_DROPOUT: Final = 0.1
_OPENINGS: Final = ("a picture of", "a photo of", "a small drawing of", "a good picture of")


def varied_caption(drawing: Drawing, random: Random) -> str:
    """Drop the caption, open it with other words or leave out the ground, each by chance."""
    chance = random.random()
    if chance < CAPTION_DROPOUT:
        return ""
    if chance < 0.4:
        return f"{random.choice(_OPENINGS)} {drawing.description}"
    if chance < 0.5:
        return drawing.description.split(" on ")[0]
    return drawing.description


def embed(pipeline: "StableDiffusionPipeline", captions: list[str]) -> "Tensor":
    """Encode captions as SD 1.x does: padded to 77 tokens, last hidden state `[N, 77, width]`."""
    tokens = pipeline.tokenizer(
        captions, padding="max_length", truncation=True, return_tensors="pt"
    )
    hidden: Tensor = pipeline.text_encoder(tokens.input_ids).last_hidden_state
    return hidden
