"""Finds and checks the parts of a model in diffusers layout, and says what is wrong with them."""

import json
import re
from pathlib import Path
from typing import Any, Literal

from latentmill.datasets.errors import ModelError

Part = Literal["unet", "vae", "text_encoder", "tokenizer", "scheduler"]

PARTS: tuple[Part, ...] = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
PICKLES = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
NO_PICKLES = "get the .safetensors version, or convert it on a machine that may be lost"
_CONFIGS = {"tokenizer": "tokenizer_config.json", "scheduler": "scheduler_config.json"}


def require_model(root: Path, reference: str) -> None:
    """Raise ModelError unless `root` holds at least one part of a model."""
    if not any((root / part).is_dir() for part in PARTS):
        raise ModelError(
            f"{reference} is not a model in diffusers layout",
            where=reference,
            expected=f"folders {', '.join(PARTS)}; found there: {_listing(root)}",
            fix="give the folder that holds model_index.json, or a single .safetensors file",
        )


def require_part(root: Path, part: Part, reference: str) -> Path:
    """Return the folder of one part; ModelError names what is missing and what is there."""
    folder = root / part
    wanted = folder if part == "tokenizer" else folder / config_name(part)
    if not wanted.exists():
        raise ModelError(
            f"the model has no {part}: {wanted.relative_to(root).as_posix()} is missing",
            where=reference,
            expected=f"a whole model in diffusers layout; found there: {_listing(root)}",
            fix="give the whole model with --model, or copy the missing folder into it",
        )
    return folder


def holds_all_parts(reference: str) -> bool:
    """Whether a model is whole, as far as can be seen here: training needs no more than a few."""
    root = Path(reference).expanduser()
    return not root.is_dir() or all((root / part).is_dir() for part in PARTS)


def is_complete(folder: Path, part: Part) -> bool:
    """Whether a downloaded part has its configuration and, if it has weights, all of them."""
    if part == "tokenizer":
        return (folder / "vocab.json").is_file() or (folder / "tokenizer.json").is_file()
    if not (folder / config_name(part)).is_file() or part == "scheduler":
        return (folder / config_name(part)).is_file()
    for index in folder.glob("*.safetensors.index.json"):
        return all((folder / name).is_file() for name in read_json(index)["weight_map"].values())
    return any(folder.glob("*.safetensors"))


def config_name(part: Part) -> str:
    """The name of a part's configuration file."""
    return _CONFIGS.get(part, "config.json")


def weights_variant(folder: Path, part: Part) -> str | None:
    """Name the variant of the weights: None for the plain file, else such as `fp16`.

    Raises ModelError when there are only pickles, or no weights at all.
    """
    stem = "model" if part == "text_encoder" else "diffusion_pytorch_model"
    names = sorted(path.name for path in folder.iterdir())
    if f"{stem}.safetensors" in names or f"{stem}.safetensors.index.json" in names:
        return None
    variants = [re.fullmatch(rf"{stem}\.(\w+)\.safetensors", name) for name in names]
    for match in filter(None, variants):
        return match[1]
    pickles = [name for name in names if Path(name).suffix in PICKLES]
    found = f"only pickles ({pickles[0]}), which can run any code" if pickles else "no weights"
    raise ModelError(
        f"the model's {part} has {found}",
        where=str(folder),
        expected=f"{stem}.safetensors",
        fix=NO_PICKLES,
    )


def require_sound_weights(folder: Path) -> None:
    """Name the file that is cut or garbled: the loaders' own errors often do not."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of the model; ModelError names the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not isinstance(values, dict):
        raise unreadable(path, ValueError("not a JSON object"))
    return values


def unreadable(path: Path, error: BaseException) -> ModelError:
    """The error for a file of the model that its reader refuses, in the reader's own words."""
    words = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(
        f"cannot read {path.name}: {words[0]}",
        where=str(path),
        fix="copy or download the model again: the file is damaged or of another kind",
    )


def unsupported(reference: str, what: str) -> ModelError:
    """The error for a model that is sound but of a kind that cannot be trained here."""
    return ModelError(
        f"{what} is not supported",
        where=reference,
        expected="Stable Diffusion 1.x, or 2.x in diffusers layout; not inpainting, not SDXL",
        fix="give such a model with --model",
    )


def _listing(folder: Path, limit: int = 8) -> str:
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    shown = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return shown or "nothing"
