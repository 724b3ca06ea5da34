import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.pipeline.tinysd.architecture import build_unet, write_random_model
from latentmill.stages.export import Export
from latentmill.stages.lora.layers import LoraShape, attach, take_weights
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights, read_lora, to_kohya
from latentmill.stages.settings import ExportSettings, ModelSettings

pytestmark = pytest.mark.slow

PARITY = "kohya_sd15_unet_lora_keys_rank4.tsv"
LAYOUTS = ("kohya", "diffusers", "peft")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tinysd")
    write_random_model(folder)
    return folder


def trained_unet(model: Path) -> tuple[Any, LoraWeights]:
    """A UNet with a LoRA as the trainer attaches it, alpha 3 and rank 4, and weights not zero."""
    unet = UNet2DConditionModel.from_pretrained(model / "unet")
    generator = torch.Generator().manual_seed(1)
    names = attach(unet, LoraShape("transformer", 4, 3.0), generator)
    for name, parameter in unet.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1, generator=generator)
    return unet, take_weights(unet, names)


def run_of(work: Path, lora: LoraWeights, header: dict[str, str] | None = None) -> Path:
    run = work / "runs" / "001-hatched"
    run.mkdir(parents=True)
    tensors = {key: at.contiguous() for key, at in to_kohya(lora).items()}
    save_file(tensors, run / "lora.safetensors", header)
    return run


def export(work: Path, layout: str, chosen: Path | None = None, output: str = "") -> Report:
    stage = Export(
        ExportSettings(layout=layout, output=output), Layout(work), chosen, ModelSettings()
    )
    results = [stage.work(unit, lambda _: None) for unit in stage.plan()]
    return stage.finish(results)


def written(work: Path, layout: str) -> Path:
    names = {
        "kohya": "001-hatched.safetensors",
        "diffusers": "pytorch_lora_weights.safetensors",
        "peft": "adapter_model.safetensors",
    }
    return work / "runs" / "001-hatched" / "export" / layout / names[layout]


