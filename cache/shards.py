"""Writes samples of one bucket into a tar of deterministic bytes, its index beside it."""

import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from latentmill.cache.files import committed
from latentmill.cache.fingerprints import SampleKeys, shard_key
from latentmill.cache.index import (
    Entry,
    ShardIndex,
    TextVariant,
    file_sha256,
    write_shard_index,
)

if TYPE_CHECKING:
    import torch


LATENT_SUFFIXES: Final = ("", "_flipped")
"""Ends of the names of a picture's tensors, `latent_mean` and `latent_std`, and its mirror's."""


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """A sample ready to be written.

    Tensors: `latent_mean`, `latent_std` [4, h, w], the same with `_flipped` for the mirror image,
    `loss_mask` [h, w] of a padded picture, `text` [variants, n, width]. `details` become `ID.json`;
    `texts` are the keys of the variants and what of each was cut off.
    """

    keys: SampleKeys
    tensors: "Mapping[str, torch.Tensor]"
    details: Mapping[str, Any]
    texts: tuple[TextVariant, ...]


_Written: TypeAlias = tuple[SampleKeys, tuple[TextVariant, ...]]


def shard_name(bucket: str, keys: Iterable[SampleKeys]) -> str:
    """Name a shard by its content before that exists: `512x512-0123456789ab`."""
    return f"{bucket}-{shard_key(bucket, keys)[:12]}"


def write_shard(
    folder: Path, name: str, bucket: str, samples: Iterable[EncodedSample]
) -> ShardIndex:
    """Write `NAME.tar`, then `NAME.json`; a run killed in between leaves nothing that counts.

    Samples are written as they come, one in memory at a time.
    """
    with committed(folder / f"{name}.tar") as temporary:
        with temporary.open("wb") as stream:
            written = _write_members(stream, samples)
        index = ShardIndex(
            name=name,
            bucket=bucket,
            bytes=temporary.stat().st_size,
            sha256=file_sha256(temporary),
            entries=_located(temporary, written),
        )
    write_shard_index(folder, index)
    return index


def _write_members(stream: BinaryIO, samples: Iterable[EncodedSample]) -> list[_Written]:
    """Write two members per sample; times, owner and mode are fixed so that bytes repeat."""
    from safetensors.torch import save
    from webdataset import TarWriter

    written = []
    with TarWriter(stream, user="", group="", mode=0o644, mtime=0, encoder=False) as tar:
        for sample in samples:
            details = json.dumps(sample.details, sort_keys=True, ensure_ascii=True)
            tar.write(
                {
                    "__key__": sample.keys.id,
                    "json": details.encode("ascii"),
                    "safetensors": save(dict(sample.tensors), metadata={"format": "pt"}),
                }
            )
            written.append((sample.keys, sample.texts))
    return written


def _located(path: Path, written: list[_Written]) -> tuple[Entry, ...]:
    with tarfile.open(path) as tar:
        members = {member.name: member for member in tar}
    return tuple(
        Entry(
            id=keys.id,
            latent_key=keys.latent_key,
            text_key=keys.text_key,
            tensors_offset=members[f"{keys.id}.safetensors"].offset_data,
            tensors_bytes=members[f"{keys.id}.safetensors"].size,
            details_offset=members[f"{keys.id}.json"].offset_data,
            details_bytes=members[f"{keys.id}.json"].size,
            cut=next((text.cut for text in texts if text.cut), ""),
            flipped_key=keys.flipped_key,
            variants=texts if len(texts) > 1 else (),
        )
        for keys, texts in written
    )
