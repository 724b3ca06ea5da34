"""Florence-2: its captioning task as the question; the answer begins with the prefix."""

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

TASK = "<CAPTION>"


def generate(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    """The text after the prefix, for each picture."""
    processor, config = captioner.processor, captioner.model.config.text_config
    tokenizer = processor.tokenizer
    inputs = processor(images=list(images), text=[TASK] * len(images), return_tensors="pt")
    begun: list[int] = []
    extra = {}
    if prefix := search.prefix.strip():
        begun = [config.decoder_start_token_id, config.bos_token_id]
        begun += tokenizer(prefix, add_special_tokens=False)["input_ids"]
        extra["decoder_input_ids"] = token_rows(begun, images, captioner.device)
    tokens = captioner.model.generate(
        pixel_values=inputs["pixel_values"].to(captioner.device, captioner.model.dtype),
        input_ids=inputs["input_ids"].to(captioner.device),
        attention_mask=inputs["attention_mask"].to(captioner.device),
        **extra,
        **searched(search, room_after(config, begun)),
    )
    return list(tokenizer.batch_decode(after(tokens, begun), skip_special_tokens=True))
