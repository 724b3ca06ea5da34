"""Loads the parts of Stable Diffusion 1.x from one .safetensors file in its original layout.

The file holds weights only; the configurations below are those of every SD 1.x model.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.files import write_json
from latentmill.cache.models import model_folder
from latentmill.cache.models.model_folder import Part
from latentmill.datasets.errors import ModelError
from latentmill.datasets.words import counted

if TYPE_CHECKING:
    import torch
    from transformers import CLIPTokenizer

PREFIXES: Final = {
    "unet": "model.diffusion_model.",
    "vae": "first_stage_model.",
    "text_encoder": "cond_stage_model.transformer.",
}
# The first prefix that a file has names its kind.
_OTHER_KINDS: Final = {
    "lora_": "a LoRA file",
    "conditioner.embedders.": "an SDXL file",
    "cond_stage_model.model.": "a Stable Diffusion 2.x single file",
    "double_blocks.": "a Flux file",
    "model.diffusion_model.double_blocks.": "a Flux file",
    "model.diffusion_model.joint_blocks.": "a Stable Diffusion 3 file",
}
CONFIGS: Final[dict[Part, dict[str, Any]]] = {
    "unet": {
        "_class_name": "UNet2DConditionModel",
        "sample_size": 64,
        "in_channels": 4,
        "out_channels": 4,
        "down_block_types": [*["CrossAttnDownBlock2D"] * 3, "DownBlock2D"],
        "up_block_types": ["UpBlock2D", *["CrossAttnUpBlock2D"] * 3],
        "block_out_channels": [320, 640, 1280, 1280],
        "layers_per_block": 2,
        "cross_attention_dim": 768,
        "attention_head_dim": 8,
    },
    "vae": {
        "_class_name": "AutoencoderKL",
        "sample_size": 512,
        "latent_channels": 4,
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "block_out_channels": [128, 256, 512, 512],
        "layers_per_block": 2,
        "norm_num_groups": 32,
        "act_fn": "silu",
        "scaling_factor": 0.18215,
    },
    "text_encoder": {
        "model_type": "clip_text_model",
        "vocab_size": 49408,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "projection_dim": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 77,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    },
    "scheduler": {
        "num_train_timesteps": 1000,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "prediction_type": "epsilon",
        "clip_sample": False,
        "steps_offset": 1,
    },
}


def require_model(path: Path, reference: str) -> None:
    """Raise ModelError unless the file holds at least a UNet of Stable Diffusion 1.x."""
    names = _tensor_names(path)
    for prefix, kind in _OTHER_KINDS.items():
        if any(name.startswith(prefix) for name in names):
            raise model_folder.unsupported(reference, kind)
    if not any(name.startswith(PREFIXES["unet"]) for name in names):
        raise ModelError(
            f"{path.name} holds no UNet in Stable Diffusion's original layout",
            where=reference,
            expected=f"tensors named {PREFIXES['unet']}*; found: {', '.join(names[:3])}, ...",
            fix="give a full checkpoint (about 2 or 4 GB), or a folder in diffusers layout",
        )


def load(path: Path, part: Part, kind: Any) -> Any:
    """Load `kind` from the part's tensors; ValueError when some are missing or do not fit."""
    tensors = _read_tensors(path, PREFIXES[part])
    if not tensors:
        raise ValueError(f"it has no {part} (no tensors named {PREFIXES[part]}*)")
    if part == "text_encoder":
        return _load_text_encoder(tensors, kind)
    return _load_converted(tensors, part, kind)


def load_tokenizer() -> "CLIPTokenizer":
    """Build CLIP's tokenizer, the same for every SD 1.x model, from open_clip's vocabulary."""
    from tempfile import TemporaryDirectory

    from transformers import CLIPTokenizer

    from latentmill.cache.clip_tokenizer import write_tokenizer

    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return CLIPTokenizer.from_pretrained(folder, local_files_only=True)


def _load_converted(tensors: "dict[str, torch.Tensor]", part: Part, kind: Any) -> Any:
    """Let diffusers rename the tensors; its loader wants the configuration as a folder."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        write_json(Path(folder) / "config.json", CONFIGS[part])
        model = kind.from_single_file(tensors, config=folder, local_files_only=True)
    _require_all(name for name, weight in model.state_dict().items() if weight.is_meta)
    return model


def _load_text_encoder(tensors: "Mapping[str, torch.Tensor]", kind: Any) -> Any:
    """Fill CLIP's text model; since transformers 5.6 its names lack the `text_model.` in front."""
    prefix = PREFIXES["text_encoder"] + "text_model."
    model = kind(kind.config_class(**CONFIGS["text_encoder"]))
    own = "text_model." if hasattr(model, "text_model") else ""
    renamed = {own + name.removeprefix(prefix): weight for name, weight in tensors.items()}
    _require_all(model.load_state_dict(renamed, strict=False).missing_keys)
    return model


def _require_all(missing: Iterable[str]) -> None:
    names = sorted(missing)
    if names:
        raise ValueError(f"missing: {counted(len(names), 'tensor')}, such as {names[0]}")


def _tensor_names(path: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return sorted(file.keys())
    except (SafetensorError, OSError) as error:
        raise model_folder.unreadable(path, error) from error


def _read_tensors(path: Path, prefix: str) -> "dict[str, torch.Tensor]":
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        # A safetensors handle has keys() but is no mapping: it cannot be iterated.
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}
