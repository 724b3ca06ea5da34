import pickle
from typing import TYPE_CHECKING

import torch

from latentmill.cache.fingerprints import data_digest
from latentmill.cache.mapped import MappedCache
from latentmill.datasets.records import read_manifest
from latentmill.datasets.selection import select_samples
from latentmill.stages.settings import Source

if TYPE_CHECKING:
    from conftest import PictureSet


def _open(pictures: "PictureSet") -> MappedCache:
    return MappedCache.open(pictures.layout.cache_index, pictures.layout.shards)


def test_every_sample_is_read_with_its_own_shapes_and_caption(encoded_set: "PictureSet") -> None:
    cache = _open(encoded_set)
    records = {record.id: record for record in read_manifest(encoded_set.layout.manifest)}
    assert [sample.id for sample in cache.samples] == sorted(records)
    for sample in cache.samples:
        width, height = map(int, sample.bucket.split("x"))
        tensors = cache.read(sample.id)
        assert tensors.latent_mean.shape == (4, height // 4, width // 4)
        assert tensors.latent_std.shape == tensors.latent_mean.shape
        assert tensors.text.shape == (1, 77, 64)
        dtypes = {tensors.latent_mean.dtype, tensors.latent_std.dtype, tensors.text.dtype}
        assert dtypes == {torch.float16}
        assert cache.details(sample.id)["captions"] == [records[sample.id].caption]
        assert (sample.repeats, sample.weight, sample.caption_by) == (1, 1.0, "file")


def test_tensors_share_memory_with_the_file(encoded_set: "PictureSet") -> None:
    cache = _open(encoded_set)
    first, second = cache.read(cache.samples[0].id), cache.read(cache.samples[0].id)
    assert first.latent_mean.data_ptr() == second.latent_mean.data_ptr()
    assert first.latent_mean.is_contiguous()


def test_writing_to_a_tensor_does_not_reach_the_file(encoded_set: "PictureSet") -> None:
    before = encoded_set.shard_bytes()
    cache = _open(encoded_set)
    cache.read(cache.samples[0].id).latent_mean.zero_()
    assert encoded_set.shard_bytes() == before


def test_a_copy_for_another_process_reads_the_same(encoded_set: "PictureSet") -> None:
    cache = _open(encoded_set)
    sample = cache.samples[0].id
    tensors = cache.read(sample)
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301
    assert torch.equal(copy.read(sample).text, tensors.text)
    assert copy.digest == cache.digest


def test_the_extras_hold_what_previews_need(encoded_set: "PictureSet") -> None:
    cache = _open(encoded_set)
    assert [prompt.text for prompt in cache.prompts] == ["a red circle"]
    assert cache.negative.text == "blurry"
    for embedding in (cache.prompts[0].embedding, cache.negative.embedding, cache.empty_text):
        assert embedding.shape == (77, 64)
    assert cache.latent_to_rgb.weight.shape == (3, 4)
    latent = cache.read(cache.samples[0].id).latent_mean
    picture = cache.latent_to_rgb.picture(latent)
    assert picture.shape == (3, *latent.shape[1:])
    assert 0 <= float(picture.min()) <= float(picture.max()) <= 1
    assert (cache.scaling_factor, cache.shift_factor) == (1.0, 0.0)


def test_the_data_digest_is_that_of_the_selection(encoded_set: "PictureSet") -> None:
    sources = (Source(path="data"),)
    records = read_manifest(encoded_set.layout.manifest)
    cache = _open(encoded_set)
    selection = select_samples(records, None, sources, cache.index.accept_drafts)
    assert data_digest(selection.samples, sources) == cache.data_digest
    assert data_digest(selection.samples[1:], sources) != cache.data_digest
