"""BLIP: a hub id or folder and pictures to one line of text for each."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from latentmill.cache.memory import is_out_of_memory
from latentmill.cache.models.weights import quiet
from latentmill.datasets.errors import ModelError, OutOfMemoryError, UsageError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.blip_folder import find_model
from latentmill.stages.captioning.halving import first_line, in_halves, too_large
from latentmill.stages.device import choose_device

if TYPE_CHECKING:
    import torch
    from PIL import Image

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Captioner:
    """A loaded BLIP: the model, its processor and the device it is on."""

    model: Any
    processor: Any
    device: "torch.device"


@dataclass(frozen=True, slots=True)
class Search:
    """How text is searched for: deterministic beams after a prefix, up to so many new tokens."""

    prefix: str
    num_beams: int
    max_tokens: int


@lru_cache(maxsize=1)
def load_captioner(model: str, revision: str, device: str) -> Captioner:
    """Load BLIP once per process.

    Raises ModelError when it cannot be had, and when weights are missing or left over: a model
    with random layers writes word salad.
    """
    from transformers import BlipForConditionalGeneration, BlipProcessor

    target = choose_device(device, "caption.device")
    folder = find_model(model, revision)
    _log.info("loading the captioner %s", model)
    with quiet():
        try:
            processor = BlipProcessor.from_pretrained(str(folder), local_files_only=True)
            loaded, info = BlipForConditionalGeneration.from_pretrained(
                str(folder), local_files_only=True, output_loading_info=True
            )
            loaded = loaded.eval().to(target)
        except Exception as error:  # Damaged files raise whatever they like.
            if is_out_of_memory(error):
                raise _does_not_fit(target, first_line(error)) from error
            raise ModelError(
                f"the captioner {model} cannot be read: {first_line(error)}",
                where=str(folder),
                expected="a BLIP captioning model as `save_pretrained` writes it",
                fix="fetch it again, or name another one",
                run=(Command("caption", settings=("caption.model=DIR",)),),
            ) from error
    _require_all_weights(model, info)
    return Captioner(loaded, processor, target)


def describe(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    """One text for each RGB picture, the prefix included; empty where nothing was generated.

    Out of memory, the batch is halved. Raises OutOfMemoryError when one picture is too much.
    """
    return in_halves(
        lambda some: _generate(captioner, some, search),
        images,
        "picture",
        captioner.device,
        lambda reason: _does_not_fit(captioner.device, reason),
    )


def _generate(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    import torch

    tokenizer = captioner.processor.tokenizer
    prompt: list[int] = tokenizer(search.prefix.strip())["input_ids"]
    pixels = captioner.processor(images=list(images), return_tensors="pt")["pixel_values"]
    prompts = torch.tensor([prompt] * len(images), device=captioner.device)
    with torch.inference_mode(), quiet():
        tokens = captioner.model.generate(
            pixel_values=pixels.to(captioner.device, captioner.model.dtype),
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            num_beams=search.num_beams,
            max_new_tokens=min(search.max_tokens, _room_after(captioner, prompt)),
            do_sample=False,
        )
    # BLIP drops the prompt's last token ([SEP]) and turns the first into [DEC].
    added = tokenizer.batch_decode(tokens[:, len(prompt) - 1 :], skip_special_tokens=True)
    return [_joined(search.prefix, text) for text in added]


def _room_after(captioner: Captioner, prompt: Sequence[int]) -> int:
    """How many tokens the model's positions leave for text after the prompt."""
    positions: int = captioner.model.config.text_config.max_position_embeddings
    if positions <= len(prompt):
        raise UsageError(
            "caption.prefix is too long for the captioner",
            where=f"caption.prefix has {len(prompt)} tokens",
            expected=f"fewer than {positions}",
            fix="shorten caption.prefix",
        )
    return positions - len(prompt)


def _joined(prefix: str, added: str) -> str:
    return " ".join(part for part in (prefix.strip(), " ".join(added.split())) if part)


def _require_all_weights(model: str, info: dict[str, Any]) -> None:
    faults = [
        f"{len(names)} {what} ({', '.join(map(str, sorted(names, key=str)[:3]))})"
        for what, names in (
            ("missing", info.get("missing_keys", ())),
            ("not of this model", info.get("unexpected_keys", ())),
            ("of another size", info.get("mismatched_keys", ())),
        )
        if names
    ]
    if faults:
        raise ModelError(
            f"the weights of {model} are not those of a BLIP captioner",
            where="; ".join(faults),
            expected="every weight of BlipForConditionalGeneration, and no other",
            fix="fetch the model again, or name another one",
            run=(Command("caption", settings=("caption.model=DIR",)),),
        )


def _does_not_fit(device: "torch.device", reason: str) -> OutOfMemoryError:
    settings = ("caption.num_beams=1", "caption.device=cpu")
    return too_large("the captioner", reason, device, settings)
