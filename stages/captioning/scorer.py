"""A CLIP model's files and pictures or texts to unit vectors."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from latentmill.cache.models.weights import quiet
from latentmill.datasets.errors import LatentmillError, ModelError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.halving import first_line, in_halves, too_large
from latentmill.stages.captioning.scorer_files import ScorerFiles
from latentmill.stages.device import choose_device
from latentmill.stages.settings import SCORER_ARCHITECTURE

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from latentmill.datasets.agreement import Vectors

_log = logging.getLogger(__name__)

_OFF = "caption.score_model=none"


@dataclass(frozen=True, slots=True)
class Scorer:
    """A loaded CLIP model, how it takes pictures and texts, and the device it is on."""

    model: Any
    preprocess: Any
    tokenizer: Any
    device: "torch.device"


def load_scorer(files: ScorerFiles, device: str) -> Scorer:
    """Build the model and load every weight; raises ModelError when they do not fit."""
    target = choose_device(device, "caption.device")
    _log.info("loading the CLIP model %s", files.weights)
    settings = files.settings()
    try:
        with quiet():
            return _load(files, settings, target)
    except LatentmillError:
        raise
    except Exception as error:  # Damaged files raise whatever they like.
        raise ModelError(
            f"the CLIP model cannot be read: {first_line(error)}",
            where=str(files.weights),
            expected=f"weights and configuration as open_clip writes them, or of the architecture "
            f"{SCORER_ARCHITECTURE}",
            fix="fetch it again, name another one, or score nothing",
            run=(Command("caption", settings=(_OFF,)),),
        ) from error


def embed_pictures(scorer: Scorer, images: "Sequence[Image.Image]") -> "list[Vectors]":
    """One unit vector for each RGB picture; out of memory, the batch is halved."""
    return in_halves(
        partial(_picture_vectors, scorer), images, "picture", scorer.device, _does_not_fit(scorer)
    )


def embed_texts(scorer: Scorer, texts: Sequence[str]) -> "list[Vectors]":
    """One unit vector for each text; what is beyond the model's length is cut."""
    return in_halves(
        partial(_text_vectors, scorer), texts, "text", scorer.device, _does_not_fit(scorer)
    )


def _load(files: ScorerFiles, settings: dict[str, Any], device: "torch.device") -> Scorer:
    import open_clip
    from safetensors.torch import load_file

    shape = dict(settings.get("model_cfg") or open_clip.get_model_config(SCORER_ARCHITECTURE))
    model = _build(shape)
    state = load_file(files.weights)
    state.pop("text.transformer.embeddings.position_ids", None)  # A buffer of older releases.
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        names = ", ".join([*missing, *unexpected][:3])
        raise ValueError(f"{len(missing)} weights missing, {len(unexpected)} too many ({names})")
    model = model.eval().to(device)
    return Scorer(model, _preprocess(model, settings), _tokenizer(files, shape), device)


def _build(shape: dict[str, Any]) -> Any:
    import open_clip

    shape = {**shape, "text_cfg": dict(shape["text_cfg"])}
    own_text = shape.pop("custom_text", False) or "hf_model_name" in shape["text_cfg"]
    if "multimodal_cfg" in shape:
        raise ValueError("it is a CoCa model; a CLIP model is needed")
    if "hf_model_name" in shape["text_cfg"]:
        shape["text_cfg"]["hf_model_pretrained"] = False  # All weights are in the one file.
    return (open_clip.CustomTextCLIP if own_text else open_clip.CLIP)(**shape)


def _preprocess(model: Any, settings: dict[str, Any]) -> Any:
    from open_clip import image_transform

    known = settings.get("preprocess_cfg") or {}
    names = ("mean", "std", "interpolation", "resize_mode")
    chosen = {name: known[name] for name in names if known.get(name) is not None}
    return image_transform(model.visual.image_size, is_train=False, **chosen)


def _tokenizer(files: ScorerFiles, shape: dict[str, Any]) -> Any:
    from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

    text = shape["text_cfg"]
    length = int(text.get("context_length") or 77)
    extra = dict(text.get("tokenizer_kwargs") or {})
    if text.get("hf_tokenizer_name"):
        return HFTokenizer(str(files.weights.parent), context_length=length, **extra)
    return SimpleTokenizer(context_length=length, **extra)


def _picture_vectors(scorer: Scorer, images: "Sequence[Image.Image]") -> "Sequence[Vectors]":
    import torch

    pixels = torch.stack([scorer.preprocess(image) for image in images]).to(scorer.device)
    with torch.inference_mode():
        return _vectors(scorer.model.encode_image(pixels, normalize=True))


def _text_vectors(scorer: Scorer, texts: Sequence[str]) -> "Sequence[Vectors]":
    import torch

    tokens = scorer.tokenizer(list(texts)).to(scorer.device)
    with torch.inference_mode():
        return _vectors(scorer.model.encode_text(tokens, normalize=True))


def _vectors(features: "torch.Tensor") -> "Sequence[Vectors]":
    if not features.isfinite().all():
        raise ModelError(
            "the CLIP model gives values that are not numbers",
            where="caption.score_model",
            fix="fetch it again, name another one, or score nothing",
            run=(Command("caption", settings=(_OFF,)),),
        )
    return list(features.float().cpu().numpy())


def _does_not_fit(scorer: Scorer) -> Any:
    settings = ("caption.device=cpu", _OFF)
    return lambda reason: too_large("the CLIP model", reason, scorer.device, settings)
