import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentmill.cache.models import hub
from latentmill.cache.models.model_folder import PARTS, holds_all_parts
from latentmill.cache.models.part_configs import VaeConfig
from latentmill.cache.models.weight_hashes import encoder_hashes, tokenizer_hash
from latentmill.cache.models.weights import (
    load_scheduler,
    load_text_encoder,
    load_tokenizer,
    load_unet,
    load_vae,
    read_part_config,
    require_one_text_encoder,
    resolve,
)
from latentmill.datasets.errors import DiskFullError, LatentmillError, ModelError

pytestmark = pytest.mark.slow

LOADERS: dict[str, Callable[[Any], Any]] = {
    "unet": load_unet,
    "vae": load_vae,
    "text_encoder": load_text_encoder,
}


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    """A copy of the small model to break."""
    return Path(shutil.copytree(small_model, tmp_path / "模型 model"))


def _state(loaded: Any) -> dict[str, Any]:
    tensors: dict[str, Any] = loaded.state_dict()
    return tensors


def test_every_part_loads_in_single_precision_and_says_nothing(
    small_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    files = resolve(str(small_model))
    for load in LOADERS.values():
        assert {tensor.dtype for tensor in _state(load(files)).values()} == {torch.float32}
    assert load_scheduler(files).config.prediction_type == "epsilon"
    assert load_tokenizer(files)("a photo of a cat").input_ids[1:-1] == [320, 1125, 539, 320, 2368]
    assert capfd.readouterr() == ("", "")


def test_the_trainer_needs_only_unet_and_scheduler(model: Path) -> None:
    import torch

    for part in ("vae", "text_encoder", "tokenizer"):
        shutil.rmtree(model / part)
    files = resolve(str(model))
    assert load_unet(files, torch.bfloat16).dtype == torch.bfloat16
    assert load_scheduler(files).config.num_train_timesteps == 1000


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder"])
def test_a_missing_part_is_named_with_what_is_there(model: Path, part: str) -> None:
    shutil.rmtree(model / part)
    with pytest.raises(ModelError) as caught:
        LOADERS[part](resolve(str(model)))
    assert caught.value.exit_code == 7
    assert f"the model has no {part}: {part}/config.json is missing" in caught.value.what
    assert "scheduler/" in caught.value.expected


def _weights(model: Path, part: str) -> Path:
    return next((model / part).glob("*.safetensors"))


@pytest.mark.parametrize("part", list(LOADERS))
@pytest.mark.parametrize("kept_bytes", [0, 5, 2000, -1])
def test_cut_weights_are_named(model: Path, part: str, kept_bytes: int) -> None:
    path = _weights(model, part)
    os.truncate(path, kept_bytes if kept_bytes >= 0 else path.stat().st_size - 1)
    with pytest.raises(ModelError) as caught:
        LOADERS[part](resolve(str(model)))
    assert caught.value.where == str(path)


@pytest.mark.parametrize("part", list(LOADERS))
@pytest.mark.parametrize("content", ["", "{", "[]", '{"_class_name": 3}', "\x00\x01"])
def test_a_broken_configuration_is_a_model_error(model: Path, part: str, content: str) -> None:
    (model / part / "config.json").write_text(content)
    with pytest.raises(ModelError):
        LOADERS[part](resolve(str(model)))


@pytest.mark.parametrize(
    ("part", "impossible"),
    [
        ("vae", {"norm_num_groups": 0}),
        ("text_encoder", {"num_attention_heads": 0}),
        ("text_encoder", {"num_attention_heads": 7}),
        ("text_encoder", {"hidden_size": "wide"}),
        ("unet", {"norm_num_groups": 0}),
        ("unet", {"block_out_channels": []}),
    ],
)
def test_impossible_numbers_in_a_configuration_are_a_model_error(
    model: Path, part: str, impossible: dict[str, object]
) -> None:
    config = model / part / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), **impossible}))
    with pytest.raises(ModelError, match=f"cannot read {part}"):
        LOADERS[part](resolve(str(model)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scaling_factor", "abc"),
        ("scaling_factor", 0),
        ("scaling_factor", -1.0),
        ("scaling_factor", float("nan")),
        ("shift_factor", "x"),
        ("block_out_channels", ["a", 3]),
        ("block_out_channels", []),
        ("latent_channels", 0),
        ("force_upcast", "perhaps"),
    ],
)
def test_impossible_values_that_we_read_of_the_vae_are_named(
    model: Path, key: str, value: object
) -> None:
    path = model / "vae" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), key: value}))
    with pytest.raises(ModelError, match=f"cannot read config.json: {key}") as caught:
        read_part_config(resolve(str(model)), VaeConfig)
    assert caught.value.where == str(path)


