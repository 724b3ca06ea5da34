"""A model and a LoRA -> a model folder whose UNet holds the LoRA, in diffusers layout."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.disk import explained_failures, require_room
from latentmill.cache.files import TEMPORARY_SUFFIX, write_json
from latentmill.cache.models import model_folder
from latentmill.cache.models.weights import (
    ModelFiles,
    load_scheduler,
    load_text_encoder,
    load_tokenizer,
    load_unet,
    load_vae,
    part_folder,
    quiet,
    read_config,
    stored_dtype,
)
from latentmill.datasets.errors import UsageError
from latentmill.stages.lora.fitting import Pair, require_fit
from latentmill.stages.lora.layouts import LoraWeights

if TYPE_CHECKING:
    from torch.nn import Module

COPIED: Final[tuple[model_folder.Part, ...]] = ("vae", "text_encoder", "tokenizer", "scheduler")
_UNUSED: Final = (*(f"*{suffix}" for suffix in model_folder.PICKLES), "*.msgpack", "*.onnx*")
_ABSENT: Final = ("feature_extractor", "image_encoder", "safety_checker")


@dataclass(frozen=True, slots=True)
class Merge:
    """What is merged at which strength, and the folder to write."""

    files: ModelFiles
    pair: Pair
    scale: float
    target: Path


def require_free(target: Path) -> None:
    """Raise UsageError when the folder to write is there already and not empty."""
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UsageError(
            "the folder for the merged model holds something else, which stays as it is",
            where=f"export.merge = {target}",
            fix="name a new or an empty folder",
        )


def write_merged_model(lora: LoraWeights, merge: Merge) -> None:
    """Write the whole model: the UNet with the LoRA added, all other parts as they are.

    The UNet keeps the type that its weights are stored in. Raises UsageError when the LoRA does
    not fit, ModelError for the model, DiskFullError before anything is written.
    """
    unet: Any = load_unet(merge.files)
    require_fit(lora, unet, merge.pair)
    add_lora(unet, lora, merge.scale)
    unet.to(stored_dtype(merge.files, "unet"))
    require_room(merge.target, _needed_bytes(merge.files, unet), elsewhere=())
    with explained_failures(merge.target, elsewhere=()), _new_folder(merge.target) as folder:
        with quiet():
            unet.save_pretrained(folder / "unet", safe_serialization=True)
        for part in COPIED:
            _write_part(merge.files, part, folder / part)
        write_json(folder / "model_index.json", _model_index(merge.files))


def add_lora(unet: "Module", lora: LoraWeights, scale: float) -> None:
    """Add `scale` times each layer's delta to the fp32 weight of the same name, in place."""
    import torch

    weights = dict(unet.named_parameters())
    with torch.no_grad():
        for name, layer in lora.layers.items():
            weights[f"{name}.weight"].add_(layer.delta().float(), alpha=scale)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target`, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
    temporary.mkdir()
    try:
        yield temporary
        if target.is_dir():
            target.rmdir()  # Empty, as `require_free` saw.
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_part(files: ModelFiles, part: model_folder.Part, target: Path) -> None:
    if files.single_file:
        loaders = {
            "vae": load_vae,
            "text_encoder": load_text_encoder,
            "tokenizer": load_tokenizer,
            "scheduler": load_scheduler,
        }
        loaded: Any = loaders[part](files)
        with quiet():
            loaded.save_pretrained(target)
        return
    source = part_folder(files, part)
    variant = (
        model_folder.weights_variant(source, part) if part in ("vae", "text_encoder") else None
    )
    others = () if variant else ("*.fp16.safetensors", "*.non_ema.safetensors")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_UNUSED, *others))
    if variant:  # Without its plain name, loaders ask for `variant=` for every part.
        (path,) = target.glob(f"*.{variant}.safetensors")
        path.rename(path.with_name(path.name.replace(f".{variant}.", ".")))


def _model_index(files: ModelFiles) -> dict[str, Any]:
    import diffusers

    scheduler = read_config(files, "scheduler").get("_class_name", "DDPMScheduler")
    return {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": diffusers.__version__,
        "requires_safety_checker": False,
        "scheduler": ["diffusers", scheduler],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        **{name: [None, None] for name in _ABSENT},
    }


def _needed_bytes(files: ModelFiles, unet: "Module") -> int:
    weights = sum(at.numel() * at.element_size() for at in unet.parameters())
    if files.single_file:
        return max(weights, files.single_file.stat().st_size)
    parts = (part_folder(files, part) for part in COPIED)
    return weights + sum(path.stat().st_size for part in parts for path in part.rglob("*"))
