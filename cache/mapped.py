"""Reads cached samples from local shards by mapping them into memory: any order, no unpacking."""

import json
import math
import mmap
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentmill.cache.index import (
    CachedSample,
    Entry,
    FileStamp,
    SetIndex,
    file_sha256,
    read_set_index,
    read_shard_index,
)
from latentmill.datasets.errors import DataError
from latentmill.datasets.next_steps import Command

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class SampleTensors:
    """One sample in its stored dtype; latents are unscaled.

    A latent that is one draw of another program has a `latent_std` of zeros. `flipped_*` are those
    of the mirror image, if it was encoded; `loss_mask` is 0 where a padded picture is grey.
    """

    latent_mean: "torch.Tensor"
    """[4, h, w]"""
    latent_std: "torch.Tensor"
    """[4, h, w]"""
    text: "torch.Tensor"
    """[variants, tokens, width]"""
    flipped_mean: "torch.Tensor | None" = None
    flipped_std: "torch.Tensor | None" = None
    loss_mask: "torch.Tensor | None" = None
    """[h, w]"""


@dataclass(frozen=True, slots=True)
class CachedPrompt:
    """A preview's prompt and its embedding [tokens, width]."""

    text: str
    embedding: "torch.Tensor"


@dataclass(frozen=True, slots=True)
class LatentToRgb:
    """The linear map from an unscaled latent to colours 0 to 1, fitted on the set.

    `weight` [3, 4], `bias` [3]; `error` is the root of the mean squared error on the set.
    """

    weight: "torch.Tensor"
    bias: "torch.Tensor"
    error: float

    def picture(self, latent: "torch.Tensor") -> "torch.Tensor":
        """Return a rough picture [3, h, w] in 0 to 1 of an unscaled latent [4, h, w]."""
        import torch

        flat = torch.einsum("oc,chw->ohw", self.weight, latent.float().to(self.weight.device))
        return (flat + self.bias[:, None, None]).clamp(0, 1)


@dataclass(frozen=True, slots=True)
class Extras:
    """What previews and caption dropout need; embeddings are [tokens, width]."""

    empty_text: "torch.Tensor"
    negative: CachedPrompt
    prompts: tuple[CachedPrompt, ...]
    latent_to_rgb: LatentToRgb


