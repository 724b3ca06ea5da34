"""Turns the name of a model (hub id, diffusers folder, single file) into its loaded parts."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentmill.cache.memory import is_out_of_memory
from latentmill.cache.models import hub, model_folder, single_file
from latentmill.cache.models.model_folder import Part
from latentmill.cache.models.part_configs import PART_OF, ConfigT, SchedulerConfig, parse_config
from latentmill.datasets.errors import LatentmillError, ModelError
from latentmill.datasets.words import counted

if TYPE_CHECKING:
    import torch
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
    from transformers import CLIPTextModel, CLIPTokenizer

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FEWEST_TOKENS = 3  # The start, one of the caption, the end.


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's files are; `path` is None for a model on the hub."""

    reference: str
    revision: str
    path: Path | None

    @property
    def single_file(self) -> Path | None:
        """The one .safetensors file of a model in Stable Diffusion's original layout, if it is."""
        return self.path if self.path is not None and self.path.suffix == ".safetensors" else None


def resolve(model_id: str, revision: str = "") -> ModelFiles:
    """Tell what kind of model `model_id` names; nothing is loaded or downloaded.

    Raises ModelError for pickles, and for paths where no model is.
    """
    path = Path(model_id).expanduser()
    if path.suffix.lower() in model_folder.PICKLES:
        raise ModelError(
            f"{path.suffix} files are pickles: opening one can run any code it carries",
            where=model_id,
            expected="a .safetensors file, a folder in diffusers layout or a hub id",
            fix=model_folder.NO_PICKLES,
        )
    if path.is_dir():
        model_folder.require_model(path, model_id)
        return ModelFiles(model_id, revision, path)
    if path.is_file() and path.suffix == ".safetensors":
        single_file.require_model(path, model_id)
        return ModelFiles(model_id, revision, path)
    if path.exists() or path.suffix == ".safetensors" or not _HUB_ID.fullmatch(model_id):
        raise ModelError(
            f"{model_id} is no model" if path.exists() else f"there is no model at {model_id}",
            where=model_id,
            expected="a folder in diffusers layout, a .safetensors file or a hub id OWNER/NAME",
            fix="correct the path after --model (or model.id)",
        )
    return ModelFiles(model_id, revision, None)


def require_one_text_encoder(files: ModelFiles) -> None:
    """Raise ModelError for SDXL and its like, before an hour is spent on encoding."""
    if files.single_file:
        return  # `resolve` has looked into it.
    root = files.path or part_folder(files, "vae").parent
    index = root / "model_index.json"
    names = model_folder.read_json(index) if index.is_file() else {}
    if "text_encoder_2" in names or (root / "text_encoder_2").is_dir():
        raise model_folder.unsupported(files.reference, "a model with two text encoders (SDXL)")


def part_folder(files: ModelFiles, part: Part) -> Path:
    """Return the folder of one part of a model in diffusers layout, downloading if need be."""
    if files.path is not None:
        return model_folder.require_part(files.path, part, files.reference)
    return hub.fetch_part(files.reference, files.revision, part)


def part_files(files: ModelFiles, part: Part) -> list[Path]:
    """Return the files that decide what a part is: its weights and configuration."""
    if files.single_file:
        return [files.single_file]
    folder = part_folder(files, part)
    return sorted(
        path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".txt")
    )


def read_config(files: ModelFiles, part: Part) -> dict[str, Any]:
    """Read a part's configuration without loading its weights."""
    if files.single_file:
        return dict(single_file.CONFIGS[part])
    return model_folder.read_json(part_folder(files, part) / model_folder.config_name(part))


def read_part_config(files: ModelFiles, kind: type[ConfigT]) -> ConfigT:
    """Read what latentmill needs of a part's configuration; ModelError for impossible values."""
    part = PART_OF[kind]
    values = read_config(files, part)
    path = files.single_file or part_folder(files, part) / model_folder.config_name(part)
    return parse_config(kind, values, path)


def stored_dtype(files: ModelFiles, part: Part) -> "torch.dtype":
    """Tell the type of a part's weights on disk from the first tensor of floats."""
    import torch
    from safetensors import safe_open

    kinds = {"F16": torch.float16, "BF16": torch.bfloat16}
    prefix = single_file.PREFIXES.get(part, "") if files.single_file else ""
    paths = [path for path in part_files(files, part) if path.suffix == ".safetensors"]
    with safe_open(paths[0], framework="pt") as file:
        # A safetensors handle has keys() but is no mapping: it cannot be iterated.
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return kinds.get(file.get_slice(names[0]).get_dtype(), torch.float32)


