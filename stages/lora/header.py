"""What a LoRA file says of itself: kohya's `ss_*`, `modelspec.*`, and ours under `latentmill.*`.

A1111 tells the base model by `ss_base_model_version` and `ss_v2`. No caption or tag is written,
no path of this machine, no date: the same run gives the same bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from latentmill.stages.settings import TrainSettings

SD2_TEXT_WIDTH: Final = 1024
_PRIVATE: Final = {"name", "device", "workers", "keep_states"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the weights come from: `model` is its name without its place.

    `draft_captions` is the number of samples whose caption nobody looked at.
    """

    name: str
    model: str
    text_width: int
    prediction: str
    cache_digest: str
    num_samples: int
    draft_captions: int
    buckets: tuple[str, ...]


def lora_header(settings: TrainSettings, origin: Provenance, step: int) -> dict[str, str]:
    """The header of the LoRA as it is after so many optimiser steps."""
    fields = {**_kohya(settings, origin), **_modelspec(origin), **_own(settings, origin)}
    return {**fields, "ss_steps": str(step)}


def _kohya(settings: TrainSettings, origin: Provenance) -> dict[str, str]:
    is_v2 = origin.text_width == SD2_TEXT_WIDTH
    is_v = origin.prediction == "v_prediction"
    return {
        "ss_base_model_version": ("sd_v2" if is_v2 else "sd_v1") + ("_v" if is_v else ""),
        "ss_v2": str(is_v2),
        "ss_sd_model_name": origin.model,
        "ss_output_name": origin.name,
        "ss_network_module": "networks.lora",
        "ss_network_dim": str(settings.rank),
        "ss_network_alpha": _number(settings.alpha),
        "ss_network_args": json.dumps(_network_args(settings)),
        "ss_num_train_images": str(origin.num_samples),
        "ss_learning_rate": _number(settings.learning_rate),
        "ss_lr_scheduler": settings.scheduler,
        "ss_optimizer": "torch.optim.adamw.AdamW",
        "ss_batch_size_per_device": str(settings.batch_size),
        "ss_gradient_accumulation_steps": str(settings.gradient_accumulation),
        "ss_seed": str(settings.seed),
        "ss_noise_offset": _number(settings.noise_offset),
        "ss_min_snr_gamma": _number(settings.min_snr_gamma),
        "ss_caption_dropout_rate": _number(settings.caption_dropout),
    }


def _modelspec(origin: Provenance) -> dict[str, str]:
    family = "stable-diffusion-v2" if origin.text_width == SD2_TEXT_WIDTH else "stable-diffusion-v1"
    return {
        "modelspec.sai_model_spec": "1.0.0",
        "modelspec.architecture": f"{family}/lora",
        "modelspec.implementation": "diffusers",
        "modelspec.title": origin.name,
        "modelspec.resolution": max(origin.buckets, key=_area),
        "modelspec.prediction_type": "v" if origin.prediction == "v_prediction" else "epsilon",
    }


def _own(settings: TrainSettings, origin: Provenance) -> dict[str, str]:
    kept = {key: value for key, value in settings.model_dump().items() if key not in _PRIVATE}
    return {
        "latentmill.version": metadata.version("latentmill"),
        "latentmill.cache_digest": origin.cache_digest,
        "latentmill.draft_captions": str(origin.draft_captions),
        "latentmill.train": json.dumps(kept, sort_keys=True),
    }


def _network_args(settings: TrainSettings) -> Mapping[str, Any]:
    if settings.targets == "transformer+conv":
        return {"conv_dim": str(settings.rank), "conv_alpha": _number(settings.alpha)}
    return {}


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _area(bucket: str) -> int:
    width, _, height = bucket.partition("x")
    return int(width) * int(height)
