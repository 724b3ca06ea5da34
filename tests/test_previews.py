from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL
from PIL import Image

from latentmill.cache.mapped import LatentToRgb
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.stages.sampling.previews import DecodePreviews
from latentmill.stages.settings import ModelSettings, SampleSettings
from latentmill.stages.training.preview import draw_strip, save_previews

GREY = LatentToRgb(torch.zeros(3, 4), torch.full((3,), 0.5), 0.0)


def latents(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(4, 8, 12, generator=generator) for _ in range(2)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "runs" / "001-dog"
    folder.mkdir(parents=True)
    for step in (100, 20):
        save_previews(folder, step, latents(step), GREY)
    return folder


def stage_for(run: Path, model: Path) -> DecodePreviews:
    settings = SampleSettings(device="cpu")  # type: ignore[call-arg]
    return DecodePreviews(
        Layout(run.parent.parent),
        settings,
        ModelSettings(id=str(model)),
        None,  # type: ignore[call-arg]
    )


def test_every_latent_is_decoded_by_the_models_vae(run: Path, small_model: Path) -> None:
    stage = stage_for(run, small_model)
    report = stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])
    assert report.counts == {"previews": 2, "decoded": 2}
    vae = AutoencoderKL.from_pretrained(small_model / "vae")
    with torch.no_grad():
        wanted = vae.decode(latents(20)[1][None]).sample[0]
    levels = ((wanted / 2 + 0.5).clamp(0, 1) * 255).round().byte()
    with Image.open(run / "previews" / "step-000020.png") as row:
        assert row.size == (2 * (48 + 4), 32)
        second = torch.frombuffer(
            bytearray(row.crop((52, 0, 100, 32)).tobytes()), dtype=torch.uint8
        ).reshape(32, 48, 3)
    assert (second.permute(2, 0, 1).int() - levels.int()).abs().max() <= 1
    with Image.open(run / "previews" / "strip-decoded.png") as strip:
        assert strip.size == (104, 2 * (32 + 4))


def test_what_is_decoded_is_left_alone_until_its_latents_change(
    run: Path, small_model: Path
) -> None:
    stage = stage_for(run, small_model)
    for unit in stage.plan():
        stage.work(unit, lambda _: None)
    assert stage.plan() == []
    save_previews(run, 20, latents(21), GREY)
    assert [unit.label for unit in stage.plan()] == ["step-000020"]


def test_a_run_without_previews_says_how_to_get_some(run: Path, small_model: Path) -> None:
    (run.parent / "002-dog").mkdir()
    with pytest.raises(UsageError, match="002-dog kept no previews"):
        stage_for(run, small_model).plan()


def test_the_quick_strip_shows_the_colours_of_the_map_in_the_order_of_steps(run: Path) -> None:
    first_channel = torch.zeros(3, 4)
    first_channel[0, 0] = 1.0
    colours = LatentToRgb(first_channel, torch.zeros(3), 0.0)
    for step, value in ((20, 0.0), (100, 1.0)):
        save_previews(run, step, [torch.full((4, 8, 8), value)], colours)
    strip = draw_strip(sorted((run / "previews").glob("*.safetensors")), colours)
    assert strip.getpixel((50, 50)) == (0, 0, 0)
    assert strip.getpixel((50, 192 + 4 + 50)) == (255, 0, 0)