def load_unet(files: ModelFiles, dtype: "torch.dtype | None" = None) -> "UNet2DConditionModel":
    """Load the UNet on the CPU, fp32 unless told otherwise; no other part is touched."""
    from diffusers import UNet2DConditionModel

    config = _config_of_class(files, "unet", "UNet2DConditionModel")
    if config.get("addition_embed_type") == "text_time":
        raise model_folder.unsupported(files.reference, "SDXL")
    if config.get("in_channels", 4) != 4:
        raise model_folder.unsupported(
            files.reference, f"a UNet with {config['in_channels']} input channels"
        )
    return _load(files, "unet", UNet2DConditionModel, dtype)


def load_vae(files: ModelFiles, dtype: "torch.dtype | None" = None) -> "AutoencoderKL":
    """Load the VAE on the CPU, fp32 unless told otherwise."""
    from diffusers import AutoencoderKL

    _config_of_class(files, "vae", "AutoencoderKL")
    return _load(files, "vae", AutoencoderKL, dtype)


def load_text_encoder(files: ModelFiles, dtype: "torch.dtype | None" = None) -> "CLIPTextModel":
    """Load the CLIP text encoder on the CPU, fp32 unless told otherwise."""
    from transformers import CLIPTextModel

    return _load(files, "text_encoder", CLIPTextModel, dtype)


def load_tokenizer(files: ModelFiles) -> "CLIPTokenizer":
    """Load the tokenizer as the model ships it."""
    from transformers import CLIPTokenizer

    if files.single_file:
        return single_file.load_tokenizer()
    folder = part_folder(files, "tokenizer")
    with _explained(folder):
        tokenizer = CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)
        if int(tokenizer.model_max_length) < _FEWEST_TOKENS:
            raise ValueError(f"model_max_length is {tokenizer.model_max_length}")
        return tokenizer


def load_scheduler(files: ModelFiles) -> "DDPMScheduler":
    """Build the training noise schedule from the model's scheduler configuration."""
    from diffusers import DDPMScheduler

    read_part_config(files, SchedulerConfig)
    with _explained(files.single_file or part_folder(files, "scheduler")):
        scheduler = DDPMScheduler.from_config(read_config(files, "scheduler"))
        _require_falling(scheduler.alphas_cumprod)
        return scheduler


def _require_falling(kept: "torch.Tensor") -> None:
    """Raise ValueError unless the share of the picture falls from near 1 towards 0."""
    sound = kept.isfinite().all() and kept[0] > 0 and kept[-1] >= 0 and (kept.diff() <= 0).all()
    if not sound:
        raise ValueError("its betas give no noise schedule that falls from 1 to 0")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars, advice and warnings of diffusers and transformers."""
    import warnings

    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    loggers = (diffusers_logging, transformers_logging)
    levels = [logger.get_verbosity() for logger in loggers]
    bars = [logger.is_progress_bar_enabled() for logger in loggers]
    try:
        for logger in loggers:
            logger.set_verbosity_error()
            logger.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level, bar in zip(loggers, levels, bars, strict=True):
            logger.set_verbosity(level)
            if bar:
                logger.enable_progress_bar()


def _load(files: ModelFiles, part: Part, kind: Any, dtype: "torch.dtype | None") -> Any:
    import torch

    path = files.single_file or part_folder(files, part)
    with _explained(path):
        load = single_file.load if files.single_file else _load_folder
        return load(path, part, kind).to(dtype or torch.float32).eval()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever a reader raises at one part of a model into a ModelError in its own words.

    The tokenizers library raises plain Exception, transformers its own family, diffusers anything.
    """
    try:
        with quiet():
            yield
    except LatentmillError:
        raise
    except Exception as error:  # Damaged files raise whatever the readers happen to trip over.
        if is_out_of_memory(error):
            raise
        raise model_folder.unreadable(path, error) from error


def _load_folder(folder: Path, part: Part, kind: Any) -> Any:
    model_folder.read_json(folder / model_folder.config_name(part))
    variant = model_folder.weights_variant(folder, part)
    model_folder.require_sound_weights(folder)
    model, info = kind.from_pretrained(
        str(folder),
        variant=variant,
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
    )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(f"missing: {counted(len(missing), 'tensor')}, such as {missing[0]}")
    return model


def _config_of_class(files: ModelFiles, part: Part, name: str) -> dict[str, Any]:
    config = read_config(files, part)
    found = config.get("_class_name", name)
    if found != name:
        raise model_folder.unsupported(files.reference, f"a {part} of the kind {found}")
    return config
