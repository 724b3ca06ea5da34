"""A run that measures itself on samples it does not train on, and shows what it draws."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.test_train import (
    Work,
    assert_same_tensors,
    lean_model,
    lora_hash,
    run_stage,
    timeless,
    work,
)

from latentmill.datasets.errors import UsageError
from latentmill.stages.settings import SampleSettings
from latentmill.stages.training import stepping
from latentmill.stages.training.preview import read_previews

pytestmark = pytest.mark.slow

__all__ = ["lean_model", "work"]
MEASURED = {"holdout": 2, "measure_every": 2, "steps": 6, "save_every": 2}


def held_out_of(run: Path) -> list[str]:
    ids: list[str] = json.loads((run / "snapshot" / "held-out.json").read_text())
    return ids


def measured_lines(work: Work, number: int = 1) -> list[dict[str, Any]]:
    return [line for line in work.metrics(number) if "held_out_loss" in line]


def test_held_out_samples_are_never_trained_on_and_the_ledger_closes(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    backward = stepping._backward

    def watched(job: Any, loaded: Any) -> Any:
        seen.update(loaded.batch.ids)
        return backward(job, loaded)

    monkeypatch.setattr(stepping, "_backward", watched)
    stage = work.stage(**MEASURED)
    report = stage.finish([run_stage(stage)])
    held_out = held_out_of(work.run_folder())
    assert (report.counts["samples"], report.counts["held_out"]) == (5, 2)
    assert len(held_out) == 2
    assert len(seen) == 5
    assert seen.isdisjoint(held_out)


def test_the_loss_is_measured_at_the_steps_asked_for_and_by_band(work: Work) -> None:
    run_stage(work.stage(**MEASURED))
    lines = measured_lines(work)
    assert [line["step"] for line in lines] == [2, 4, 6]
    for line in lines:
        bands = line["held_out_bands"]
        assert len(bands) == 5
        assert line["held_out_loss"] == pytest.approx(sum(bands) / 5)


def test_the_measure_is_the_plain_error_of_the_mean_latent_at_fixed_noise(work: Work) -> None:
    """With a rate of almost nothing the LoRA changes nothing: the UNet alone gives the numbers."""
    from diffusers import DDPMScheduler, UNet2DConditionModel

    from latentmill.cache.mapped import MappedCache
    from latentmill.stages.training.diffusion import seed_of

    run_stage(work.stage(**{**MEASURED, "steps": 2, "learning_rate": 1e-30}))
    folder = Path(work.model.id)
    unet = UNet2DConditionModel.from_pretrained(folder / "unet")
    scheduler = DDPMScheduler.from_pretrained(folder / "scheduler")
    cache = MappedCache.open(work.layout.cache_index, work.layout.shards)
    errors = []
    for name in held_out_of(work.run_folder()):
        stored = cache.read(name)
        for timestep in (100, 300, 500, 700, 900):
            generator = torch.Generator().manual_seed(
                seed_of("latentmill held out", name, timestep)
            )
            noise = torch.randn(stored.latent_mean.shape, generator=generator)[None]
            latent = stored.latent_mean.float()[None]
            at = torch.tensor([timestep])
            with torch.no_grad():
                answer = unet(
                    scheduler.add_noise(latent, noise, at), at, stored.text[:1].float()
                ).sample
            errors.append(float((answer - noise).square().mean()))
    (line,) = measured_lines(work)
    assert line["held_out_loss"] == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_measuring_changes_nothing_of_the_training(work: Work) -> None:
    run_stage(work.stage(**MEASURED))
    run_stage(work.stage(**{**MEASURED, "measure_every": 3}))
    assert_same_tensors(work.run_folder(1), work.run_folder(2))


def test_a_resumed_run_measures_and_remembers_as_the_unbroken_one(work: Work) -> None:
    run_stage(work.stage(**MEASURED))

    def stop_after(step: int) -> Any:
        def tick(_: int) -> None:
            nonlocal step
            step -= 1
            if step == 0:
                raise RuntimeError("killed")

        return tick

    with pytest.raises(RuntimeError, match="killed"):
        run_stage(work.stage(**MEASURED), stop_after(5))
    run_stage(work.stage(resume=True, **MEASURED))
    one, two = work.run_folder(1), work.run_folder(2)
    assert lora_hash(one) == lora_hash(two)
    assert held_out_of(one) == held_out_of(two)
    assert timeless(work.metrics(1)) == timeless(work.metrics(2))
    best = [run / "lora-best.safetensors" for run in (one, two)]
    assert best[0].read_bytes() == best[1].read_bytes()


def test_the_best_lora_is_that_of_the_lowest_loss(work: Work) -> None:
    from safetensors import safe_open

    run_stage(work.stage(**MEASURED))
    lines = measured_lines(work)
    lowest = min(lines, key=lambda line: line["held_out_loss"])
    with safe_open(work.run_folder() / "lora-best.safetensors", "pt") as file:
        assert file.metadata()["ss_steps"] == str(lowest["step"])


def test_a_run_without_gain_stops_early_and_says_so_when_resumed(work: Work) -> None:
    patient = {**MEASURED, "steps": 40, "measure_every": 1, "patience": 2, "min_gain": 0.9}
    stage = work.stage(**patient)
    report = stage.finish([run_stage(stage)])
    assert report.counts["optimizer_steps"] == 3
    assert (work.run_folder() / "state" / "step-000003" / "state.json").is_file()
    with pytest.raises(UsageError, match="stopped early after step 3"):
        work.stage(resume=True, **patient).plan()
    (unit,) = work.stage(resume=True, **{**patient, "patience": 0}).plan()
    assert (unit.start, unit.stop) == (3, 40)


def test_previews_are_drawn_by_the_unet_alone_and_kept_with_a_strip(work: Work) -> None:
    stage = replace(
        work.stage(steps=4, preview_every=2),
        sample=SampleSettings(steps=2, guidance=3.0, seed=5),  # type: ignore[call-arg]
    )
    run_stage(stage)
    folder = work.run_folder() / "previews"
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["step-000002.safetensors", "step-000004.safetensors", "strip.png"]
    (latent,) = read_previews(folder / "step-000004.safetensors")
    assert latent.shape == (4, 4, 4)
    with Image.open(folder / "strip.png") as strip:
        assert strip.size == (196, 2 * 196)


def test_previews_change_nothing_of_the_training(work: Work) -> None:
    quick = SampleSettings(steps=1)  # type: ignore[call-arg]
    run_stage(replace(work.stage(steps=4, preview_every=1), sample=quick))
    run_stage(work.stage(steps=4))
    assert_same_tensors(work.run_folder(1), work.run_folder(2))


def test_a_preview_is_what_diffusers_draws_with_the_same_prompts_and_noise(work: Work) -> None:
    """A rate of almost nothing leaves the UNet as it is: its own pipeline gives the latent."""
    from diffusers import DDIMScheduler, UNet2DConditionModel

    from latentmill.cache.mapped import MappedCache

    recipe = SampleSettings(steps=3, guidance=4.0, seed=9)  # type: ignore[call-arg]
    run_stage(replace(work.stage(steps=1, preview_every=1, learning_rate=1e-30), sample=recipe))
    (latent,) = read_previews(work.run_folder() / "previews" / "step-000001.safetensors")
    folder = Path(work.model.id)
    unet = UNet2DConditionModel.from_pretrained(folder / "unet")
    scheduler = DDIMScheduler.from_pretrained(folder / "scheduler", clip_sample=False)
    scheduler.set_timesteps(3)
    cache = MappedCache.open(work.layout.cache_index, work.layout.shards)
    wanted = torch.randn((1, 4, 4, 4), generator=torch.Generator().manual_seed(9))
    for timestep in scheduler.timesteps:
        with torch.no_grad():
            without = unet(wanted, timestep, cache.negative.embedding[None].float()).sample
            with_prompt = unet(wanted, timestep, cache.prompts[0].embedding[None].float()).sample
        guided = without + 4.0 * (with_prompt - without)
        wanted = scheduler.step(guided, timestep, wanted).prev_sample
    torch.testing.assert_close(latent, wanted[0], atol=1e-4, rtol=1e-4)
