import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from safetensors.torch import load

from latentmill.cache.fingerprints import SampleKeys
from latentmill.cache.index import TextVariant, is_intact, read_shard_index
from latentmill.cache.shards import EncodedSample, shard_name, write_shard

KEYS = [SampleKeys(f"p{index:015x}", f"latent {index}", f"text {index}") for index in range(3)]


def _samples(dtype: torch.dtype = torch.float16) -> list[EncodedSample]:
    generator = torch.Generator().manual_seed(0)
    samples = []
    for keys in KEYS:
        tensors = {
            "latent_mean": torch.randn(4, 6, 8, generator=generator).to(dtype),
            "latent_std": torch.rand(4, 6, 8, generator=generator).to(dtype),
            "text": torch.randn(1, 77, 16, generator=generator).to(dtype),
        }
        samples.append(
            EncodedSample(
                keys,
                tensors,
                {"captions": ["猫", keys.text_key]},
                (TextVariant(keys.text_key, "end"),),
            )
        )
    return samples


def _write(folder: Path) -> Any:
    return write_shard(folder, shard_name("64x48", KEYS), "64x48", iter(_samples()))


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "a"), _write(tmp_path / "b")
    assert first == second
    for suffix in (".tar", ".json"):
        one, other = (tmp_path / name / f"{first.name}{suffix}" for name in "ab")
        assert one.read_bytes() == other.read_bytes()


def test_the_name_follows_from_bucket_ids_keys_and_order() -> None:
    names = {
        shard_name("64x48", KEYS),
        shard_name("48x64", KEYS),
        shard_name("64x48", KEYS[::-1]),
        shard_name("64x48", KEYS[:2]),
    }
    assert len(names) == 4
    assert shard_name("64x48", KEYS) == "64x48-9189f7193d74"


def test_the_index_leads_to_every_member(tmp_path: Path) -> None:
    index = _write(tmp_path)
    content = (tmp_path / f"{index.name}.tar").read_bytes()
    assert len(content) == index.bytes
    for entry, sample in zip(index.entries, _samples(), strict=True):
        begin = entry.tensors_offset
        tensors = load(content[begin : begin + entry.tensors_bytes])
        assert all(torch.equal(tensors[name], sample.tensors[name]) for name in sample.tensors)
        begin = entry.details_offset
        assert json.loads(content[begin : begin + entry.details_bytes]) == sample.details
        assert (entry.id, entry.cut) == (sample.keys.id, "end")
    assert read_shard_index(tmp_path / f"{index.name}.json") == index
    assert is_intact(tmp_path, index)


def test_tarfile_and_safetensors_read_a_shard_without_us(tmp_path: Path) -> None:
    index = _write(tmp_path)
    with tarfile.open(tmp_path / f"{index.name}.tar") as tar:
        members = tar.getmembers()
        names = [f"{keys.id}{suffix}" for keys in KEYS for suffix in (".json", ".safetensors")]
        assert [member.name for member in members] == names
        assert {(member.mtime, member.uid, member.uname, member.mode) for member in members} == {
            (0, 0, "", 0o644)
        }
        stream = tar.extractfile(members[1])
        assert stream is not None
        assert set(load(stream.read())) == {"latent_mean", "latent_std", "text"}


def test_webdataset_reads_a_shard_without_us(tmp_path: Path) -> None:
    index = _write(tmp_path)
    path = str(tmp_path / f"{index.name}.tar")
    samples = list(webdataset.WebDataset(path, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [keys.id for keys in KEYS]
    assert {type(sample["safetensors"]) for sample in samples} == {bytes}


def test_a_failure_half_way_leaves_nothing(tmp_path: Path) -> None:
    def samples() -> Any:
        yield _samples()[0]
        raise io.UnsupportedOperation

    with pytest.raises(io.UnsupportedOperation):
        write_shard(tmp_path, "broken", "64x48", samples())
    assert list(tmp_path.iterdir()) == []