def test_a_vae_that_leaves_its_scale_out_has_stable_diffusions(model: Path) -> None:
    path = model / "vae" / "config.json"
    values = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**values, "scaling_factor": None, "shift_factor": None}))
    vae = read_part_config(resolve(str(model)), VaeConfig)
    assert (vae.scaling_factor, vae.shift_factor, vae.factor) == (0.18215, None, 4)


@pytest.mark.parametrize(
    "impossible",
    [
        {"num_train_timesteps": 0},
        {"num_train_timesteps": 1.5},
        {"beta_start": -0.1},
        {"beta_end": 5},
        {"beta_end": float("nan")},
        {"beta_schedule": "steep"},
        {"trained_betas": [0.1, 2.0]},
        {"trained_betas": "none"},
        {"prediction_type": "sample"},
    ],
)
def test_a_noise_schedule_that_cannot_be_is_a_model_error(
    model: Path, impossible: dict[str, object]
) -> None:
    path = model / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **impossible}))
    with pytest.raises(ModelError, match="cannot read scheduler"):
        load_scheduler(resolve(str(model)))


def test_a_schedule_rescaled_to_zero_signal_loads(model: Path) -> None:
    path = model / "scheduler" / "scheduler_config.json"
    values = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}))
    assert float(load_scheduler(resolve(str(model))).alphas_cumprod[-1]) == 0.0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("merges.txt", "<html>\na b c d\n"),
        ("merges.txt", "#version: 0.2\nzzqq qqzz\n"),
        ("vocab.json", "{}"),
        ("vocab.json", "<html>"),
        ("tokenizer_config.json", '{"model_max_length": "x"}'),
        ("tokenizer_config.json", '{"model_max_length": 0}'),
    ],
)
def test_a_broken_tokenizer_is_a_model_error(model: Path, name: str, content: str) -> None:
    (model / "tokenizer" / name).write_text(content)
    with pytest.raises(ModelError, match="cannot read tokenizer"):
        load_tokenizer(resolve(str(model)))


@pytest.mark.parametrize("part", list(LOADERS))
def test_weights_that_lack_a_tensor_or_have_another_shape_are_refused(
    model: Path, part: str
) -> None:
    from safetensors.torch import load_file, save_file

    path = _weights(model, part)
    tensors = load_file(path)
    name = sorted(tensors)[0]
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path)
    with pytest.raises(ModelError, match=f"missing: 1 tensor, such as {re.escape(name)}"):
        LOADERS[part](resolve(str(model)))
    save_file({**tensors, name: tensors[name][:1].clone()}, path)
    with pytest.raises(ModelError):
        LOADERS[part](resolve(str(model)))


def test_half_precision_files_are_found_by_their_variant(model: Path) -> None:
    path = _weights(model, "vae")
    path.rename(path.with_name("diffusion_pytorch_model.fp16.safetensors"))
    assert load_vae(resolve(str(model))).config.latent_channels == 4


def test_pickles_in_a_folder_are_refused_with_the_reason(model: Path) -> None:
    path = _weights(model, "unet")
    path.rename(path.with_name("diffusion_pytorch_model.bin"))
    with pytest.raises(ModelError, match="only pickles"):
        load_unet(resolve(str(model)))


