"""BLIP-2: places for the picture, then the prefix, before what a language model writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentmill.datasets.errors import ModelError
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
    """The text after the prefix, for each picture.

    Of a language model with its own encoder (T5) the decoder begins with the prefix.
    """
    tokenizer, config = captioner.processor.tokenizer, captioner.model.config
    place = getattr(config, "image_token_index", None)
    if place is None:
        raise ModelError(
            "this BLIP-2 has no token for the picture: its config.json lacks `image_token_index`",
            where="caption.model",
            fix="fetch a newer revision of it, or name another captioner",
        )
    prefix = search.prefix.strip()
    is_decoder = not config.text_config.is_encoder_decoder
    prompt = [place] * config.num_query_tokens
    prompt += tokenizer(prefix if is_decoder else "")["input_ids"]
    begun: list[int] = []
    extra = {}
    if prefix and not is_decoder:
        begun = [config.text_config.decoder_start_token_id]
        begun += tokenizer(prefix, add_special_tokens=False)["input_ids"]
        extra["decoder_input_ids"] = token_rows(begun, images, captioner.device)
    prompts = token_rows(prompt, images, captioner.device)
    tokens = captioner.model.generate(
        pixel_values=captioner.pixels(images),
        input_ids=prompts,
        attention_mask=prompts.new_ones(prompts.shape),
        **extra,
        **searched(search, room_after(config.text_config, prompt if is_decoder else begun)),
    )
    new = after(tokens, prompt if is_decoder else begun)
    return list(tokenizer.batch_decode(new, skip_special_tokens=True))
