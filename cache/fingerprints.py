"""Names what a cached tensor depends on, so that nothing stale is used and nothing fresh redone."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from latentmill.datasets.buckets import Placement

if TYPE_CHECKING:
    import torch

    from latentmill.datasets.selection import Sample

FORMAT = 1
"""Version of the shards and indexes: entries of other versions are ignored, never deleted."""


class TrainedSource(Protocol):
    """What of a source's settings decides how its pictures are trained on."""

    @property
    def repeats(self) -> int:
        """Times per epoch."""

    @property
    def weight(self) -> float:
        """Factor on the loss."""

    @property
    def is_regularisation(self) -> bool:
        """Pictures of the class."""

    @property
    def crop_anchor(self) -> str:
        """What stays of a picture that is cut: `centre` or `top`."""


@dataclass(frozen=True, slots=True)
class SampleKeys:
    """What a sample is called and what its tensors depend on.

    `flipped_key` names the latent of the mirror image; empty where there is none.
    """

    id: str
    latent_key: str
    text_key: str
    flipped_key: str = ""

    @property
    def latent_keys(self) -> tuple[str, ...]:
        """The latents of the sample: the picture, then its mirror image."""
        return (self.latent_key, self.flipped_key) if self.flipped_key else (self.latent_key,)


@dataclass(frozen=True, slots=True)
class TextRecipe:
    """All that decides a text's embedding, the text aside."""

    tokenizer: str
    weights: str
    clip_skip: int
    dtype: str
    chunks: int = 1


def digest(kind: str, value: Any) -> str:
    """Hash a JSON-able value to 64 hex digits; `kind` keeps equal values of two uses apart."""
    content = json.dumps([kind, value], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def latent_key(
    pixels: str, placement: Placement, vae: str, dtype: str, is_flipped: bool = False
) -> str:
    """Name the latent of a picture with these decoded pixels, placed so, encoded by this VAE."""
    values = [FORMAT, pixels, placement.recipe, vae, dtype]
    return digest("latent", [*values, "flipped"] if is_flipped else values)


def imported_key(content: str, dtype: str, is_flipped: bool = False) -> str:
    """Name a latent that another program encoded, by its content."""
    return digest("imported latent", [FORMAT, content, dtype, is_flipped])


def text_key(captions: Sequence[str], recipe: TextRecipe) -> str:
    """Name the embedding of the final captions of one picture."""
    values = [recipe.tokenizer, recipe.weights, recipe.clip_skip, recipe.dtype]
    # What came later is left out where it changes nothing: older entries keep their names.
    later = [recipe.chunks] if recipe.chunks != 1 else []
    return digest("text", [FORMAT, list(captions), *values, *later])


def shard_key(bucket: str, samples: Iterable[SampleKeys]) -> str:
    """Name a shard after its bucket and its samples' ids and keys, in order."""
    entries = [[one.id, one.latent_key, one.text_key, *one.latent_keys[1:]] for one in samples]
    return digest("shard", [FORMAT, bucket, entries])


def data_digest(samples: "Sequence[Sample]", sources: Sequence[TrainedSource]) -> str:
    """Name a selection of samples: any changed pixel, caption, repeat or weight changes it."""
    return digest("data", [_sample_values(sample, sources) for sample in samples])


def tensors_hash(tensors: "Mapping[str, torch.Tensor]", settings: Mapping[str, Any]) -> str:
    """Hash weights by name, shape and fp32 value, and the settings that they are run with."""
    import torch

    total = hashlib.sha256(digest("settings", dict(settings)).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().to(torch.float32).contiguous()
        total.update(json.dumps([name, list(tensor.shape)]).encode())
        total.update(tensor.numpy().data)
    return total.hexdigest()


def _sample_values(sample: "Sample", sources: Sequence[TrainedSource]) -> list[Any]:
    source = sources[sample.record.source]
    return [
        sample.record.id,
        sample.record.pixels,
        sample.caption,
        sample.caption_by,
        source.repeats,
        source.weight,
        source.is_regularisation,
        *([] if source.crop_anchor == "centre" else [source.crop_anchor]),
    ]
