"""Adds up what lies in a folder of shards: bytes by kind, samples, who uses what."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from latentmill.cache.index import Entry, ShardIndex, read_shard_indexes
from latentmill.cache.works import User

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class ShardSums:
    """Shards and what they take, in bytes; `other_bytes` are details and the tar's own."""

    shards: int
    samples: int
    latent_bytes: int
    text_bytes: int
    other_bytes: int

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.latent_bytes + self.text_bytes + self.other_bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    """A cache folder by use: by this work, by other works alone, by nobody.

    `superseded` are samples in used shards that no index names: replaced or removed ones.
    """

    used: ShardSums
    others: ShardSums
    unused: ShardSums
    samples_used: int
    superseded: int
    works: tuple[Path, ...]
    unreachable: tuple[Path, ...]


def read_statistics(folder: Path, users: Sequence[User], work: Path) -> Statistics:
    """Add up the shards of `folder`; indexes and tensors' headers are read, no tensor."""
    own = {name for user in users if user.work.absolute() == work for name in user.shards}
    others = {name for user in users for name in user.shards} - own
    indexes = list(read_shard_indexes(folder))
    mine = [user.index for user in users if user.index and user.work.absolute() == work]
    kept = [index for index in indexes if index.name in own | others]
    in_use = _samples_in_use(users)
    return Statistics(
        used=_sums(folder, [index for index in indexes if index.name in own]),
        others=_sums(folder, [index for index in indexes if index.name in others]),
        unused=_sums(folder, [index for index in indexes if index.name not in own | others]),
        samples_used=sum(len(index.samples) for index in mine),
        superseded=sum(len(index.entries) for index in kept) - _count(kept, in_use),
        works=tuple(user.work for user in users),
        unreachable=tuple(user.work for user in users if user.index is None),
    )


def _samples_in_use(users: Sequence[User]) -> set[tuple[str, str]]:
    return {
        (sample.shard, sample.id) for user in users if user.index for sample in user.index.samples
    }


def _count(indexes: Sequence[ShardIndex], in_use: Collection[tuple[str, str]]) -> int:
    return sum((index.name, entry.id) in in_use for index in indexes for entry in index.entries)


def _sums(folder: Path, indexes: Sequence[ShardIndex]) -> ShardSums:
    kinds = Counter[str]()
    for index in indexes:
        kinds.update(_kinds(folder / f"{index.name}.tar", index))
    total = sum(index.bytes for index in indexes)
    return ShardSums(
        shards=len(indexes),
        samples=sum(len(index.entries) for index in indexes),
        latent_bytes=kinds["latent"],
        text_bytes=kinds["text"],
        other_bytes=total - kinds["latent"] - kinds["text"],
    )


def _kinds(path: Path, index: ShardIndex) -> Counter[str]:
    """Bytes of tensors by the first word of their names; nothing of a shard that is not whole."""
    kinds = Counter[str]()
    try:
        with path.open("rb") as stream:
            for entry in index.entries:
                for name, value in _header(stream, entry).items():
                    begin, end = value.get("data_offsets", (0, 0))
                    kinds[name.partition("_")[0]] += end - begin
    except (OSError, ValueError, AttributeError, TypeError):
        return Counter()
    return kinds


def _header(stream: BinaryIO, entry: Entry) -> dict[str, dict[str, list[int]]]:
    stream.seek(entry.tensors_offset)
    length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    if length > entry.tensors_bytes:
        raise ValueError("no safetensors header")
    header: dict[str, dict[str, list[int]]] = json.loads(stream.read(length))
    return header
