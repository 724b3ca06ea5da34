"""Chooses the UNet's layers for a LoRA, attaches it with PEFT, and takes its weights out again."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from latentmill.datasets.errors import UsageError
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights

if TYPE_CHECKING:
    from torch import Generator
    from torch.nn import Module, Parameter

log = logging.getLogger(__name__)

ADAPTER: Final = "default"
ATTENTION: Final = (".to_q", ".to_k", ".to_v", ".to_out.0")


@dataclass(frozen=True, slots=True)
class LoraShape:
    """Which layers get a LoRA, and how large."""

    targets: str | tuple[str, ...]
    rank: int
    alpha: float


def module_names(unet: "Module", targets: str | Sequence[str]) -> list[str]:
    """Return the names of the layers that `targets` means, in the order of the UNet.

    A preset: `transformer` is every linear layer and 1x1 convolution of the transformer blocks
    (192 in SD 1.x), `attention` their q, k, v and out, `transformer+conv` adds those of the
    residual blocks and samplers, 3x3 too. Or endings of names, each of which must match.
    """
    layers = _layers(unet)
    if isinstance(targets, str):
        presets: dict[str, Callable[[str], bool]] = {
            "transformer": _is_transformer,
            "attention": lambda name: _is_transformer(name) and name.endswith(ATTENTION),
            "transformer+conv": lambda name: _is_transformer(name) or _is_convolution(name),
        }
        if targets in presets:
            return _some([name for name in layers if presets[targets](name)], targets)
        targets = (targets,)
    for ending in targets:
        _some([name for name in layers if _ends(name, ending)], ending)
    return [name for name in layers if any(_ends(name, ending) for ending in targets)]


def attach(unet: "Module", shape: LoraShape, generator: "Generator") -> list[str]:
    """Freeze the UNet, add an fp32 LoRA to it and return the names of its layers.

    `down` is drawn from the generator (Kaiming uniform, as PEFT and kohya do), `up` is zero. Where
    the rank is larger than a layer is wide it is capped; alpha stays, for diffusers mistakes alphas
    that differ from layer to layer.
    """
    from peft import LoraConfig, inject_adapter_in_model

    names = module_names(unet, shape.targets)
    ranks = {name: min(shape.rank, _width(unet.get_submodule(name))) for name in names}
    capped = {name: rank for name, rank in ranks.items() if rank < shape.rank}
    if capped:
        log.warning(
            "train.rank = %d is more than %d of %d layers are wide; capped there (smallest: %d)",
            *(shape.rank, len(capped), len(names), min(capped.values())),
        )
    config = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=names,
        rank_pattern=capped,
    )
    unet.requires_grad_(False)
    inject_adapter_in_model(config, unet, adapter_name=ADAPTER)
    _initialise(unet, names, generator)
    return names


def lora_parameters(unet: "Module") -> "dict[str, Parameter]":
    """Return what is trained, by name, in the order of the UNet."""
    return {name: at for name, at in unet.named_parameters() if at.requires_grad}


def take_weights(unet: "Module", names: Sequence[str]) -> LoraWeights:
    """Copy the LoRA's weights to the CPU."""
    layers: dict[str, LoraLayer] = {}
    for name in names:
        layer: Any = unet.get_submodule(name)
        down = layer.lora_A[ADAPTER].weight.detach().cpu().clone()
        up = layer.lora_B[ADAPTER].weight.detach().cpu().clone()
        layers[name] = LoraLayer(down, up, float(layer.lora_alpha[ADAPTER]))
    return LoraWeights(layers)


def put_weights(unet: "Module", layers: Mapping[str, LoraLayer]) -> None:
    """Copy weights into the attached LoRA; names, shapes and alpha must be its own."""
    import torch

    for name, weights in layers.items():
        layer: Any = unet.get_submodule(name)
        with torch.no_grad():
            layer.lora_A[ADAPTER].weight.copy_(weights.down)
            layer.lora_B[ADAPTER].weight.copy_(weights.up)


def _layers(unet: "Module") -> list[str]:
    from torch.nn import Conv2d, Linear

    return [name for name, at in unet.named_modules() if isinstance(at, Linear | Conv2d)]


def _is_transformer(name: str) -> bool:
    return ".attentions." in name


def _is_convolution(name: str) -> bool:
    return any(part in name for part in (".resnets.", ".downsamplers.", ".upsamplers."))


def _ends(name: str, ending: str) -> bool:
    return f".{name}".endswith(f".{ending.lstrip('.')}")


def _some(names: list[str], targets: str) -> list[str]:
    if not names:
        raise UsageError(
            f"train.targets: no layer of the UNet matches {targets!r}",
            expected="transformer, attention, transformer+conv, or endings such as to_q",
        )
    return names


def _width(layer: "Module") -> int:
    weight: Any = layer.weight
    return min(int(weight.shape[0]), int(weight[0].numel()))


def _initialise(unet: "Module", names: Sequence[str], generator: "Generator") -> None:
    # A half-precision base makes PEFT create half-precision adapters: they are replaced here.
    import torch

    for name in names:
        layer: Any = unet.get_submodule(name)
        for adapter in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]):
            adapter.weight.data = torch.zeros_like(adapter.weight, dtype=torch.float32)
        drawn = torch.empty(layer.lora_A[ADAPTER].weight.shape)
        torch.nn.init.kaiming_uniform_(drawn, a=5**0.5, generator=generator)
        layer.lora_A[ADAPTER].weight.data.copy_(drawn)