def noise_prediction(unet: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    latents = torch.randn(1, 4, 16, 16, generator=generator)
    text = torch.randn(1, 5, 64, generator=generator)
    with torch.no_grad():
        return unet(latents, torch.tensor(500), text, return_dict=False)[0]


def picture(pipeline: StableDiffusionPipeline) -> np.ndarray:
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


def load(model: Path) -> StableDiffusionPipeline:
    return StableDiffusionPipeline.from_pretrained(model, safety_checker=None)


def fused_deltas(model: Path, file: Path) -> dict[str, torch.Tensor]:
    pipeline = load(model)
    before = {name: at.clone() for name, at in pipeline.unet.state_dict().items()}
    pipeline.load_lora_weights(str(file))
    pipeline.fuse_lora()
    pipeline.unload_lora_weights()
    after = pipeline.unet.state_dict()
    return {name: after[name] - at for name, at in before.items() if not after[name].equal(at)}


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_diffusers_adds_the_trained_delta_to_every_layer(
    tmp_path: Path, model: Path, layout: str
) -> None:
    _, lora = trained_unet(model)
    run_of(tmp_path, lora)
    export(tmp_path, layout)
    deltas = fused_deltas(model, written(tmp_path, layout))
    assert deltas.keys() == {f"{name}.weight" for name in lora.layers}
    for name, layer in lora.layers.items():
        torch.testing.assert_close(deltas[f"{name}.weight"], layer.delta(), atol=1e-6, rtol=0)


def test_both_files_give_the_picture_of_the_trained_unet(tmp_path: Path, model: Path) -> None:
    unet, lora = trained_unet(model)
    run_of(tmp_path, lora)
    pipeline = load(model)
    base = picture(pipeline)
    pictures = {}
    for layout in ("kohya", "diffusers"):
        export(tmp_path, layout)
        pipeline.load_lora_weights(str(written(tmp_path, layout)))
        pictures[layout] = picture(pipeline)
        pipeline.unload_lora_weights()
    pipeline.unet = unet
    wanted = picture(pipeline)
    assert np.abs(wanted - base).max() > 0.01
    for made in pictures.values():
        np.testing.assert_allclose(made, wanted, atol=1e-4)


def test_peft_loads_its_folder_and_predicts_as_the_trained_unet(
    tmp_path: Path, model: Path
) -> None:
    unet, lora = trained_unet(model)
    run_of(tmp_path, lora)
    export(tmp_path, "peft")
    base = UNet2DConditionModel.from_pretrained(model / "unet")
    before = noise_prediction(base)
    loaded = PeftModel.from_pretrained(base, written(tmp_path, "peft").parent)
    torch.testing.assert_close(noise_prediction(loaded), noise_prediction(unet))
    assert (noise_prediction(loaded) - before).abs().max() > 1e-3


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_any_layout_becomes_any_other_without_loss(
    tmp_path: Path, model: Path, source: str, target: str
) -> None:
    _, lora = trained_unet(model)
    run_of(tmp_path, lora)
    export(tmp_path, source)
    file = written(tmp_path, source)
    output = tmp_path / "again"
    export(tmp_path, target, file.parent if source == "peft" else file, str(output))
    (again,) = output.glob("*.safetensors")
    result = read_lora(again)
    assert result.layers.keys() == lora.layers.keys()
    for name, layer in lora.layers.items():
        assert result.layers[name].alpha == layer.alpha == 3.0
        assert result.layers[name].down.equal(layer.down)
        assert result.layers[name].up.equal(layer.up)


def test_layers_of_several_ranks_and_alphas_mean_the_same_in_diffusers(
    tmp_path: Path, model: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    layers = {}
    for number, (name, layer) in enumerate(trained_unet(model)[1].layers.items()):
        rank = 2 + number % 3
        down = torch.randn(rank, *layer.down.shape[1:], generator=generator) / 10
        up = torch.randn(layer.up.shape[0], rank, *layer.up.shape[2:], generator=generator) / 10
        layers[name] = LoraLayer(down, up, alpha=float(1 + number % 2))
    run_of(tmp_path, LoraWeights(layers))
    for layout in ("kohya", "diffusers"):
        export(tmp_path, layout)
        deltas = fused_deltas(model, written(tmp_path, layout))
        for name, layer in layers.items():
            torch.testing.assert_close(deltas[f"{name}.weight"], layer.delta(), atol=1e-6, rtol=0)


def test_kohya_keys_and_shapes_are_those_of_the_parity_file(tmp_path: Path) -> None:
    file = Path(__file__).parent.parent.parent / "shared" / "parity" / PARITY
    if not file.is_file():
        pytest.skip("the list of kohya's keys is not beside this checkout")
    lines = [line.split("\t") for line in file.read_text().splitlines()[1:]]
    wanted = {key: () if shape == "scalar" else _shape(shape) for key, shape in lines}
    run = tmp_path / "runs" / "001-hatched"
    run.mkdir(parents=True)
    save_file({key: torch.ones(shape) for key, shape in wanted.items()}, run / "lora.safetensors")
    export(tmp_path, "diffusers")
    export(tmp_path, "kohya", written(tmp_path, "diffusers"), str(tmp_path / "out"))
    tensors = load_file(tmp_path / "out" / "diffusers.safetensors")
    assert {key: tuple(at.shape) for key, at in tensors.items()} == wanted


def test_the_header_keeps_what_was_trained_and_no_captions(tmp_path: Path, model: Path) -> None:
    header = {"ss_base_model_version": "sd_v1", "ss_tag_frequency": '{"my dog Rex": 3}'}
    run_of(tmp_path, trained_unet(model)[1], header)
    export(tmp_path, "kohya")
    with safe_open(written(tmp_path, "kohya"), "pt") as opened:
        kept = opened.metadata()
    assert kept["ss_base_model_version"] == "sd_v1"
    assert (kept["ss_network_dim"], kept["ss_network_alpha"]) == ("4", "3")
    assert "Rex" not in json.dumps(kept)


def test_the_same_lora_gives_the_same_bytes_and_a_file_is_written_once(
    tmp_path: Path, model: Path
) -> None:
    run_of(tmp_path, trained_unet(model)[1], {f"field{number}": "x" for number in range(20)})
    first = export(tmp_path, "diffusers")
    stamp = written(tmp_path, "diffusers").stat().st_mtime_ns
    second = export(tmp_path, "diffusers", output=str(tmp_path / "other.safetensors"))
    assert second.fingerprint == first.fingerprint
    assert (tmp_path / "other.safetensors").read_bytes() == written(
        tmp_path, "diffusers"
    ).read_bytes()
    export(tmp_path, "diffusers")
    assert written(tmp_path, "diffusers").stat().st_mtime_ns == stamp


def test_another_file_at_the_chosen_output_stays(tmp_path: Path, model: Path) -> None:
    run_of(tmp_path, trained_unet(model)[1])
    mine = tmp_path / "mine.safetensors"
    mine.write_bytes(b"mine")
    with pytest.raises(UsageError, match="stays as it is"):
        export(tmp_path, "kohya", output=str(mine))
    assert mine.read_bytes() == b"mine"


def test_the_next_steps_load_the_file(tmp_path: Path, model: Path) -> None:
    run_of(tmp_path, trained_unet(model)[1])
    report = export(tmp_path, "diffusers")
    pipeline = load(model)
    exec(report.next_steps[-1].text, {"pipeline": pipeline})
    assert pipeline.get_active_adapters() == ["default_0"]


def test_an_untrained_lora_is_reported(tmp_path: Path) -> None:
    unet = build_unet()
    names = attach(unet, LoraShape("attention", 2, 2.0), torch.Generator().manual_seed(0))
    run_of(tmp_path, take_weights(unet, names))
    report = export(tmp_path, "peft")
    assert [problem.code for problem in report.problems] == ["lora-without-effect"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("lora.ckpt", b"x", "pickle"),
        ("lora.safetensors", b"not a LoRA at all", "cannot read the LoRA"),
        ("absent.safetensors", None, "no such run folder or LoRA file"),
    ],
)
def test_what_is_no_lora_is_refused(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=words):
        export(tmp_path, "kohya", tmp_path / name)


def test_without_a_finished_run_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run was made"):
        export(tmp_path, "kohya")
    (tmp_path / "runs" / "001-cut").mkdir(parents=True)
    with pytest.raises(UsageError, match="001-cut has no lora"):
        export(tmp_path, "kohya")


def test_layers_of_a_text_encoder_are_said_to_be_left_out(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = dict(to_kohya(trained_unet(model)[1]))
    tensors["lora_te_text_model_encoder_layers_0_mlp_fc1.alpha"] = torch.tensor(1.0)
    save_file({key: at.contiguous() for key, at in tensors.items()}, tmp_path / "x.safetensors")
    with caplog.at_level(logging.WARNING):
        export(tmp_path, "diffusers", tmp_path / "x.safetensors")
    assert "1 text-encoder tensors" in caplog.text


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(side) for side in text.split("x"))


def export_with(work: Path, **settings: object) -> Report:
    stage = Export(ExportSettings(**settings), Layout(work), None, ModelSettings())
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])


