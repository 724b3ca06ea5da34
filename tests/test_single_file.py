"""Loading the original single-file layout: the test renames the small model's tensors to it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentmill.cache.models import single_file
from latentmill.cache.models.weight_hashes import encoder_hashes
from latentmill.cache.models.weights import load_text_encoder, load_unet, load_vae, resolve
from latentmill.datasets.errors import ModelError

LOADERS: dict[str, Callable[[Any], Any]] = {
    "unet": load_unet,
    "vae": load_vae,
    "text_encoder": load_text_encoder,
}
LEVELS, LAYERS = 3, 1  # Of the small model's UNet and VAE.
BRANCH = {"resnets": "0", "attentions": "1"}


def _state(loaded: Any) -> dict[str, Any]:
    tensors: dict[str, Any] = loaded.state_dict()
    return tensors


def _original_names(model: Path) -> dict[str, Any]:
    """The small model's tensors as one file of the original layout would hold them."""
    files = resolve(str(model))
    tensors = {
        f"model.diffusion_model.{_unet_name(k)}": v for k, v in _state(load_unet(files)).items()
    }
    for name, tensor in _state(load_vae(files)).items():
        is_linear = "mid_block.attentions" in name and tensor.ndim == 2
        whole = tensor[:, :, None, None] if is_linear else tensor
        tensors[f"first_stage_model.{_vae_name(name)}"] = whole
    for name, tensor in _state(load_text_encoder(files)).items():
        short = name.removeprefix("text_model.")
        tensors[f"cond_stage_model.transformer.text_model.{short}"] = tensor
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


def _replaced(name: str, pairs: list[tuple[str, str]]) -> str:
    for new, old in pairs:
        name = name.replace(new, old)
    return name


def _unet_name(name: str) -> str:
    per_level = LAYERS + 1

    def down(found: re.Match[str]) -> str:
        return f"input_blocks.{1 + int(found[1]) * per_level + int(found[3])}.{BRANCH[found[2]]}."

    def up(found: re.Match[str]) -> str:
        return f"output_blocks.{int(found[1]) * per_level + int(found[3])}.{BRANCH[found[2]]}."

    name = re.sub(r"^down_blocks\.(\d)\.(resnets|attentions)\.(\d)\.", down, name)
    name = re.sub(r"^up_blocks\.(\d)\.(resnets|attentions)\.(\d)\.", up, name)
    name = re.sub(
        r"^down_blocks\.(\d)\.downsamplers\.0\.conv",
        lambda found: f"input_blocks.{(int(found[1]) + 1) * per_level}.0.op",
        name,
    )
    name = re.sub(
        r"^up_blocks\.(\d)\.upsamplers\.0",
        lambda found: (
            f"output_blocks.{int(found[1]) * per_level + LAYERS}."
            + ("1" if found[1] == "0" else "2")
        ),
        name,
    )
    middle = [
        ("mid_block.resnets.0", "middle_block.0"),
        ("mid_block.attentions.0", "middle_block.1"),
        ("mid_block.resnets.1", "middle_block.2"),
    ]
    outer = [
        ("time_embedding.linear_1", "time_embed.0"),
        ("time_embedding.linear_2", "time_embed.2"),
        ("conv_norm_out", "out.0"),
        ("conv_out", "out.2"),
        ("conv_in", "input_blocks.0.0"),
    ]
    if re.match(r"(conv_|time_embedding)", name):
        return _replaced(name, outer)
    name = _replaced(name, middle)
    if ".transformer_blocks" in name or ".proj_" in name or re.search(r"\.1\.norm\.", name):
        return name
    return _replaced(
        name,
        [
            ("norm1", "in_layers.0"),
            ("conv1", "in_layers.2"),
            ("norm2", "out_layers.0"),
            ("conv2", "out_layers.3"),
            ("time_emb_proj", "emb_layers.1"),
            ("conv_shortcut", "skip_connection"),
        ],
    )


def _vae_name(name: str) -> str:
    name = re.sub(r"up_blocks\.(\d)", lambda found: f"up.{LEVELS - 1 - int(found[1])}", name)
    return _replaced(
        name,
        [
            ("down_blocks.", "down."),
            (".resnets.", ".block."),
            ("mid_block.block.0", "mid.block_1"),
            ("mid_block.block.1", "mid.block_2"),
            ("mid_block.attentions.0", "mid.attn_1"),
            ("downsamplers.0", "downsample"),
            ("upsamplers.0", "upsample"),
            ("conv_shortcut", "nin_shortcut"),
            ("conv_norm_out", "norm_out"),
            ("group_norm", "norm"),
            ("to_q", "q"),
            ("to_k", "k"),
            ("to_v", "v"),
            ("to_out.0", "proj_out"),
        ],
    )


@pytest.fixture
def file(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small model as a single file; the configurations that SD 1.x has are made small."""
    from safetensors.torch import save_file

    for part in ("unet", "vae", "text_encoder"):
        config = json.loads((small_model / part / "config.json").read_text())
        monkeypatch.setitem(single_file.CONFIGS, part, config)
    path = tmp_path / "model.safetensors"
    save_file(_original_names(small_model), path)
    return path


@pytest.mark.parametrize("part", list(LOADERS))
def test_a_single_file_gives_the_same_weights_as_the_folder(
    small_model: Path, file: Path, part: str
) -> None:
    import torch

    expected = _state(LOADERS[part](resolve(str(small_model))))
    found = _state(LOADERS[part](resolve(str(file))))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_single_file_and_a_folder_of_equal_weights_have_equal_hashes(
    small_model: Path, file: Path, tmp_path: Path
) -> None:
    memo = tmp_path / "weights.json"
    from_folder = encoder_hashes(resolve(str(small_model)), memo)
    assert encoder_hashes(resolve(str(file)), memo) == from_folder
    assert len(json.loads(memo.read_text())) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lora_unet_down_blocks_0.lora_down.weight", "a LoRA file"),
        ("conditioner.embedders.0.weight", "an SDXL file"),
        ("first_stage_model.encoder.conv_in.weight", "holds no UNet"),
    ],
)
def test_files_of_another_kind_are_called_by_their_name(
    tmp_path: Path, name: str, words: str
) -> None:
    import torch
    from safetensors.torch import save_file

    path = tmp_path / "other.safetensors"
    save_file({name: torch.zeros(2)}, path)
    with pytest.raises(ModelError, match=words):
        resolve(str(path))


def test_a_single_file_without_a_vae_says_so(file: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    save_file({k: v for k, v in tensors.items() if "first_stage" not in k}, file)
    with pytest.raises(ModelError, match="it has no vae"):
        load_vae(resolve(str(file)))


def test_a_cut_single_file_is_refused(file: Path) -> None:
    os.truncate(file, 10_000)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        resolve(str(file))


@pytest.mark.slow
def test_the_configurations_of_sd_1_have_its_numbers_of_parameters() -> None:
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    with torch.device("meta"):
        unet = UNet2DConditionModel.from_config(single_file.CONFIGS["unet"])
        vae = AutoencoderKL.from_config(single_file.CONFIGS["vae"])
        text = CLIPTextModel(CLIPTextConfig(**single_file.CONFIGS["text_encoder"]))
    counts = [sum(p.numel() for p in part.parameters()) for part in (unet, vae, text)]
    assert counts == [859_520_964, 83_653_863, 123_060_480]
