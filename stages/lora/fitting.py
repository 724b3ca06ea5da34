"""Refuses a LoRA that does not belong to a UNet, or that holds no numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latentmill.datasets.errors import DivergedError, UsageError

if TYPE_CHECKING:
    import torch

    from latentmill.stages.lora.layouts import LoraLayer, LoraWeights


@dataclass(frozen=True, slots=True)
class Pair:
    """What is put together, for messages."""

    lora: Path
    model: str


def require_fit(lora: "LoraWeights", unet: "torch.nn.Module", pair: Pair) -> None:
    """Raise UsageError when layers of the LoRA are not in the UNet or have another shape there.

    Raises DivergedError for weights that are not finite.
    """
    import torch

    shapes = {name: tuple(at.shape) for name, at in unet.named_parameters()}
    unfit = [
        name for name, layer in lora.layers.items() if shapes.get(f"{name}.weight") != _shape(layer)
    ]
    if unfit:
        raise UsageError(
            f"{len(unfit)} of {len(lora.layers)} layers of the LoRA do not fit the model's UNet, "
            f"such as {unfit[0]}",
            where=f"{pair.lora} on {pair.model}",
            expected="a LoRA that was trained for this model",
            fix="give the model that it was trained for with --model",
        )
    tensors = [part for at in lora.layers.values() for part in (at.down, at.up)]
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise DivergedError(
            "the LoRA holds numbers that are not finite: its training diverged",
            where=str(pair.lora),
            fix="train again with half of train.learning_rate, or use an earlier file of the run",
        )


def _shape(layer: "LoraLayer") -> tuple[int, ...]:
    return (int(layer.up.shape[0]), *(int(side) for side in layer.down.shape[1:]))