def test_a_lower_rank_and_another_type_are_written_apart_and_load(
    tmp_path: Path, model: Path
) -> None:
    _, lora = trained_unet(model)
    run = run_of(tmp_path, lora)
    report = export_with(tmp_path, layout="kohya", rank=2, dtype="float16")
    file = run / "export" / "kohya-rank-2-float16" / "001-hatched-rank-2-float16.safetensors"
    tensors = load_file(file)
    assert {at.dtype for key, at in tensors.items() if "alpha" not in key} == {torch.float16}
    assert {int(at.shape[0]) for key, at in tensors.items() if "lora_down" in key} == {2}
    assert {float(at) for key, at in tensors.items() if "alpha" in key} == {1.5}
    assert re.match(
        r"rank 2 keeps \d\d\.\d\d% of the LoRA's energy; least in ", report.next_steps[0].text
    )
    load(model).load_lora_weights(str(file))


def test_weights_that_do_not_fit_the_type_are_refused_by_name(tmp_path: Path) -> None:
    layer = LoraLayer(torch.ones(2, 7), torch.full((9, 2), 1e5), 2.0)
    run_of(tmp_path, LoraWeights({"mid_block.attentions.0.proj_in": layer}))
    with pytest.raises(
        UsageError, match=r"mid_block\.attentions\.0\.proj_in do not fit into float16"
    ):
        export_with(tmp_path, dtype="float16")


def test_an_earlier_step_of_the_run_is_exported_from_its_saved_state(
    tmp_path: Path, model: Path
) -> None:
    _, lora = trained_unet(model)
    run = run_of(tmp_path, LoraWeights({}))
    state = run / "state" / "step-000120"
    state.mkdir(parents=True)
    save_file({k: at.contiguous() for k, at in to_kohya(lora).items()}, state / "lora.safetensors")
    (state / "state.json").write_text("{}")
    export_with(tmp_path, layout="diffusers", step=120)
    file = run / "export" / "diffusers-step-120" / "pytorch_lora_weights.safetensors"
    assert read_lora(file).layers.keys() == lora.layers.keys()
    with pytest.raises(UsageError, match="no saved state of step 7") as caught:
        export_with(tmp_path, step=7)
    assert caught.value.expected == "one of the steps 120"
