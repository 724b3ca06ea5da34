"""GIT: one decoder over picture and text, which goes on after the prefix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentmill.stages.captioning.generation import (
    Captioner,
    Search,
    after,
    room_after,
    searched,
    token_rows,
)

if TYPE_CHECKING:
    from PIL import Image


def generate(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    """The text after the prefix, for each picture."""
    tokenizer = captioner.processor.tokenizer
    words = tokenizer(search.prefix.strip(), add_special_tokens=False)["input_ids"]
    prompt = [tokenizer.cls_token_id, *words]
    prompts = token_rows(prompt, images, captioner.device)
    tokens = captioner.model.generate(
        pixel_values=captioner.pixels(images),
        input_ids=prompts,
        attention_mask=prompts.new_ones(prompts.shape),
        **searched(search, room_after(captioner.model.config, prompt)),
    )
    return list(tokenizer.batch_decode(after(tokens, prompt), skip_special_tokens=True))