class MappedCache:
    """A work's samples, opened read only; picklable, and mapped anew in each process."""

    def __init__(self, set_index: SetIndex, index_path: Path, shards_folder: Path) -> None:
        self.index = set_index
        self._index_path = index_path
        self._shards_folder = shards_folder
        self._stamps = {stamp.name: stamp for stamp in set_index.shards}
        self._shard_of = {sample.id: sample.shard for sample in set_index.samples}
        self._entries = {
            name: _read_entries(shards_folder, stamp) for name, stamp in self._stamps.items()
        }
        self._maps: dict[str, mmap.mmap] = {}
        self._views: dict[str, SampleTensors] = {}  # Some hundred bytes a sample.
        self._lock = threading.Lock()
        self._require_all_samples()
        self.extras = _read_extras(index_path.parent, set_index)

    @classmethod
    def open(cls, index_path: Path, shards_folder: Path) -> "MappedCache":
        """Open the work's index and check the sizes and counts of its shards.

        Raises UsageError when nothing is cached, DataError naming a shard that is not whole.
        """
        return cls(read_set_index(index_path), index_path, shards_folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedCache, (self.index, self._index_path, self._shards_folder)

    @property
    def samples(self) -> tuple[CachedSample, ...]:
        """The samples of the set, in the order of their ids."""
        return self.index.samples

    @property
    def digest(self) -> str:
        """Name the whole content."""
        return self.index.digest

    @property
    def data_digest(self) -> str:
        """Name the pictures, captions and sources: see `fingerprints.data_digest`."""
        return self.index.data_digest

    @property
    def scaling_factor(self) -> float:
        """The VAE's factor between stored latents and what the UNet sees."""
        return self.index.scaling_factor

    @property
    def shift_factor(self) -> float:
        """Subtracted from stored latents before scaling; 0 for Stable Diffusion."""
        return self.index.shift_factor

    @property
    def empty_text(self) -> "torch.Tensor":
        """The empty caption's embedding [tokens, width]."""
        return self.extras.empty_text

    @property
    def negative(self) -> CachedPrompt:
        """The negative prompt of previews."""
        return self.extras.negative

    @property
    def prompts(self) -> tuple[CachedPrompt, ...]:
        """The prompts of previews."""
        return self.extras.prompts

    @property
    def latent_to_rgb(self) -> LatentToRgb:
        """The quick way from a latent to a small picture."""
        return self.extras.latent_to_rgb

    def read(self, sample_id: str) -> SampleTensors:
        """Return a sample's tensors; they share memory with the file, so do not write to them.

        The first read of a shard checks its SHA-256; DataError names a damaged shard.
        """
        if sample_id not in self._views:
            shard = self._shard_of[sample_id]
            entry = self._entries[shard][sample_id]
            tensors = tensors_in(self._map(shard), entry.tensors_offset)
            self._views[sample_id] = _sample_tensors(tensors)
        return self._views[sample_id]

    def tensor_file(self, sample_id: str) -> bytes:
        """Return a copy of the bytes of a sample's `.safetensors` member."""
        shard = self._shard_of[sample_id]
        entry = self._entries[shard][sample_id]
        return self._map(shard)[entry.tensors_offset : entry.tensors_offset + entry.tensors_bytes]

    def details(self, sample_id: str) -> Mapping[str, Any]:
        """Return a sample's captions, original size, crop, bucket and keys."""
        shard = self._shard_of[sample_id]
        entry = self._entries[shard][sample_id]
        start = entry.details_offset
        content = self._map(shard)[start : start + entry.details_bytes]
        values: dict[str, Any] = json.loads(content)
        return values

    def _map(self, shard: str) -> mmap.mmap:
        with self._lock:
            if shard not in self._maps:
                path = self._shards_folder / f"{shard}.tar"
                if file_sha256(path) != self._stamps[shard].sha256:
                    raise _damaged(path)
                with path.open("rb") as stream:
                    # A private writable mapping: torch warns about read-only memory.
                    self._maps[shard] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
            return self._maps[shard]

    def _require_all_samples(self) -> None:
        for sample in self.samples:
            if sample.id not in self._entries.get(sample.shard, {}):
                raise _damaged(self._shards_folder / f"{sample.shard}.json")


def _sample_tensors(tensors: "Mapping[str, torch.Tensor]") -> SampleTensors:
    mean, flipped = tensors["latent_mean"], tensors.get("latent_mean_flipped")
    none = mean.new_zeros(()).expand_as(mean)
    return SampleTensors(
        latent_mean=mean,
        latent_std=tensors.get("latent_std", none),
        text=tensors["text"],
        flipped_mean=flipped,
        flipped_std=None if flipped is None else tensors.get("latent_std_flipped", none),
        loss_mask=tensors.get("loss_mask"),
    )


def tensors_in(buffer: mmap.mmap | bytearray, offset: int) -> "dict[str, torch.Tensor]":
    """Return the tensors of a safetensors file that begins at `offset`, without copying them."""
    import torch

    header_bytes = int.from_bytes(buffer[offset : offset + 8], "little")
    start = offset + 8 + header_bytes
    tensors = {}
    for part in _parts(bytes(buffer[offset + 8 : start])):
        dtype: torch.dtype = getattr(torch, part.dtype)
        flat = torch.frombuffer(buffer, dtype=dtype, count=part.count, offset=start + part.begin)
        tensors[part.name] = flat.view(part.shape)
    return tensors


@dataclass(frozen=True, slots=True)
class _TensorPart:
    """Where in a file's data a tensor lies: `begin` in bytes, `count` in values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    count: int


@lru_cache(maxsize=256)
def _parts(header: bytes) -> tuple[_TensorPart, ...]:
    """Parse a header once: all samples of a bucket have the same."""
    dtypes = {"F16": "float16", "F32": "float32", "BF16": "bfloat16"}
    return tuple(
        _TensorPart(
            name=name,
            dtype=dtypes[value["dtype"]],
            shape=tuple(value["shape"]),
            begin=value["data_offsets"][0],
            count=math.prod(value["shape"]),
        )
        for name, value in json.loads(header).items()
        if name != "__metadata__"
    )


def _read_entries(folder: Path, stamp: FileStamp) -> dict[str, Entry]:
    """Check a shard against the set's index, without reading its data."""
    path = folder / f"{stamp.name}.tar"
    index = read_shard_index(folder / f"{stamp.name}.json")
    if index is None or (index.sha256, index.bytes) != (stamp.sha256, stamp.bytes):
        raise _damaged(path)
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise _damaged(path) from error
    if size_bytes != stamp.bytes:
        raise _damaged(path, f"{stamp.bytes:,} bytes; found {size_bytes:,}")
    return {entry.id: entry for entry in index.entries}


def _read_extras(folder: Path, index: SetIndex) -> Extras:
    from safetensors.torch import load_file

    path = folder / index.extras.name
    if not path.is_file() or file_sha256(path) != index.extras.sha256:
        raise _damaged(path)
    tensors = load_file(path)
    prompts = zip(index.prompts, tensors["prompts"], strict=True)
    return Extras(
        empty_text=tensors["empty_text"],
        negative=CachedPrompt(index.negative, tensors["negative"]),
        prompts=tuple(CachedPrompt(text, embedding) for text, embedding in prompts),
        latent_to_rgb=LatentToRgb(
            weight=tensors["rgb_weight"],
            bias=tensors["rgb_bias"],
            error=float(tensors["rgb_error"]),
        ),
    )


def _damaged(path: Path, expected: str = "the file as `cache` wrote it") -> DataError:
    return DataError(
        f"{path.name} is missing or damaged",
        where=str(path),
        expected=expected,
        fix="encode again what is damaged; nothing else is encoded",
        run=(Command("cache"),),
    )
