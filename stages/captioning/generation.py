"""What every kind of captioner shares: the loaded model, how text is searched for, its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from latentmill.datasets.errors import UsageError

if TYPE_CHECKING:
    import torch
    from PIL import Image


@dataclass(frozen=True, slots=True)
class Captioner:
    """A loaded captioner: its kind (`model_type`), the model, its processor and its device."""

    kind: str
    model: Any
    processor: Any
    device: "torch.device"

    def pixels(self, images: "Sequence[Image.Image]") -> "torch.Tensor":
        """The pictures `[n, 3, h, w]` as the model takes them."""
        values = self.processor.image_processor(images=list(images), return_tensors="pt")
        pixels: torch.Tensor = values["pixel_values"].to(self.device, self.model.dtype)
        return pixels


@dataclass(frozen=True, slots=True)
class Search:
    """How text is searched for: deterministic beams after a prefix, up to so many new tokens."""

    prefix: str
    num_beams: int
    max_tokens: int


def searched(search: Search, room: int) -> dict[str, Any]:
    """The arguments of `generate` for a search with `room` tokens left."""
    return {
        "num_beams": search.num_beams,
        "max_new_tokens": min(search.max_tokens, room),
        "do_sample": False,
    }


def token_rows(
    tokens: Sequence[int], images: "Sequence[Image.Image]", device: "torch.device"
) -> "torch.Tensor":
    """The same tokens for each picture, `[n, length]`."""
    import torch

    return torch.tensor([list(tokens)] * len(images), device=device)


def after(tokens: "torch.Tensor", prompt: Sequence[int]) -> "torch.Tensor":
    """The tokens behind the prompt; releases differ in whether it is given back."""
    length = len(prompt)
    is_given_back = tokens.shape[1] >= length and bool(
        (tokens[:, :length] == tokens.new_tensor(list(prompt))).all()
    )
    return tokens[:, length:] if is_given_back else tokens


def room_after(config: Any, prompt: Sequence[int]) -> int:
    """How many tokens the model's positions leave for text after the prompt."""
    positions = getattr(config, "max_position_embeddings", None)  # T5 counts none.
    if positions is None:
        return 10_000
    if positions <= len(prompt):
        raise UsageError(
            "caption.prefix is too long for the captioner",
            where=f"the prompt has {len(prompt)} tokens",
            expected=f"fewer than {positions}",
            fix="shorten caption.prefix",
        )
    return int(positions) - len(prompt)
