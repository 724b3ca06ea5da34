"""The few tensors that belong to a whole set: prompts' embeddings and the latent-to-colour map."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from latentmill.cache.files import write_bytes
from latentmill.cache.fingerprints import FORMAT, digest, text_key
from latentmill.cache.index import FileStamp, SetIndex, file_sha256
from latentmill.cache.library import Library, read_origin
from latentmill.cache.mapped import LatentToRgb
from latentmill.cache.tensor_file import tensor_bytes
from latentmill.datasets.buckets import fit
from latentmill.datasets.images import LoadRules, load_picture
from latentmill.stages.encoding.encoders import Encoders, repeatable
from latentmill.stages.encoding.latent_colours import fit_latent_to_rgb
from latentmill.stages.encoding.survey import Recipe, Wanted
from latentmill.stages.settings import SampleSettings

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_log = logging.getLogger(__name__)
_MOST_PICTURES = 32
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class ExtrasPlan:
    """What the extras of a set hold; `texts` are the empty caption, the negative, the prompts."""

    texts: tuple[str, ...]
    text_keys: tuple[str, ...]
    pictures: tuple[Wanted, ...]

    @property
    def colours_key(self) -> str:
        """Name the latents that the colour map is fitted on."""
        return digest("colours", [FORMAT, [list(_keys(one)) for one in self.pictures]])

    @property
    def file_name(self) -> str:
        """The file's name, from all that decides its content."""
        key = digest("extras", [FORMAT, list(self.text_keys), self.colours_key])
        return f"extras-{key[:12]}.safetensors"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where extras are written, and where what they need can be taken from."""

    folder: Path
    shards: Path
    library: Library
    rules: LoadRules
    previous: SetIndex | None


def plan_extras(wanted: Sequence[Wanted], settings: SampleSettings, recipe: Recipe) -> ExtrasPlan:
    """Choose prompts and pictures: those named, else evenly spread over the set."""
    prompts = settings.prompts or _spread_captions(wanted, settings.num_prompts)
    texts = ("", settings.negative, *prompts)
    keys = tuple(text_key([text], recipe.text) for text in texts)
    return ExtrasPlan(texts, keys, tuple(_spread(wanted, _MOST_PICTURES)))


def write_extras(
    plan: ExtrasPlan, around: Surroundings, encoders: Callable[[], Encoders]
) -> FileStamp:
    """Write the extras unless the last run's are the same; whatever exists is copied."""
    path = around.folder / plan.file_name
    known = _intact_extras(around)
    if known is not None and known.name == plan.file_name:
        return known
    old = _read_old(around.folder / known.name) if known else _OldExtras({}, "", None)
    with repeatable():
        embeddings = [
            _embedding(text, key, around, old, encoders)
            for text, key in zip(plan.texts, plan.text_keys, strict=True)
        ]
        colours = old.colours if old.colours_key == plan.colours_key else None
        colours = colours or fit_latent_to_rgb(_pairs(plan.pictures, around))
    _log.info("colours for quick previews fitted; they are off by %.3f of 1 (RMS)", colours.error)
    content = _to_bytes(embeddings, colours, plan)
    write_bytes(path, content)
    return FileStamp(path.name, len(content), file_sha256(path))


@dataclass(frozen=True, slots=True)
class _OldExtras:
    embeddings: "Mapping[str, torch.Tensor]"
    colours_key: str
    colours: LatentToRgb | None


def _embedding(
    text: str, key: str, around: Surroundings, old: _OldExtras, encoders: Callable[[], Encoders]
) -> "torch.Tensor":
    origin = around.library.texts.get(key)
    if origin is not None:
        return read_origin(around.shards, origin)["text"][origin.variant]
    if key in old.embeddings:
        return old.embeddings[key]
    return encoders().encode_text(text).embedding


def _pairs(
    pictures: Sequence[Wanted], around: Surroundings
) -> "Iterable[tuple[torch.Tensor, Image]]":
    for one in pictures:
        latent = read_origin(around.shards, around.library.latents[one.keys.latent_key])
        picture = load_picture(Path(one.sample.record.file), around.rules)
        yield latent["latent_mean"], fit(picture.image, one.placement)


def _to_bytes(
    embeddings: "Sequence[torch.Tensor]", colours: LatentToRgb, plan: ExtrasPlan
) -> bytes:
    import torch

    tensors = {
        "empty_text": embeddings[0],
        "negative": embeddings[1],
        "prompts": torch.stack(list(embeddings[2:])),
        "rgb_weight": colours.weight,
        "rgb_bias": colours.bias,
        "rgb_error": torch.tensor(colours.error),
    }
    header = {"text_keys": json.dumps(plan.text_keys), "colours_key": plan.colours_key}
    return tensor_bytes(tensors, header)


def _intact_extras(around: Surroundings) -> FileStamp | None:
    if around.previous is None:
        return None
    stamp = around.previous.extras
    path = around.folder / stamp.name
    return stamp if path.is_file() and file_sha256(path) == stamp.sha256 else None


def _read_old(path: Path) -> _OldExtras:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        keys = json.loads(header["text_keys"])
        prompts = list(file.get_tensor("prompts"))
        texts = [file.get_tensor("empty_text"), file.get_tensor("negative"), *prompts]
        colours = LatentToRgb(
            file.get_tensor("rgb_weight"),
            file.get_tensor("rgb_bias"),
            float(file.get_tensor("rgb_error")),
        )
    return _OldExtras(dict(zip(keys, texts, strict=True)), header["colours_key"], colours)


def _spread_captions(wanted: Sequence[Wanted], count: int) -> tuple[str, ...]:
    captions = dict.fromkeys(one.sample.caption for one in wanted if one.sample.caption)
    return tuple(_spread(list(captions), count)) or ("",)


def _spread(items: Sequence[ItemT], count: int) -> list[ItemT]:
    """Take up to `count` items at even distances."""
    num = min(count, len(items))
    return [items[index * len(items) // num] for index in range(num)]


def _keys(one: Wanted) -> tuple[str, str]:
    return one.keys.id, one.keys.latent_key
