import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from latentmill.cache.models.weights import resolve
from latentmill.datasets.errors import DiskFullError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.stages.export import Export
from latentmill.stages.lora.layers import LoraShape, attach, take_weights
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights, to_kohya
from latentmill.stages.settings import ExportSettings, ModelSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def lora_file(tmp_path: Path, small_model: Path) -> Path:
    """A LoRA of rank 4 and alpha 3 for the small model, with weights that are not zero."""
    unet = UNet2DConditionModel.from_pretrained(small_model / "unet")
    generator = torch.Generator().manual_seed(1)
    names = attach(unet, LoraShape("transformer", 4, 3.0), generator)
    for name, parameter in unet.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1, generator=generator)
    file = tmp_path / "hatched.safetensors"
    save_file(
        {key: at.contiguous() for key, at in to_kohya(take_weights(unet, names)).items()}, file
    )
    return file


def merge(model: Path, lora: Path, target: Path, scale: float = 1.0) -> tuple[str, ...]:
    settings = ExportSettings(merge=str(target), scale=scale)
    stage = Export(settings, Layout(lora.parent), lora, ModelSettings(id=str(model)))
    results = [stage.work(unit, lambda _: None) for unit in stage.plan()]
    return tuple(step.text for step in stage.finish(results).next_steps)


def picture(pipeline: Any) -> np.ndarray:
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(
        "a red circle",
        width=32,
        height=32,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    )
    return made.images[0]


def load(model: Path) -> Any:
    return StableDiffusionPipeline.from_pretrained(model)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_merged_model_draws_what_model_and_lora_draw_together(
    tmp_path: Path, small_model: Path, lora_file: Path, scale: float
) -> None:
    steps = merge(small_model, lora_file, tmp_path / "合并 model", scale)
    with_lora = load(small_model)
    base = picture(with_lora)
    with_lora.load_lora_weights(str(lora_file))
    with_lora.set_adapters(["default_0"], [scale])
    wanted = picture(with_lora)
    names = {"StableDiffusionPipeline": StableDiffusionPipeline}
    exec(steps[-1], names)
    np.testing.assert_allclose(picture(names["pipeline"]), wanted, atol=1e-4)
    assert np.abs(wanted - base).max() > 0.01


def test_all_parts_but_the_unet_are_copied_byte_for_byte(
    tmp_path: Path, small_model: Path, lora_file: Path
) -> None:
    merge(small_model, lora_file, tmp_path / "merged")
    for part in ("vae", "text_encoder", "tokenizer", "scheduler"):
        for path in (small_model / part).iterdir():
            assert (tmp_path / "merged" / part / path.name).read_bytes() == path.read_bytes()
    index = json.loads((tmp_path / "merged" / "model_index.json").read_text())
    assert index["scheduler"] == ["diffusers", "DDPMScheduler"]
    assert not list(tmp_path.glob(".*"))


def test_weights_stay_in_the_type_they_are_stored_in_and_the_variant_gets_its_plain_name(
    tmp_path: Path, small_model: Path, lora_file: Path
) -> None:
    model = tmp_path / "half"
    load(small_model).to(torch.float16).save_pretrained(model, variant="fp16")
    merge(model, lora_file, tmp_path / "merged")
    with safe_open(tmp_path / "merged/unet/diffusion_pytorch_model.safetensors", "pt") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118
    assert (tmp_path / "merged/vae/diffusion_pytorch_model.safetensors").is_file()
    assert load(tmp_path / "merged").unet.dtype == torch.float32


def test_a_lora_of_another_model_is_refused_and_nothing_is_written(
    tmp_path: Path, small_model: Path
) -> None:
    layer = LoraLayer(torch.ones(2, 7), torch.ones(9, 2), 2.0)
    tensors = to_kohya(LoraWeights({"mid_block.attentions.0.proj_in": layer}))
    save_file({key: at.contiguous() for key, at in tensors.items()}, tmp_path / "o.safetensors")
    with pytest.raises(UsageError, match="1 of 1 layers of the LoRA do not fit"):
        merge(small_model, tmp_path / "o.safetensors", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_folder_with_something_in_it_stays(
    tmp_path: Path, small_model: Path, lora_file: Path
) -> None:
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="stays as it is"):
        merge(small_model, lora_file, tmp_path / "merged")
    assert [path.name for path in (tmp_path / "merged").iterdir()] == ["mine.txt"]


def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, small_model: Path, lora_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
    with pytest.raises(DiskFullError, match="MiB are needed"):
        merge(small_model, lora_file, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    assert not list(tmp_path.glob(".*"))


def test_the_type_of_stored_weights_is_read_from_the_file(small_model: Path) -> None:
    from latentmill.cache.models.weights import stored_dtype

    file = small_model / "unet" / "diffusion_pytorch_model.safetensors"
    wanted = next(iter(load_file(file).values())).dtype
    assert stored_dtype(resolve(str(small_model)), "unet") == wanted
