"""Mirror images, caption variants, long texts, padding: what is asked for, encoded once each."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from PIL import Image

from latentmill.cache.mapped import MappedCache, SampleTensors
from latentmill.stages.encoding.survey import recipe_settings
from latentmill.stages.settings import BucketSettings, CacheSettings, Source

if TYPE_CHECKING:
    from conftest import Calls, PictureSet

pytestmark = pytest.mark.slow


def _settings(**changes: Any) -> CacheSettings:
    return CacheSettings(shard_size=2, device="cpu").model_copy(update=changes)


def _opened(pictures: "PictureSet") -> MappedCache:
    return MappedCache.open(pictures.layout.cache_index, pictures.layout.shards)


def _sample(pictures: "PictureSet", caption: str) -> SampleTensors:
    cache = _opened(pictures)
    (found,) = [s.id for s in cache.samples if caption in cache.details(s.id)["captions"]]
    return cache.read(found)


def test_flip_encodes_mirror_images_and_reuses_the_rest(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    before = encoded_set.shard_bytes()
    report = encoded_set.cached(settings=_settings(flip=True))
    assert (calls.latents, calls.texts) == (5, 0)
    assert report.counts["encoded_latents"] == 5
    assert report.counts["reused_latents"] == 5
    assert encoded_set.shard_bytes().items() >= before.items()
    assert encoded_set.cached(settings=_settings(flip=True)).counts["shards_written"] == 0
    assert encoded_set.cached().counts["shards_written"] == 0
    assert _opened(encoded_set).read(_opened(encoded_set).samples[0].id).flipped_mean is None
    assert (calls.latents, calls.texts) == (5, 0)


def test_a_mirror_image_is_encoded_not_a_mirrored_latent(encoded_set: "PictureSet") -> None:
    encoded_set.cached(settings=_settings(flip=True))
    stored = _sample(encoded_set, "picture number 3")
    path = encoded_set.data / "3.png"
    Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    path.with_suffix(".txt").write_text("its mirror image")
    encoded_set.cached()
    mirrored = _sample(encoded_set, "its mirror image")
    assert stored.flipped_mean is not None
    assert stored.flipped_std is not None
    torch.testing.assert_close(stored.flipped_mean, mirrored.latent_mean, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(stored.flipped_std, mirrored.latent_std, atol=2e-2, rtol=2e-2)
    assert not torch.equal(stored.flipped_mean, stored.latent_mean.flip(-1))


def test_variants_encode_each_new_text_once_and_more_of_them_only_the_new(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    caption = encoded_set.data / "0.txt"
    caption.write_text("zwx, a, b, c, d, e, f, g")
    (encoded_set.data / "1.txt").write_text("zwx, a, b, c, d, e, f, g")
    three = encoded_set.cached(settings=_settings(variants=3))
    assert (calls.latents, calls.texts) == (0, 3)
    assert three.counts["encoded_texts"] == 3
    assert three.counts["reused_texts"] == 3 + 3  # The twin's three; three captions of one tag.
    cache = _opened(encoded_set)
    (first, second) = [
        cache.details(one.id)["captions"]
        for one in cache.samples
        if len(cache.details(one.id)["captions"]) > 1
    ]
    assert first == second
    assert first[0] == "zwx, a, b, c, d, e, f, g"
    assert all(text.startswith("zwx, ") and len(text) == len(first[0]) for text in first)
    encoded_set.cached(settings=_settings(variants=5))
    assert (calls.latents, calls.texts) == (0, 5)
    encoded_set.cached(settings=_settings(variants=1))
    encoded_set.cached(settings=_settings(variants=3))
    assert (calls.latents, calls.texts) == (0, 5)


def test_each_variant_is_the_embedding_of_its_text(
    encoded_set: "PictureSet", small_model: Path
) -> None:
    from latentmill.cache.models.weights import resolve
    from latentmill.stages.encoding.encoders import Encoders, EncoderSettings

    (encoded_set.data / "0.txt").write_text("one, two, three, four | five, six, seven")
    settings = _settings(variants=2, keep_tags=0, separator="|")
    encoded_set.cached(settings=settings, sources=(Source(path="data", trigger="zwx"),))
    cache = _opened(encoded_set)
    encoders = Encoders(EncoderSettings(resolve(str(small_model)), "cpu", "float16", 1))
    (name,) = [one.id for one in cache.samples if len(cache.read(one.id).text) == 4]
    texts = cache.details(name)["captions"]
    assert texts[0] == "zwx, one, two, three, four"
    assert texts[2] == "zwx, five, six, seven"
    assert sorted(texts[3].split(", ")) == ["five", "seven", "six", "zwx"]
    for text, embedding in zip(texts, cache.read(name).text, strict=True):
        assert torch.equal(encoders.encode_text(text).embedding, embedding)


def test_longer_texts_need_new_texts_and_no_latent(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    words = " ".join(f"w{index % 10}" for index in range(60))  # Two tokens each.
    (encoded_set.data / "0.txt").write_text(words)
    assert [one.code for one in encoded_set.cached().problems] == ["caption-too-long"]
    calls.texts = 0
    report = encoded_set.cached(settings=_settings(text_chunks=2))
    assert report.problems == ()
    assert (report.counts["encoded_latents"], report.counts["encoded_texts"]) == (0, 5)
    assert (calls.latents, calls.texts) == (0, 2 * (5 + 3))
    cache = _opened(encoded_set)
    assert {tuple(cache.read(one.id).text.shape) for one in cache.samples} == {(1, 154, 64)}
    assert cache.empty_text.shape == (154, 64)


@pytest.mark.parametrize("clip_skip", [1, 2])
def test_chunks_are_those_of_the_bare_text_encoder(small_model: Path, clip_skip: int) -> None:
    from latentmill.cache.models.weights import load_text_encoder, load_tokenizer, resolve
    from latentmill.stages.encoding.encoders import Encoders, EncoderSettings

    files = resolve(str(small_model))
    caption = " ".join(f"word{index}" for index in range(100))
    ids = load_tokenizer(files)(caption).input_ids[1:-1]
    assert len(ids) > 225
    encoders = Encoders(EncoderSettings(files, "cpu", "float32", clip_skip, text_chunks=3))
    encoded = encoders.encode_text(caption)
    model: Any = load_text_encoder(files)
    norm = getattr(model, "text_model", model).final_layer_norm
    for number in range(3):
        chunk = [49406, *ids[75 * number : 75 * number + 75], 49407]
        with torch.inference_mode():
            output = model(torch.tensor([chunk]), output_hidden_states=True)
            expected = norm(output.hidden_states[-clip_skip])[0]
        part = encoded.embedding[77 * number : 77 * number + 77]
        torch.testing.assert_close(part, expected, rtol=1e-6, atol=1e-6)
    assert encoded.cut.endswith("word99")


def test_a_prompt_weight_is_named_and_taken_literally(encoded_set: "PictureSet") -> None:
    (encoded_set.data / "0.txt").write_text("a (red:1.3) car (with doors)")
    (problem,) = encoded_set.cached().problems
    assert (problem.code, problem.path) == ("prompt-weight", "0.png")
    assert "(red:1.3)" in problem.message
    assert _sample(encoded_set, "a (red:1.3) car (with doors)") is not None


def test_padding_encodes_what_it_changes_and_masks_the_grey(
    encoded_set: "PictureSet", calls: "Calls"
) -> None:
    encoded_set.draw("exact.png", "of the bucket's size", (64, 64), seed=9)
    encoded_set.cached()
    calls.latents = calls.texts = 0
    padded = BucketSettings(area=64, step=16, min=32, max=128, fit="pad")
    report = encoded_set.cached(bucket=padded)
    # The two of 60x100 fit 48x80, the new one is of its bucket's size: nothing to pad.
    assert (calls.latents, calls.texts) == (3, 0)
    assert report.counts["reused_latents"] == 3
    assert _sample(encoded_set, "of the bucket's size").loss_mask is None
    assert _sample(encoded_set, "picture number 3").loss_mask is None
    mask = _sample(encoded_set, "picture number 0").loss_mask  # 80x70 becomes 64x56.
    assert mask is not None
    assert mask.shape == (16, 16)
    assert mask.sum(0).tolist() == [14] * 16
    assert mask[0].sum() == mask[-1].sum() == 0


def test_an_anchor_encodes_what_it_moves(encoded_set: "PictureSet", calls: "Calls") -> None:
    encoded_set.cached(sources=(Source(path="data", crop_anchor="top"),))
    # 80x70 loses its sides, 60x100 nothing of its height: 48x80 is as high.
    assert (calls.latents, calls.texts) == (0, 0)
    encoded_set.draw("tall.png", "a tall one", (64, 70), seed=9)
    encoded_set.cached()
    before = _sample(encoded_set, "a tall one")
    encoded_set.cached(sources=(Source(path="data", crop_anchor="top"),))
    after = _sample(encoded_set, "a tall one")
    assert (calls.latents, calls.texts) == (2, 1)
    assert not torch.equal(before.latent_mean, after.latent_mean)


def test_settings_that_came_later_leave_older_sets_as_they_are() -> None:
    assert recipe_settings(BucketSettings(), CacheSettings()) == {
        "bucket": {"area": 512, "step": 64, "min": 256, "max": 1024, "upscale": "allowed"},
        "clip_skip": 1,
        "dtype": "float16",
    }
    changed = recipe_settings(BucketSettings(without=("256x832",)), CacheSettings(flip=True))
    assert changed["flip"] is True
    bucket = changed["bucket"]
    assert isinstance(bucket, dict)
    assert bucket["without"] == ["256x832"]
