"""BLIP: the prefix goes before the text that the decoder writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentmill.stages.captioning.generation import Captioner, Search, room_after, searched

if TYPE_CHECKING:
    from PIL import Image


def generate(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    """The text after the prefix, for each picture."""
    import torch

    tokenizer = captioner.processor.tokenizer
    prompt: list[int] = tokenizer(search.prefix.strip())["input_ids"]
    prompts = torch.tensor([prompt] * len(images), device=captioner.device)
    room = room_after(captioner.model.config.text_config, prompt)
    tokens = captioner.model.generate(
        pixel_values=captioner.pixels(images),
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        **searched(search, room),
    )
    # BLIP drops the prompt's last token ([SEP]) and turns the first into [DEC].
    return list(tokenizer.batch_decode(tokens[:, len(prompt) - 1 :], skip_special_tokens=True))
