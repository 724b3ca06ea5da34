"""The name of a CLIP model to its two files, from disk or the Hugging Face hub."""

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.hub import snapshot
from latentmill.stages.settings import AUTO_SCORER, SCORER_ARCHITECTURE

_log = logging.getLogger(__name__)

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
_HUB_ID = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
_PATTERNS = ["*.json", "*.txt", "*.model", WEIGHTS]
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_OFF = Command("caption", settings=("caption.score_model=none",))


@dataclass(frozen=True, slots=True)
class ScorerFiles:
    """Weights, and the architecture's file: None means the default one's."""

    weights: Path
    config: Path | None

    def identity(self) -> str:
        """The XXH3-128 of both files: what an embedding depends on beside the picture or text."""
        import xxhash

        total = xxhash.xxh3_128(self.config.read_bytes() if self.config else b"")
        with self.weights.open("rb") as file:
            while block := file.read(1 << 22):
                total.update(block)
        return total.hexdigest()

    def settings(self) -> dict[str, Any]:
        """The object of the architecture's file; raises ModelError when it is damaged."""
        if self.config is None:
            return {}
        try:
            values = json.loads(self.config.read_bytes())
            assert isinstance(values["model_cfg"], dict)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise ModelError(
                "the CLIP model's configuration is damaged",
                where=f"{self.config}: {error!r}",
                expected="JSON with `model_cfg`, as open_clip writes it",
                fix="fetch it again, or score nothing",
                run=(_OFF,),
            ) from error
        return dict(values)


def find_scorer(model: str, may_fetch: bool) -> ScorerFiles | None:
    """The files of `caption.score_model`; None when they are on the hub and were not fetched.

    Raises ModelError for pickles, for paths where no model is, and when fetching fails.
    """
    path = Path(model).expanduser()
    if path.suffix.lower() in _PICKLES:
        raise _pickle(model)
    if path.is_file():
        config = path.with_name(CONFIG)
        return ScorerFiles(path, config if config.is_file() else None)
    if path.is_dir():
        return _in_folder(path, model)
    hub_id = _HUB_ID if model in (AUTO_SCORER, SCORER_ARCHITECTURE) else model
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id):
        raise ModelError(
            f"{model!r} is no CLIP model",
            where="caption.score_model",
            expected=f"`{AUTO_SCORER}`, `none`, `{SCORER_ARCHITECTURE}`, an open_clip model's "
            "folder or .safetensors file, or a hub id OWNER/NAME",
            fix="correct the name, or score nothing",
            run=(_OFF,),
        )
    return _from_hub(hub_id, may_fetch)


def _in_folder(folder: Path, model: str) -> ScorerFiles:
    weights, config = folder / WEIGHTS, folder / CONFIG
    missing = [path.name for path in (config, weights) if not path.is_file()]
    if not missing:
        return ScorerFiles(weights, config)
    if any(path.suffix in _PICKLES for path in folder.iterdir()) and not weights.is_file():
        raise _pickle(model)
    raise ModelError(
        f"the CLIP model {model} is incomplete",
        where=f"{folder} lacks {' and '.join(missing)}",
        expected="a folder as open_clip's hub repositories are",
        fix="fetch it again, or score nothing",
        run=(_OFF,),
    )


def _from_hub(hub_id: str, may_fetch: bool) -> ScorerFiles | None:
    here = snapshot(hub_id, None, _PATTERNS, is_local=True)
    if here is not None and (here / CONFIG).is_file() and (here / WEIGHTS).is_file():
        return ScorerFiles(here / WEIGHTS, here / CONFIG)
    if not may_fetch:
        return None
    _log.info("fetching the CLIP model %s from the Hugging Face hub", hub_id)
    what = f"the CLIP model {hub_id}"
    folder = snapshot(hub_id, None, _PATTERNS, is_local=False, what=what, run=(_OFF,))
    assert folder is not None  # With the network allowed a failure raises.
    return _in_folder(folder, hub_id)


def _pickle(model: str) -> ModelError:
    return ModelError(
        "this CLIP model is a pickle: opening one can run any code it carries",
        where=model,
        expected=f"{WEIGHTS} with {CONFIG} beside it",
        fix="name the .safetensors version, or score nothing",
        run=(_OFF,),
    )
