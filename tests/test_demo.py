"""The demo: every fault is found, the new look is learned, and the results are named."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from latentmill.datasets.selection import with_trigger
from latentmill.pipeline.demo import DemoFolder
from latentmill.pipeline.demo_pictures import NUM_SOUND, TRIGGER, write_demo_pictures
from latentmill.pipeline.main import run


def test_the_pictures_are_the_same_each_time(tmp_path: Path) -> None:
    write_demo_pictures(tmp_path / "a")
    write_demo_pictures(tmp_path / "b")
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"
    )
    assert one == two
    assert len([name for name in one if name.endswith((".png", ".jpg"))]) == NUM_SOUND + 4


def test_every_command_of_the_demo_has_the_settings_it_shows(tmp_path: Path) -> None:
    config = DemoFolder(tmp_path / "a 写").config()
    assert config.sources()[0].trigger == TRIGGER
    assert len(config.sample.prompts) == 3


def test_a_model_is_not_written_over_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert run(["demo", "--model-only", str(tmp_path), "--random"]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a whole demo."""
    work = tmp_path_factory.mktemp("demo") / "work"
    assert run(["demo", "--work", str(work)]) == 0
    return work


def _counts(work: Path, stage: str) -> dict[str, int]:
    return dict(json.loads((work / stage / "report.json").read_text(encoding="utf-8"))["counts"])


def _codes(work: Path) -> dict[str, str]:
    report = json.loads((work / "validate" / "report.json").read_text(encoding="utf-8"))
    return {problem["path"]: problem["code"] for problem in report["problems"]}


@pytest.mark.slow
def test_every_planted_fault_is_found_and_every_picture_accounted_for(demo: Path) -> None:
    codes = _codes(demo)
    assert codes["broken.png"] == "truncated"
    assert codes["sideways.jpg"] == "turned-upright"
    assert codes["no-caption.png"] == "caption-missing"
    assert codes["gbk-caption.png"] in ("encoding-unsure", "encoding-guessed")
    assert (_counts(demo, "validate")["usable"], _counts(demo, "validate")["rejected"]) == (15, 1)
    assert _counts(demo, "caption")["drafted"] == 1
    assert _counts(demo, "cache")["samples"] == _counts(demo, "train")["samples"] == 15


@pytest.mark.slow
def test_the_draft_says_what_is_drawn(demo: Path) -> None:
    rows = (demo / "review.csv").read_text(encoding="utf-8-sig")
    (draft,) = re.findall(r"no-caption\.png,([^,]*),ok,blip", rows)
    assert re.fullmatch(r"an? \w+ \w+ on an? \w+ background", draft)


@pytest.mark.slow
def test_the_lora_lowers_the_loss_on_unseen_pictures_of_the_look(demo: Path) -> None:
    (lora,) = demo.glob("runs/*/lora.safetensors")
    without, with_lora = _held_out_losses(demo / "model", lora)
    assert with_lora < 0.8 * without


@pytest.mark.slow
def test_the_samples_with_the_lora_are_hatched(demo: Path) -> None:
    (samples,) = demo.glob("runs/*/samples")
    for base in sorted(samples.glob("*-base.png")):
        hatched = base.with_name(base.name.replace("base", "lora"))
        assert _roughness(hatched) > 1.5 * _roughness(base), base.name


def _roughness(path: Path) -> float:
    """Mean difference of neighbouring pixels, in grey levels: lines raise it."""
    grey = np.asarray(Image.open(path).convert("L"), dtype=float)
    return float(np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean())


def _held_out_losses(model: Path, lora: Path) -> tuple[float, float]:
    """Denoising loss on drawings nobody trained on, without and with the LoRA: same noise."""
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(model, safety_checker=None)
    without = _denoising_loss(pipeline)
    pipeline.load_lora_weights(lora)
    return without, _denoising_loss(pipeline)


def _denoising_loss(pipeline: Any) -> float:
    import torch

    from latentmill.pipeline.tinysd.batches import drawn_tensor
    from latentmill.pipeline.tinysd.captions import embed
    from latentmill.pipeline.tinysd.drawing import random_drawing

    random = Random(99)
    drawings = [random_drawing(random, hatched=True) for _ in range(16)]
    captions = [with_trigger(drawing.description, TRIGGER) for drawing in drawings]
    generator = torch.Generator().manual_seed(99)
    with torch.no_grad():
        latents = pipeline.vae.encode(drawn_tensor(drawings)).latent_dist.mean
        latents = latents * pipeline.vae.config.scaling_factor
        losses = []
        for timestep in (200, 400, 600, 800):
            noise = torch.randn(latents.shape, generator=generator)
            at = torch.full((len(latents),), timestep)
            noisy = pipeline.scheduler.add_noise(latents, noise, at)
            predicted = pipeline.unet(noisy, at, embed(pipeline, captions)).sample
            losses.append(float(torch.nn.functional.mse_loss(predicted, noise)))
    return sum(losses) / len(losses)
