"""A captioner's name to the local folder that holds it, from disk or the Hugging Face hub."""

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.hub import snapshot
from latentmill.stages.captioning.kinds import KINDS
from latentmill.stages.settings import BLIP, BLIP_REVISION

_log = logging.getLogger(__name__)

_SETTINGS = ["*.json", "*.txt", "*.model"]
_SAFE, _PICKLES = "*.safetensors", "pytorch_model*.bin"
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_OTHER_MODEL = (Command("caption", settings=("caption.model=DIR",)),)


def find_model(model: str, revision: str) -> tuple[Path, str]:
    """The folder of `model` and its kind: a folder, or the hub's copy, fetched unless it is here.

    `revision` `auto` is the pinned one of the default model. Raises ModelError that says what is
    missing, which kinds are known, or that the hub cannot be reached and where a local copy goes.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        folder = _fetch(model, _revision(model, revision))
    if missing := _missing(folder):
        raise _incomplete(model, folder, missing)
    kind = _kind(model, folder / "config.json")
    if not KINDS[kind].may_be_pickle and not any(folder.glob(_SAFE)):
        raise _pickle(model, folder)
    return folder, kind


def _revision(model: str, revision: str) -> str | None:
    if revision == "auto":
        return BLIP_REVISION if model == BLIP else None
    return revision or None


def _missing(folder: Path) -> list[str]:
    needed = (
        ("config.json", ("config.json",)),
        ("weights (model.safetensors)", (_SAFE, _PICKLES)),
        ("a tokenizer (tokenizer.json or vocab.txt)", _TOKENIZERS),
        ("picture settings (preprocessor_config.json)", _PROCESSORS),
    )
    return [
        what
        for what, patterns in needed
        if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern))
    ]


def _kind(model: str, config: Path) -> str:
    try:
        values = json.loads(config.read_bytes())
        kind, own_code = values.get("model_type"), "auto_map" in values
    except (ValueError, AttributeError) as error:
        raise ModelError(
            f"the captioner {model} has a damaged config.json",
            where=f"{config}: {error}",
            fix="fetch it again",
        ) from error
    if kind not in KINDS:
        raise ModelError(
            f"{model} is a {kind!r} model, which this version cannot caption with",
            where=str(config),
            expected=f"model_type {', '.join(f'`{name}`' for name in KINDS)}",
            fix="name a captioning model of one of these kinds",
            run=(Command("caption", settings=(f"caption.model={BLIP}",)),),
        )
    if own_code and kind == "florence2":
        raise ModelError(
            f"{model} comes with its own code, which is not run",
            where=f"{config}: auto_map",
            expected="a Florence-2 in transformers' own layout",
            fix="name that version",
            run=(
                Command("caption", settings=("caption.model=florence-community/Florence-2-base",)),
            ),
        )
    return str(kind)


def _fetch(model: str, revision: str | None) -> Path:
    """The hub's copy; settings first, so that nothing large is fetched of an unknown kind."""
    if Path(model).expanduser().exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        raise ModelError(
            f"{model!r} is no folder with a captioner",
            where="caption.model",
            expected="a folder with a captioning model, or a hub id OWNER/NAME",
            fix=f"correct the path, or leave caption.model at {BLIP}",
        )
    here = _snapshot(model, revision, [*_SETTINGS, _SAFE, _PICKLES], True)
    if here is not None and not _missing(here):
        return here
    _log.info("fetching the captioner %s from the Hugging Face hub", model)
    folder = _snapshot(model, revision, _SETTINGS, False)
    assert folder is not None  # With the network allowed a failure raises.
    if not (folder / "config.json").is_file():
        raise _incomplete(model, folder, ["config.json"])
    kind = _kind(model, folder / "config.json")
    _snapshot(model, revision, [_SAFE], False)
    if KINDS[kind].may_be_pickle and not any(folder.glob(_SAFE)):
        _snapshot(model, revision, [_PICKLES], False)
    return folder


def _incomplete(model: str, folder: Path, missing: Sequence[str]) -> ModelError:
    return ModelError(
        f"the captioner {model} is incomplete",
        where=f"{folder} lacks {', '.join(missing)}",
        expected="a folder as `save_pretrained` or `hf download` writes it",
        fix="fetch it again, or name another one",
        run=_OTHER_MODEL,
    )


def _pickle(model: str, folder: Path) -> ModelError:
    return ModelError(
        f"the weights of {model} are pickles: opening one can run any code it carries",
        where=str(next(iter(sorted(folder.glob(_PICKLES))))),
        expected="weights as .safetensors",
        fix="name a revision or a copy with .safetensors",
        run=_OTHER_MODEL,
    )


def _snapshot(model: str, revision: str | None, patterns: list[str], is_local: bool) -> Path | None:
    what = f"the captioner {model}"
    return snapshot(model, revision, patterns, is_local, what, _OTHER_MODEL)
