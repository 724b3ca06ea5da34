"""The weights of a LoRA, and the key names of its three layouts: kohya, diffusers, PEFT.

Key names as read in the loaders of ComfyUI and A1111 (kohya), diffusers and PEFT. Each layout
holds alpha: as a tensor, in the file's header, in `adapter_config.json`. A file without alpha
means alpha = rank, as all of those loaders take it.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latentmill.datasets.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

LayoutName = Literal["kohya", "diffusers", "peft"]
KOHYA_PREFIX = "lora_unet_"
DIFFUSERS_PREFIX = "unet."
PEFT_PREFIX = "base_model.model."
TEXT_ENCODER_PREFIXES = ("lora_te", "text_encoder")
DIFFUSERS_CONFIG_KEY = "lora_adapter_metadata"

# Names of UNet modules that hold an underscore themselves: kohya's keys put `_` for `.` too.
_WORDS = (
    *("down_blocks", "up_blocks", "mid_block", "transformer_blocks", "proj_in", "proj_out"),
    *("to_q", "to_k", "to_v", "to_out", "time_emb_proj", "time_embedding", "add_embedding"),
    *("conv_in", "conv_out", "conv_shortcut", "linear_1", "linear_2"),
)
_KOHYA_PART = re.compile(rf"(?:{'|'.join(_WORDS)})(?=_|$)|[^_]+")
_TOP_MODULE = re.compile(
    r"(down_blocks|up_blocks|mid_block|conv_in|conv_out|time_embedding|add_embedding)\b"
)
_PEFT_KEY = re.compile(r"(.+?)\.lora(?:_|\.)(A|B|down|up)(?:\.[^.]+)?\.weight")


@dataclass(frozen=True, slots=True)
class LoraLayer:
    """One layer's pair: `down` is [rank, in, ...], `up` [out, rank, ...], 4-D for a convolution."""

    down: "Tensor"
    up: "Tensor"
    alpha: float

    @property
    def rank(self) -> int:
        """Columns of `up`."""
        return int(self.down.shape[0])

    def delta(self) -> "Tensor":
        """What is added to the layer's weight: alpha / rank * up @ down, in the weight's shape."""
        product = self.up.flatten(1) @ self.down.flatten(1)
        shape = (self.up.shape[0], *self.down.shape[1:])
        return (product * (self.alpha / self.rank)).reshape(shape)


@dataclass(frozen=True, slots=True)
class LoraWeights:
    """The layers by their module's name in diffusers' UNet, such as `mid_block.attentions.0...`."""

    layers: Mapping[str, LoraLayer]

    @property
    def rank(self) -> int:
        """The rank that most layers have."""
        return Counter(layer.rank for layer in self.layers.values()).most_common(1)[0][0]

    @property
    def alpha(self) -> float:
        """The alpha that most layers have."""
        return Counter(layer.alpha for layer in self.layers.values()).most_common(1)[0][0]


def to_kohya(lora: LoraWeights) -> "dict[str, Tensor]":
    """Name the tensors as kohya's sd-scripts does, which ComfyUI and A1111 read."""
    import torch

    tensors: dict[str, Tensor] = {}
    for name, layer in lora.layers.items():
        key = KOHYA_PREFIX + name.replace(".", "_")
        tensors[f"{key}.lora_down.weight"] = layer.down
        tensors[f"{key}.lora_up.weight"] = layer.up
        tensors[f"{key}.alpha"] = torch.tensor(layer.alpha)
    return tensors


def from_kohya(tensors: "Mapping[str, Tensor]") -> LoraWeights:
    """Read kohya's names; layers of a text encoder are left out and said to be."""
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _without_text_encoder(tensors).items():
        stem, _, part = key.partition(".")
        if part not in {"lora_down.weight", "lora_up.weight", "alpha"}:
            raise _unknown_key(key)
        name = unflatten(stem.removeprefix(KOHYA_PREFIX))
        pairs.setdefault(name, {})[part.removeprefix("lora_").removesuffix(".weight")] = tensor
    return _paired(pairs, {})


def unflatten(flat: str) -> str:
    """Give kohya's name of a UNet module its dots back: `mid_block_attentions_0` and so on."""
    name = ".".join(_KOHYA_PART.findall(flat))
    if not _TOP_MODULE.match(name):
        raise _unknown_key(KOHYA_PREFIX + flat)
    return name


def to_diffusers(lora: LoraWeights) -> "dict[str, Tensor]":
    """Name the tensors as diffusers saves them; `diffusers_header` must go with them."""
    return _prefixed(lora, DIFFUSERS_PREFIX)


def diffusers_header(lora: LoraWeights) -> dict[str, str]:
    """Return the file header from which diffusers takes rank and alpha."""
    config = {f"{DIFFUSERS_PREFIX}{key}": value for key, value in _peft_fields(lora).items()}
    return {"format": "pt", DIFFUSERS_CONFIG_KEY: json.dumps(config, sort_keys=True)}


def from_diffusers(tensors: "Mapping[str, Tensor]", header: Mapping[str, str]) -> LoraWeights:
    """Read diffusers' names, old (`lora.down`) and new (`lora_A`), and its header if it has one."""
    config = json.loads(header.get(DIFFUSERS_CONFIG_KEY, "{}"))
    fields = {key.removeprefix(DIFFUSERS_PREFIX): value for key, value in config.items()}
    return _from_dotted(_without_text_encoder(tensors), DIFFUSERS_PREFIX, fields)