@pytest.mark.parametrize("name", ["model.ckpt", "model.pt", "model.bin", "MODEL.CKPT"])
def test_pickles_are_refused_whether_they_exist_or_not(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="pickles: opening one can run any code"):
        resolve(str(tmp_path / name))


@pytest.mark.parametrize(
    "name", ["", ".", "no/such/folder", "./missing", "missing.safetensors", "a b/c", "file.txt"]
)
def test_what_is_no_model_is_refused(tmp_path: Path, name: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").touch()
    with pytest.raises(ModelError):
        resolve(name)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("in_channels", 9, "9 input channels"),
        ("addition_embed_type", "text_time", "SDXL"),
        ("_class_name", "FluxTransformer2DModel", "FluxTransformer2DModel"),
    ],
)
def test_other_architectures_are_called_by_their_name(
    model: Path, key: str, value: object, what: str
) -> None:
    path = model / "unet" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ModelError, match=f"{what} is not supported"):
        load_unet(resolve(str(model)))


def test_a_second_text_encoder_is_refused_before_anything_is_encoded(model: Path) -> None:
    (model / "text_encoder_2").mkdir()
    with pytest.raises(ModelError, match="SDXL"):
        require_one_text_encoder(resolve(str(model)))


def test_a_model_on_the_hub_without_network_says_where_to_put_a_copy() -> None:
    with pytest.raises(ModelError, match="hub cannot be reached") as caught:
        load_unet(resolve("somebody/some-model"))
    assert "--model DIR" in caught.value.fix


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("GatedRepoError", ModelError, "is gated"),
        ("RepositoryNotFoundError", ModelError, "no such model"),
        ("RevisionNotFoundError", ModelError, "no revision 'v9'"),
        ("disk", DiskFullError, "no room"),
        ("timeout", ModelError, "cannot be reached"),
    ],
)
def test_the_hub_s_failures_are_told_apart(
    error: str, kind: type[LatentmillError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub import errors

    def fail(*_: object, local_files_only: bool, **__: object) -> str:
        if local_files_only:
            raise errors.LocalEntryNotFoundError("nothing here")
        if error == "disk":
            raise OSError(28, "No space left on device")
        if error == "timeout":
            raise errors.LocalEntryNotFoundError("x") from TimeoutError("timed out")
        kind = getattr(errors, error)
        raise kind.__new__(kind)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(kind, match=words):
        hub.fetch_part("somebody/some-model", "v9", "unet")


def test_a_downloaded_part_is_used_without_asking_the_hub(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def snapshot(*_: object, local_files_only: bool, **__: object) -> str:
        asked.append(local_files_only)
        return str(small_model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert load_vae(resolve("somebody/some-model")).config.latent_channels == 4
    assert set(asked) == {True}


def test_the_tokenizer_hash_does_not_depend_on_the_form_of_its_files(model: Path) -> None:
    files = resolve(str(model))
    before = tokenizer_hash(files)
    tokenizer = load_tokenizer(files)
    shutil.rmtree(model / "tokenizer")
    tokenizer.save_pretrained(model / "tokenizer")
    assert not (model / "tokenizer" / "vocab.json").exists()
    assert tokenizer_hash(files) == before
    settings = model / "tokenizer" / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace("77", "50"))
    assert tokenizer_hash(files) != before


def test_hashing_again_loads_no_weights(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo = tmp_path / "weights.json"
    first = encoder_hashes(resolve(str(small_model)), memo)
    monkeypatch.setattr("latentmill.cache.models.weight_hashes.load_vae", None)
    monkeypatch.setattr("latentmill.cache.models.weight_hashes.load_text_encoder", None)
    assert encoder_hashes(resolve(str(small_model)), memo) == first


def test_a_model_without_its_encoders_is_known_not_to_be_whole(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir()
    assert holds_all_parts(str(tmp_path))
    (tmp_path / "vae").rmdir()
    assert not holds_all_parts(str(tmp_path))
    assert holds_all_parts("owner/on-the-hub")
