"""A captioner's name and pictures to one line of text for each."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from latentmill.cache.memory import is_out_of_memory
from latentmill.cache.models.weights import quiet
from latentmill.datasets.errors import ModelError, OutOfMemoryError
from latentmill.datasets.next_steps import Command
from latentmill.stages.captioning.captioner_folder import find_model
from latentmill.stages.captioning.generation import Captioner, Search
from latentmill.stages.captioning.halving import first_line, in_halves, too_large
from latentmill.stages.captioning.kinds import KINDS, Kind, class_of
from latentmill.stages.device import choose_device

if TYPE_CHECKING:
    import torch
    from PIL import Image

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def load_captioner(model: str, revision: str, device: str) -> Captioner:
    """Load a captioner of a known kind once per process.

    Raises ModelError when it cannot be had, and when weights are missing or left over: a model
    with random layers writes word salad.
    """
    target = choose_device(device, "caption.device")
    folder, kind = find_model(model, revision)
    known = KINDS[kind]
    _log.info("loading the captioner %s", model)
    classes = class_of(known.processor_class, known), class_of(known.model_class, known)
    with quiet():
        try:
            processor = classes[0].from_pretrained(str(folder), local_files_only=True)
            loaded, info = classes[1].from_pretrained(
                str(folder),
                local_files_only=True,
                output_loading_info=True,
                use_safetensors=None if known.may_be_pickle else True,
            )
            # Half precision is for cards: CPUs are slow at it, or lack operations.
            loaded = (loaded.float() if target.type == "cpu" else loaded).eval().to(target)
        except Exception as error:  # Damaged files raise whatever they like.
            if is_out_of_memory(error):
                raise _does_not_fit(target, first_line(error)) from error
            raise ModelError(
                f"the captioner {model} cannot be read: {first_line(error)}",
                where=str(folder),
                expected=f"a {known.title} captioning model as `save_pretrained` writes it",
                fix="fetch it again, or name another one",
                run=(Command("caption", settings=("caption.model=DIR",)),),
            ) from error
    _require_all_weights(model, known, info)
    return Captioner(kind, loaded, processor, target)


def describe(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    """One text for each RGB picture, the prefix included; empty where nothing was generated.

    Out of memory, the batch is halved. Raises OutOfMemoryError when one picture is too much.
    """
    return in_halves(
        lambda some: _generate(captioner, some, search),
        images,
        "picture",
        captioner.device,
        lambda reason: _does_not_fit(captioner.device, reason),
    )


def _generate(captioner: Captioner, images: "Sequence[Image.Image]", search: Search) -> list[str]:
    import torch

    with torch.inference_mode(), quiet():
        added = KINDS[captioner.kind].generate(captioner, images, search)
    return [_joined(search.prefix, text) for text in added]


def _joined(prefix: str, added: str) -> str:
    return " ".join(part for part in (prefix.strip(), " ".join(added.split())) if part)


def _require_all_weights(model: str, kind: Kind, info: dict[str, Any]) -> None:
    faults = [
        f"{len(names)} {what} ({', '.join(map(str, sorted(names, key=str)[:3]))})"
        for what, names in (
            ("missing", info.get("missing_keys", ())),
            ("not of this model", _left_over(info)),
            ("of another size", info.get("mismatched_keys", ())),
        )
        if names
    ]
    if faults:
        raise ModelError(
            f"the weights of {model} are not those of a {kind.title} captioner",
            where="; ".join(faults),
            expected=f"every weight of {kind.model_class}, and no other",
            fix="fetch the model again, or name another one",
            run=(Command("caption", settings=("caption.model=DIR",)),),
        )


def _left_over(info: dict[str, Any]) -> list[str]:
    """Weights that no layer took, but for a buffer that older releases saved."""
    return [
        str(name)
        for name in info.get("unexpected_keys", ())
        if not str(name).endswith("position_ids")
    ]


def _does_not_fit(device: "torch.device", reason: str) -> OutOfMemoryError:
    settings = ("caption.num_beams=1", "caption.device=cpu")
    return too_large("the captioner", reason, device, settings)