def to_peft(lora: LoraWeights) -> "dict[str, Tensor]":
    """Name the tensors as in PEFT's `adapter_model.safetensors`; `peft_config` goes with them."""
    return _prefixed(lora, PEFT_PREFIX)


def peft_config(lora: LoraWeights) -> dict[str, Any]:
    """Return the object of PEFT's `adapter_config.json`."""
    fixed = {"peft_type": "LORA", "task_type": None, "bias": "none", "inference_mode": True}
    return {**fixed, **_peft_fields(lora)}


def from_peft(tensors: "Mapping[str, Tensor]", config: Mapping[str, Any]) -> LoraWeights:
    """Read PEFT's names and its configuration."""
    return _from_dotted(tensors, PEFT_PREFIX, config)


def layout_of(keys: Iterable[str]) -> LayoutName:
    """Tell a file's layout from its keys; a mixture or an unknown name is a `UsageError`."""
    prefixes: dict[str, LayoutName] = {
        KOHYA_PREFIX: "kohya",
        DIFFUSERS_PREFIX: "diffusers",
        PEFT_PREFIX: "peft",
    }
    found: set[LayoutName] = set()
    for key in keys:
        if key.startswith(TEXT_ENCODER_PREFIXES):
            continue
        name = next((prefixes[prefix] for prefix in prefixes if key.startswith(prefix)), None)
        if name is None:
            raise _unknown_key(key)
        found.add(name)
    if len(found) != 1:
        what = f"mixes the layouts {' and '.join(sorted(found))}" if found else "has no UNet layer"
        raise UsageError(f"the LoRA file {what}", expected="one of kohya, diffusers, PEFT")
    return found.pop()


def read_lora(path: Path) -> LoraWeights:
    """Read a LoRA file, or a folder with `adapter_model.safetensors`, in any of the layouts."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    file = path / "adapter_model.safetensors" if path.is_dir() else path
    try:
        tensors, header = load_file(file), read_header(file)
        with safe_open(file, "pt") as opened:
            layout = layout_of(opened.keys())
        if layout == "kohya":
            return from_kohya(tensors)
        if layout == "diffusers":
            return from_diffusers(tensors, header)
        return from_peft(tensors, json.loads((file.parent / "adapter_config.json").read_bytes()))
    except (OSError, SafetensorError, ValueError) as error:
        raise UsageError(
            f"cannot read the LoRA: {error}", where=str(path), expected="a .safetensors LoRA file"
        ) from error
    except UsageError as error:
        raise UsageError(
            error.what, where=str(path), expected=error.expected, fix=error.fix, run=error.run
        ) from None


def read_header(file: Path) -> dict[str, str]:
    """Return the text fields of a safetensors file's header."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return dict(opened.metadata() or {})


def _prefixed(lora: LoraWeights, prefix: str) -> "dict[str, Tensor]":
    tensors: dict[str, Tensor] = {}
    for name, layer in lora.layers.items():
        tensors[f"{prefix}{name}.lora_A.weight"] = layer.down
        tensors[f"{prefix}{name}.lora_B.weight"] = layer.up
    return tensors


def _peft_fields(lora: LoraWeights) -> dict[str, Any]:
    layers = sorted(lora.layers.items())
    return {
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "rank_pattern": {name: at.rank for name, at in layers if at.rank != lora.rank},
        "alpha_pattern": {name: at.alpha for name, at in layers if at.alpha != lora.alpha},
        "target_modules": [name for name, _ in layers],
    }


def _from_dotted(
    tensors: "Mapping[str, Tensor]", prefix: str, config: Mapping[str, Any]
) -> LoraWeights:
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _PEFT_KEY.fullmatch(key.removeprefix(prefix))
        if match is None:
            raise _unknown_key(key)
        part = "down" if match[2] in {"A", "down"} else "up"
        pairs.setdefault(match[1], {})[part] = tensor
    alphas: dict[str, float] = {}
    if "lora_alpha" in config:
        patterns = config.get("alpha_pattern") or {}
        alphas = {name: float(patterns.get(name, config["lora_alpha"])) for name in pairs}
    return _paired(pairs, alphas)


def _paired(pairs: "dict[str, dict[str, Tensor]]", alphas: Mapping[str, float]) -> LoraWeights:
    layers: dict[str, LoraLayer] = {}
    for name, parts in sorted(pairs.items()):
        if not {"down", "up"} <= parts.keys():
            raise UsageError(f"the LoRA has only half of the layer {name}", expected="down and up")
        rank = int(parts["down"].shape[0])
        alpha = float(parts["alpha"]) if "alpha" in parts else alphas.get(name, float(rank))
        layers[name] = LoraLayer(parts["down"], parts["up"], alpha)
    return LoraWeights(layers)


def _without_text_encoder(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    kept = {key: at for key, at in tensors.items() if not key.startswith(TEXT_ENCODER_PREFIXES)}
    if len(kept) < len(tensors):
        log.warning("%d text-encoder tensors of the LoRA are not used", len(tensors) - len(kept))
    return kept


def _unknown_key(key: str) -> UsageError:
    return UsageError(
        f"the LoRA has a layer that is not known here: {key}",
        expected="a LoRA of an SD 1.x or 2.x UNet in kohya, diffusers or PEFT layout",
    )
