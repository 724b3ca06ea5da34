from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentmill.cache.fingerprints import (
    SampleKeys,
    TextRecipe,
    data_digest,
    digest,
    latent_key,
    shard_key,
    tensors_hash,
    text_key,
)
from latentmill.datasets.buckets import Bucket, BucketRules, Placement, place
from latentmill.datasets.records import Record
from latentmill.datasets.selection import Sample
from latentmill.stages.settings import Source

PLACEMENT = place(1000, 700, BucketRules(512, 64, 256, 1024))
RECIPE = TextRecipe("tokenizer", "weights", 1, "float16")
RECORD = Record("p1", 0, "a.png", "/a.png", 10, 20, "PNG", 8, 9, "hash", caption="a cat")
SAMPLE = Sample(RECORD, "a cat", "file")


def _latent_key(**changes: Any) -> str:
    values = {"pixels": "hash", "placement": PLACEMENT, "vae": "weights", "dtype": "float16"}
    return latent_key(**{**values, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"pixels": "other"},
        {"vae": "other"},
        {"dtype": "float32"},
        {"placement": replace(PLACEMENT, bucket=Bucket(640, 448))},
        {"placement": replace(PLACEMENT, resized_width=641)},
        {"placement": replace(PLACEMENT, left=PLACEMENT.left + 1)},
        {"placement": replace(PLACEMENT, top=PLACEMENT.top + 1)},
    ],
    ids=str,
)
def test_all_that_changes_a_latent_changes_its_key(change: dict[str, Any]) -> None:
    assert _latent_key(**change) != _latent_key()


def test_how_a_placement_is_described_does_not_change_the_key() -> None:
    described: Placement = replace(PLACEMENT, cropped=0.5, scale=3)
    assert _latent_key(placement=described) == _latent_key()


@pytest.mark.parametrize("name", [field.name for field in fields(TextRecipe)])
def test_all_that_changes_an_embedding_changes_its_key(name: str) -> None:
    value = 2 if name in ("clip_skip", "chunks") else "other"
    assert text_key(["a"], replace(RECIPE, **{name: value})) != text_key(["a"], RECIPE)


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_texts_have_equal_keys_only_if_they_are_equal(one: list[str], other: list[str]) -> None:
    assert (text_key(one, RECIPE) == text_key(other, RECIPE)) == (one == other)


def test_the_keys_of_what_is_cached_by_now_stay_what_they_are() -> None:
    """An update that changes one of these encodes everybody's pictures or captions again."""
    assert _latent_key() == "05bce0079814740d030fbf27081a3e66fd2a059540ed92b6ae788a7bbeec6a8e"
    text = text_key(["a cat"], RECIPE)
    assert text == "2fed3801585f2cd5bc28d25a1b6acf161df4bc8a4c48b18df9252c81a294f09a"
    shard = shard_key("512x512", [SampleKeys("p1", "l", "t")])
    assert shard == "580d1599b050f80bd9b38a595cc01988f83977ddfe3f3c63014773fc7ba0138a"
    data = data_digest([SAMPLE], [Source(path="x")])
    assert data == "017882602db19bacd4be9f7f2b689b2f0df6a2a479cfec618d23c24e76337638"


def test_a_mirror_image_has_a_key_of_its_own_and_changes_the_shard_s() -> None:
    assert _latent_key(is_flipped=True) != _latent_key()
    plain, both = SampleKeys("p1", "l", "t"), SampleKeys("p1", "l", "t", "f")
    assert plain.latent_keys == ("l",)
    assert both.latent_keys == ("l", "f")
    assert shard_key("512x512", [plain]) != shard_key("512x512", [both])


def test_an_anchor_changes_the_data() -> None:
    top = data_digest([SAMPLE], [Source(path="x", crop_anchor="top")])
    assert top != data_digest([SAMPLE], [Source(path="x")])


def test_a_lone_surrogate_has_a_digest() -> None:
    assert len(digest("text", "\udcff")) == 64


@pytest.mark.parametrize(
    "sample",
    [
        replace(SAMPLE, caption="a dog"),
        replace(SAMPLE, caption_by="person"),
        replace(SAMPLE, record=replace(RECORD, pixels="other")),
        replace(SAMPLE, record=replace(RECORD, id="p2")),
        replace(SAMPLE, record=replace(RECORD, source=1)),
    ],
)
def test_the_data_digest_sees_what_is_trained_on(sample: Sample) -> None:
    sources = (Source(path="a"), Source(path="a", repeats=2))
    assert data_digest([sample], sources) != data_digest([SAMPLE], sources)
    touched = replace(SAMPLE, record=replace(RECORD, modified_ns=1, file="/b.png", bytes=3))
    assert data_digest([touched], sources) == data_digest([SAMPLE], sources)


def test_weights_are_hashed_by_value_not_by_stored_type_or_order() -> None:
    tensors = {"a": torch.tensor([1.0, 2.0]), "b": torch.zeros(2, 2)}
    expected = tensors_hash(tensors, {"norm": 1})
    half = {name: tensors[name].half() for name in ("b", "a")}
    assert tensors_hash(half, {"norm": 1}) == expected
    assert tensors_hash(tensors, {"norm": 2}) != expected
    assert tensors_hash({**tensors, "b": torch.zeros(4)}, {"norm": 1}) != expected
    assert tensors_hash({"a": tensors["a"], "c": tensors["b"]}, {"norm": 1}) != expected
