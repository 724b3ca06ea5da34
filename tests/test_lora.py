import json
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import save_file

from latentmill.datasets.errors import UsageError
from latentmill.pipeline.tinysd.architecture import build_unet
from latentmill.stages.lora.layers import LoraShape, attach, module_names, put_weights, take_weights
from latentmill.stages.lora.layouts import (
    LoraLayer,
    LoraWeights,
    diffusers_header,
    from_diffusers,
    from_kohya,
    from_peft,
    layout_of,
    peft_config,
    read_lora,
    to_diffusers,
    to_kohya,
    to_peft,
    unflatten,
)

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden" / "kohya_sd15_unet_lora_keys_rank4.tsv"


@pytest.fixture(scope="module")
def sd15() -> UNet2DConditionModel:
    """The UNet of SD 1.5 without numbers in it."""
    with torch.device("meta"):
        return UNet2DConditionModel(
            sample_size=64,
            block_out_channels=(320, 640, 1280, 1280),
            cross_attention_dim=768,
            attention_head_dim=8,
        )


def random_lora(alpha: float = 3.0, targets: str = "transformer", rank: int = 4) -> LoraWeights:
    unet = build_unet()
    generator = torch.Generator().manual_seed(1)
    names = attach(unet, LoraShape(targets, rank, alpha), generator)
    for name, value in unet.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.1
    return take_weights(unet, names)


def same(left: LoraWeights, right: LoraWeights) -> bool:
    return left.layers.keys() == right.layers.keys() and all(
        torch.equal(layer.down, right.layers[name].down)
        and torch.equal(layer.up, right.layers[name].up)
        and layer.alpha == right.layers[name].alpha
        for name, layer in left.layers.items()
    )


def zeros_for(unet: UNet2DConditionModel, names: list[str], rank: int) -> LoraWeights:
    layers = {}
    for name in names:
        weight = unet.get_submodule(name).weight
        tail = [1] * (weight.ndim - 2)
        down = torch.zeros(rank, *weight.shape[1:])
        layers[name] = LoraLayer(down, torch.zeros(weight.shape[0], rank, *tail), 4.0)
    return LoraWeights(layers)


def test_kohya_names_and_shapes_are_those_of_the_parity_file(sd15: UNet2DConditionModel) -> None:
    names = module_names(sd15, "transformer")
    tensors = to_kohya(zeros_for(sd15, names, rank=4))
    lines = {
        f"{key}\t{'x'.join(map(str, tensor.shape)) or 'scalar'}" for key, tensor in tensors.items()
    }
    golden = GOLDEN.read_text("utf-8").splitlines()
    assert len(names) == 192
    assert lines == {line for line in golden if not line.startswith("#")}


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        ("transformer", 192),
        ("attention", 128),
        ("transformer+conv", 278),
        ("to_q", 32),
        (("to_q", "ff.net.2"), 48),
        (("conv_shortcut",), 14),
        (("mid_block.attentions.0.proj_in",), 1),
    ],
)
def test_targets_mean_as_many_layers(
    sd15: UNet2DConditionModel, targets: str | tuple[str, ...], count: int
) -> None:
    assert len(module_names(sd15, targets)) == count


@pytest.mark.parametrize("targets", ["to_queue", ("to_q", "to_queue"), ("o_q",)])
def test_targets_without_a_layer_are_refused(
    sd15: UNet2DConditionModel, targets: str | tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="no layer of the UNet"):
        module_names(sd15, targets)


def test_every_layer_name_of_the_unet_survives_kohya_s_underscores(
    sd15: UNet2DConditionModel,
) -> None:
    kinds = torch.nn.Linear | torch.nn.Conv2d
    names = [name for name, module in sd15.named_modules() if isinstance(module, kinds)]
    assert len(names) == 282
    assert [unflatten(name.replace(".", "_")) for name in names] == names


@pytest.mark.parametrize("targets", ["transformer", "transformer+conv"])
def test_layouts_convert_there_and_back_bit_for_bit(targets: str) -> None:
    lora = random_lora(targets=targets)
    assert same(from_kohya(to_kohya(lora)), lora)
    assert same(from_diffusers(to_diffusers(lora), diffusers_header(lora)), lora)
    assert same(from_peft(to_peft(lora), peft_config(lora)), lora)


def test_read_lora_tells_the_layout_by_itself(tmp_path: Path) -> None:
    lora = random_lora()
    save_file(to_kohya(lora), tmp_path / "kohya.safetensors")
    save_file(to_diffusers(lora), tmp_path / "diffusers.safetensors", diffusers_header(lora))
    (tmp_path / "peft").mkdir()
    save_file(to_peft(lora), tmp_path / "peft" / "adapter_model.safetensors")
    (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps(peft_config(lora)))
    for name in ("kohya.safetensors", "diffusers.safetensors", "peft"):
        assert same(read_lora(tmp_path / name), lora), name


