"""A captioner's name to the local folder that holds it, from disk or the Hugging Face hub."""

import json
import logging
import re
from pathlib import Path

from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.hub import snapshot
from latentmill.stages.settings import BLIP, BLIP_REVISION

_log = logging.getLogger(__name__)

_SETTINGS = ["*.json", "*.txt"]
_NEEDED = (
    ("config.json", ("config.json",)),
    ("weights (model.safetensors)", ("*.safetensors", "pytorch_model*.bin")),
    ("a tokenizer (tokenizer.json or vocab.txt)", ("tokenizer.json", "vocab.txt")),
    (
        "picture settings (preprocessor_config.json)",
        ("preprocessor_config.json", "processor_config.json"),
    ),
)


def find_model(model: str, revision: str) -> Path:
    """The folder of `model`: a folder, or the hub's copy, fetched unless it is here already.

    `revision` `auto` is the pinned one of the default model. Raises ModelError that says what is
    missing, or that the hub cannot be reached and where a local copy goes.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        folder = _fetch(model, _revision(model, revision))
    missing = _missing(folder)
    if missing:
        raise ModelError(
            f"the captioner {model} is incomplete",
            where=f"{folder} lacks {', '.join(missing)}",
            expected="a folder as `save_pretrained` or `hf download` writes it",
            fix="fetch it again, or name another one",
            run=(Command("caption", settings=("caption.model=DIR",)),),
        )
    _require_blip(model, folder / "config.json")
    return folder


def _revision(model: str, revision: str) -> str | None:
    if revision == "auto":
        return BLIP_REVISION if model == BLIP else None
    return revision or None


def _missing(folder: Path) -> list[str]:
    return [
        what
        for what, patterns in _NEEDED
        if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern))
    ]


def _require_blip(model: str, config: Path) -> None:
    try:
        kind = json.loads(config.read_bytes()).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ModelError(
            f"the captioner {model} has a damaged config.json",
            where=f"{config}: {error}",
            fix="fetch it again",
        ) from error
    if kind != "blip":
        raise ModelError(
            f"{model} is a {kind!r} model, which this version cannot caption with",
            where=str(config),
            expected="model_type `blip`",
            fix="name a BLIP captioning model",
            run=(Command("caption", settings=(f"caption.model={BLIP}",)),),
        )


def _fetch(model: str, revision: str | None) -> Path:
    if Path(model).expanduser().exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        raise ModelError(
            f"{model!r} is no folder with a captioner",
            where="caption.model",
            expected="a folder with a BLIP model, or a hub id OWNER/NAME",
            fix=f"correct the path, or leave caption.model at {BLIP}",
        )
    here = _snapshot(model, revision, [*_SETTINGS, "*.safetensors", "pytorch_model*.bin"], True)
    if here is not None and not _missing(here):
        return here
    _log.info("fetching the captioner %s from the Hugging Face hub (about 1 GB)", model)
    folder = _snapshot(model, revision, [*_SETTINGS, "*.safetensors"], False)
    if folder is not None and not any(folder.glob("*.safetensors")):
        folder = _snapshot(model, revision, [*_SETTINGS, "pytorch_model*.bin"], False)
    assert folder is not None  # With the network allowed a failure raises.
    return folder


def _snapshot(model: str, revision: str | None, patterns: list[str], is_local: bool) -> Path | None:
    run = (Command("caption", settings=("caption.model=DIR",)),)
    return snapshot(model, revision, patterns, is_local, f"the captioner {model}", run)
