import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from latentmill.cache.models.weights import load_text_encoder, load_tokenizer, load_vae, resolve
from latentmill.datasets.errors import DataError, UsageError
from latentmill.stages.device import choose_device
from latentmill.stages.encoding.encoders import Encoders, EncoderSettings, load_encoders, repeatable
from latentmill.stages.encoding.latent_colours import fit_latent_to_rgb

if TYPE_CHECKING:
    from conftest import PictureSet


@pytest.fixture
def encoders(small_model: Path) -> Encoders:
    return _encoders(small_model)


def _encoders(model: Path, clip_skip: int = 1, dtype: str = "float32") -> Encoders:
    return Encoders(EncoderSettings(resolve(str(model)), "cpu", dtype, clip_skip))


def _noise(seed: int, width: int = 48, height: int = 64) -> Image.Image:
    import random

    data = random.Random(seed).randbytes(width * height * 3)
    return Image.frombytes("RGB", (width, height), data)


def test_latents_equal_those_of_a_bare_vae(small_model: Path, encoders: Encoders) -> None:
    import numpy as np
    import torch

    picture = _noise(0)
    with torch.inference_mode():
        pixels = torch.from_numpy(np.asarray(picture) / np.float32(127.5) - 1).permute(2, 0, 1)
        expected = load_vae(resolve(str(small_model))).encode(pixels[None]).latent_dist
    (latent,) = encoders.encode_latents([picture])
    assert latent.mean.shape == (4, 16, 12)
    torch.testing.assert_close(latent.mean, expected.mean[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(latent.std, expected.std[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clip_skip", [1, 2])
def test_texts_equal_those_of_the_bare_text_encoder(small_model: Path, clip_skip: int) -> None:
    import torch

    files = resolve(str(small_model))
    model: Any = load_text_encoder(files)
    ids = load_tokenizer(files)(
        "a photo of a cat", padding="max_length", max_length=77, return_tensors="pt"
    ).input_ids
    with torch.inference_mode():
        output = model(ids, output_hidden_states=True)
        norm = getattr(model, "text_model", model).final_layer_norm
        expected = norm(output.hidden_states[-clip_skip])
        assert clip_skip > 1 or torch.equal(expected, output.last_hidden_state)
    encoded = _encoders(small_model, clip_skip).encode_text("a photo of a cat")
    torch.testing.assert_close(encoded.embedding, expected[0], rtol=1e-6, atol=1e-6)


def test_a_text_fills_77_tokens_and_the_rest_is_cut_off_by_name(encoders: Encoders) -> None:
    import torch

    words = " ".join(f"w{index % 10}" for index in range(40))  # Two tokens each, room for 75.
    long = encoders.encode_text(words)
    assert long.embedding.shape == (77, 64)
    assert long.cut == "7 w8 w9"
    assert words.endswith(long.cut)
    kept = encoders.encode_text(words.removesuffix(long.cut))
    assert kept.cut == ""
    assert torch.equal(kept.embedding, long.embedding)


def test_neighbours_threads_and_order_do_not_change_a_bit(small_model: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import torch

    encoders = _encoders(small_model)
    encoders.load(vae=True, text=True)
    pictures = [_noise(seed) for seed in range(3)]
    with repeatable():
        alone = [encoders.encode_latents([picture])[0].mean for picture in pictures]
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(lambda one: encoders.encode_latents([one])[0].mean, pictures))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_the_number_of_threads_is_given_back() -> None:
    import torch

    before = torch.get_num_threads()
    with repeatable() as num_threads:
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == num_threads == before


def test_loading_and_encoding_say_nothing(
    small_model: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    encoders = _encoders(small_model)
    with caplog.at_level(logging.WARNING):
        encoders.encode_text("a word " * 100)
        encoders.encode_latents([_noise(0)])
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


@pytest.fixture
def broken_vae() -> Iterator[None]:
    """Every VAE gives one value that is not finite."""
    import torch
    from diffusers import AutoencoderKL

    encode = AutoencoderKL._encode

    def broken(self: Any, pixels: Any) -> Any:
        moments = encode(self, pixels)
        moments[:, 0, 0, 0] = torch.inf
        return moments

    AutoencoderKL._encode = broken
    yield
    AutoencoderKL._encode = encode


@pytest.mark.usefixtures("broken_vae")
def test_a_latent_that_is_not_finite_is_refused_by_name(encoded_set: "PictureSet") -> None:
    encoded_set.draw("odd.png", "odd", seed=9)
    before = encoded_set.shard_bytes()
    with pytest.raises(DataError, match=r"not finite") as caught:
        encoded_set.cached()
    assert caught.value.where == "odd.png"
    assert encoded_set.shard_bytes() == before
    load_encoders.cache_clear()


def test_a_batch_that_overflows_the_gpu_is_halved(
    encoders: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    tried = []
    encode = encoders._encode_batch

    def small_gpu(pictures: Any) -> Any:
        tried.append(len(pictures))
        if len(pictures) > 1:
            raise torch.OutOfMemoryError
        return encode(pictures)

    monkeypatch.setattr(encoders, "_encode_batch", small_gpu)
    assert len(encoders.encode_latents([_noise(seed) for seed in range(3)])) == 3
    assert tried == [3, 1, 2, 1, 1]


def test_the_colour_map_recovers_a_linear_relation() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    latent = torch.rand(4, 32, 32, generator=generator)
    weight = torch.tensor([[0.1, 0.2, 0.3, 0.0], [0.4, 0.0, 0.1, 0.1], [0.0, 0.3, 0.0, 0.2]])
    colours = torch.einsum("oc,chw->ohw", weight, latent) + 0.2
    values = (colours * 255).round().byte().permute(1, 2, 0).contiguous()
    picture = Image.frombytes("RGB", (32, 32), values.numpy().tobytes())
    fitted = fit_latent_to_rgb([(latent, picture.resize((128, 128), Image.Resampling.NEAREST))])
    torch.testing.assert_close(fitted.weight, weight, atol=0.01, rtol=0)
    torch.testing.assert_close(fitted.bias, torch.full((3,), 0.2), atol=0.01, rtol=0)
    assert fitted.error < 0.01
    torch.testing.assert_close(fitted.picture(latent), colours, atol=0.02, rtol=0)


@pytest.mark.parametrize("setting", ["gpu", "cuda:77", ""])
def test_a_device_that_is_not_there_is_a_usage_error(setting: str) -> None:
    with pytest.raises(UsageError, match=r"cache\.device"):
        choose_device(setting, "cache.device")
