"""The kinds of captioners by `model_type`: their classes, and how each is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from latentmill.datasets.errors import ModelError
from latentmill.stages.captioning import blip, blip2, florence2, git
from latentmill.stages.captioning.generation import Captioner, Search

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, slots=True)
class Kind:
    """Names of transformers' classes, and the text after the prefix for each picture.

    `may_be_pickle`: weights without a `.safetensors` version are read, by torch's weights-only
    reader: the default model's pinned revision may have no other.
    """

    title: str
    model_class: str
    processor_class: str
    generate: "Callable[[Captioner, Sequence[Image.Image], Search], list[str]]"
    may_be_pickle: bool = False


KINDS: Mapping[str, Kind] = {
    "blip": Kind("BLIP", "BlipForConditionalGeneration", "BlipProcessor", blip.generate, True),
    "blip-2": Kind("BLIP-2", "Blip2ForConditionalGeneration", "Blip2Processor", blip2.generate),
    "git": Kind("GIT", "GitForCausalLM", "GitProcessor", git.generate),
    "florence2": Kind(
        "Florence-2",
        "Florence2ForConditionalGeneration",
        "Florence2Processor",
        florence2.generate,
    ),
}


def class_of(name: str, kind: Kind) -> Any:
    """One of transformers' classes; raises ModelError when this release is too old for it."""
    import transformers

    try:
        return getattr(transformers, name)
    except (AttributeError, ImportError) as error:
        raise ModelError(
            f"transformers {transformers.__version__} cannot load {kind.title} captioners",
            where=f"it has no {name}",
            expected="a newer transformers (Florence-2 came with 4.56)",
            fix="run `pip install -U transformers`, or name a captioner of another kind",
        ) from error