def test_a_missing_alpha_means_the_rank() -> None:
    lora = random_lora(alpha=3.0, rank=4)
    without = {key: at for key, at in to_kohya(lora).items() if not key.endswith("alpha")}
    assert {layer.alpha for layer in from_kohya(without).layers.values()} == {4.0}
    assert {layer.alpha for layer in from_diffusers(to_diffusers(lora), {}).layers.values()} == {
        4.0
    }


def test_text_encoder_layers_are_left_out() -> None:
    lora = random_lora()
    tensors = to_kohya(lora) | {"lora_te_text_model_encoder_x.alpha": torch.tensor(1.0)}
    assert layout_of(tensors) == "kohya"
    assert same(from_kohya(tensors), lora)


@pytest.mark.parametrize(
    "keys",
    [
        ["transformer.blocks.0.lora_A.weight"],
        ["lora_unet_mid_block_x.alpha", "unet.mid_block.x.lora_A.weight"],
        ["lora_te_text_model_encoder_x.alpha"],
        [],
    ],
)
def test_unknown_and_mixed_layouts_are_refused(keys: list[str]) -> None:
    with pytest.raises(UsageError):
        layout_of(keys)


@pytest.mark.parametrize(
    "key",
    [
        "lora_unet_mid_block_attentions_0_proj_in.hada_w1_a",
        "lora_unet_input_blocks_1_1_proj_in.lora_down.weight",
    ],
)
def test_layers_that_kohya_files_may_hold_but_no_lora_here_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match="not known here"):
        from_kohya({key: torch.zeros(1)})


def test_half_a_layer_is_refused() -> None:
    with pytest.raises(UsageError, match="half of the layer"):
        from_kohya({"lora_unet_mid_block_attentions_0_proj_in.lora_up.weight": torch.zeros(1, 1)})


def test_read_lora_names_the_file_that_it_cannot_read(tmp_path: Path) -> None:
    broken = tmp_path / "猫 🐱.safetensors"
    broken.write_bytes(b"not a LoRA")
    for path in (broken, tmp_path / "absent.safetensors"):
        with pytest.raises(UsageError) as raised:
            read_lora(path)
        assert str(path) in str(raised.value)


def test_delta_is_what_peft_adds_to_each_layer() -> None:
    unet = build_unet()
    before = {name: value.clone() for name, value in unet.state_dict().items()}
    lora = random_lora(alpha=3.0, targets="transformer+conv")
    attach(unet, LoraShape("transformer+conv", 4, 3.0), torch.Generator().manual_seed(5))
    put_weights(unet, lora.layers)
    for name, layer in lora.layers.items():
        module = unet.get_submodule(name)
        module.merge()
        delta = module.base_layer.weight.detach() - before[f"{name}.weight"]
        torch.testing.assert_close(layer.delta(), delta, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("targets", ["transformer", "transformer+conv"])
@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_diffusers_applies_the_same_delta(layout: str, targets: str, tmp_path: Path) -> None:
    lora = random_lora(alpha=3.0, targets=targets, rank=70)  # capped at 64 in the narrow layers
    if layout == "kohya":
        save_file(to_kohya(lora), tmp_path / "lora.safetensors")
    else:
        save_file(to_diffusers(lora), tmp_path / "lora.safetensors", diffusers_header(lora))
    state, alphas, metadata = StableDiffusionPipeline.lora_state_dict(
        tmp_path, weight_name="lora.safetensors", return_lora_metadata=True
    )
    unet = build_unet()
    StableDiffusionPipeline.load_lora_into_unet(state, alphas, unet, "a", metadata=metadata)
    for name, layer in lora.layers.items():
        module = unet.get_submodule(name)
        torch.testing.assert_close(module.get_delta_weight("a"), layer.delta())


def test_rank_above_a_layer_s_width_is_capped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    lora = random_lora(alpha=35.0, rank=70)
    assert {layer.rank for layer in lora.layers.values()} == {64, 70}
    assert {layer.alpha for layer in lora.layers.values()} == {35.0}
    assert "train.rank = 70" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_lora_is_fp32_and_the_same_whatever_the_base_is(dtype: torch.dtype) -> None:
    unet = build_unet().to(dtype)
    names = attach(unet, LoraShape("attention", 4, 4.0), torch.Generator().manual_seed(7))
    trained = {name for name, value in unet.named_parameters() if value.requires_grad}
    assert len(trained) == 2 * len(names)
    assert all(value.dtype == torch.float32 for value in unet.parameters() if value.requires_grad)
    down = take_weights(unet, names).layers[names[0]].down
    expected = torch.empty(down.shape)
    torch.nn.init.kaiming_uniform_(expected, 5**0.5, generator=torch.Generator().manual_seed(7))
    assert torch.equal(down, expected)


def test_building_a_conv_lora_first_does_not_widen_the_next(sd15: UNet2DConditionModel) -> None:
    module_names(sd15, "transformer+conv")
    assert len(module_names(sd15, "transformer")) == 192
