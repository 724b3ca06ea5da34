"""What the shards of a folder already hold, found by key."""

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from latentmill.cache.fingerprints import SampleKeys
from latentmill.cache.index import Entry, ShardIndex, is_intact, read_shard_indexes
from latentmill.cache.mapped import tensors_in
from latentmill.cache.shards import LATENT_SUFFIXES

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where encoded tensors lie: a member of a shard.

    `suffix` ends the names of a latent's tensors; `variant` is the row of a text, `cut` its end.
    """

    shard: str
    offset: int
    bytes: int
    suffix: str = ""
    variant: int = 0
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """Sound entries only; where several hold the same, the first shard by name counts."""

    samples: Mapping[SampleKeys, Origin] = field(default_factory=dict)
    latents: Mapping[str, Origin] = field(default_factory=dict)
    texts: Mapping[str, Origin] = field(default_factory=dict)
    shards: Mapping[str, ShardIndex] = field(default_factory=dict)


def read_library(folder: Path, needed: Collection[SampleKeys], texts: Collection[str]) -> Library:
    """Look up what is needed; only shards that hold some of it are read and their bytes checked.

    `texts` are further text keys. A damaged shard counts as absent, and stays where it is.
    """
    keys = {key for sample in needed for key in (*sample.latent_keys, sample.text_key)} | set(texts)
    useful = [
        index
        for index in read_shard_indexes(folder)
        if any(not keys.isdisjoint(_all_keys(entry)) for entry in index.entries)
    ]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        intact = pool.map(lambda index: is_intact(folder, index), useful)
        return _indexed([index for index, sound in zip(useful, intact, strict=True) if sound])


def read_origin(folder: Path, origin: Origin) -> "dict[str, torch.Tensor]":
    """Read the tensors of one sample."""
    with (folder / f"{origin.shard}.tar").open("rb") as stream:
        stream.seek(origin.offset)
        return tensors_in(bytearray(stream.read(origin.bytes)), 0)


def _indexed(shards: Iterable[ShardIndex]) -> Library:
    samples: dict[SampleKeys, Origin] = {}
    latents: dict[str, Origin] = {}
    texts: dict[str, Origin] = {}
    by_name = {index.name: index for index in shards}
    for index in by_name.values():
        for entry in index.entries:
            origin = Origin(index.name, entry.tensors_offset, entry.tensors_bytes, cut=entry.cut)
            samples.setdefault(entry.keys, origin)
            for key, suffix in zip(entry.keys.latent_keys, LATENT_SUFFIXES, strict=False):
                latents.setdefault(key, replace(origin, suffix=suffix))
            for row, text in enumerate(entry.texts):
                texts.setdefault(text.key, replace(origin, variant=row, cut=text.cut))
    return Library(samples, latents, texts, by_name)


def _all_keys(entry: Entry) -> list[str]:
    return [*entry.keys.latent_keys, entry.text_key, *(text.key for text in entry.variants)]
