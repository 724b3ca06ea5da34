import math
from dataclasses import dataclass, replace

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor

from latentmill.cache.mapped import SampleTensors
from latentmill.datasets.errors import ModelError
from latentmill.stages.training.diffusion import (
    Chance,
    Sight,
    add_noise,
    draw_sight,
    loss_weights,
    prepare_schedule,
    sample_losses,
    seed_of,
    stack,
    target,
)

CHANCE = Chance(seed=42, num_timesteps=1000)
SIGHT = Sight("pone", epoch=0, occurrence=0)


@dataclass(frozen=True)
class FakeSamples:
    scaling_factor: float = 0.5
    shift_factor: float = 0.25

    @property
    def empty_text(self) -> Tensor:
        return torch.zeros(5, 8)

    def read(self, sample_id: str) -> SampleTensors:
        mean = torch.arange(4 * 6 * 10, dtype=torch.float16).reshape(4, 6, 10) / len(sample_id) / 25
        text = torch.stack([torch.full((5, 8), 1.0 + variant) for variant in range(3)])
        return SampleTensors(mean, mean / 10, text)


SAMPLES = FakeSamples()


def make_scheduler(prediction: str = "epsilon", zero_snr: bool = False) -> DDPMScheduler:
    return DDPMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type=prediction,
        rescale_betas_zero_snr=zero_snr,
    )


def exact_alphas() -> Tensor:
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, 0)


def test_a_latent_is_mean_plus_std_times_eps_then_shifted_and_scaled() -> None:
    drawn = draw_sight(SAMPLES, SIGHT, CHANCE)
    seed = seed_of("latentmill sight", 42, 0, "pone", 0)
    generator = torch.Generator().manual_seed(seed)
    timestep = int(torch.randint(1000, (), generator=generator))
    torch.rand((), generator=generator)
    variant = int(float(torch.rand((), generator=generator)) * 3)
    eps = torch.randn(4, 6, 10, generator=generator)
    noise = torch.randn(4, 6, 10, generator=generator)
    stored = SAMPLES.read("pone")
    mean, std = stored.latent_mean.double(), stored.latent_std.double()
    expected = (mean + std * eps.double() - 0.25) * 0.5
    torch.testing.assert_close(drawn.latent.double(), expected, atol=1e-6, rtol=1e-6)
    assert drawn.latent.dtype == torch.float32
    assert torch.equal(drawn.noise, noise)
    assert drawn.timestep == timestep
    assert torch.equal(drawn.text, stored.text[variant])


def test_the_same_sight_always_gives_the_same_draw() -> None:
    torch.manual_seed(1)
    first = draw_sight(SAMPLES, SIGHT, CHANCE)
    torch.manual_seed(2)
    second = draw_sight(SAMPLES, SIGHT, CHANCE)
    assert torch.equal(first.latent, second.latent)
    assert torch.equal(first.noise, second.noise)
    assert first.timestep == second.timestep


@pytest.mark.parametrize(
    ("sight", "chance"),
    [
        (replace(SIGHT, id="ptwo"), CHANCE),
        (replace(SIGHT, epoch=1), CHANCE),
        (replace(SIGHT, occurrence=1), CHANCE),
        (SIGHT, replace(CHANCE, seed=43)),
    ],
)
def test_another_id_epoch_occurrence_or_seed_gives_another_draw(
    sight: Sight, chance: Chance
) -> None:
    first, second = draw_sight(SAMPLES, SIGHT, CHANCE), draw_sight(SAMPLES, sight, chance)
    assert not torch.equal(first.noise, second.noise)
    assert not torch.equal(first.latent, second.latent)


def test_dropout_and_noise_offset_leave_all_other_draws_alone() -> None:
    plain = draw_sight(SAMPLES, SIGHT, CHANCE)
    other = draw_sight(SAMPLES, SIGHT, replace(CHANCE, caption_dropout=1.0, noise_offset=0.1))
    assert torch.equal(plain.latent, other.latent)
    assert plain.timestep == other.timestep
    assert torch.equal(other.text, torch.zeros(5, 8))
    offset = (other.noise.double() - plain.noise.double()) / 0.1
    spread = offset.flatten(1).max(1).values - offset.flatten(1).min(1).values
    assert spread.max() < 1e-5  # one value a channel
    assert len(set(offset[:, 0, 0].tolist())) == 4


@dataclass(frozen=True)
class MirroredSamples(FakeSamples):
    def read(self, sample_id: str) -> SampleTensors:
        stored = FakeSamples().read(sample_id)
        mean = stored.latent_mean
        mask = torch.ones(6, 10, dtype=torch.float16)
        mask[:, :4] = 0
        return replace(stored, flipped_mean=-mean, flipped_std=mean / 5, loss_mask=mask)


def test_mirroring_leaves_all_other_draws_alone_and_takes_half_of_the_sights() -> None:
    mirrored = 0
    for epoch in range(400):
        sight = replace(SIGHT, epoch=epoch)
        plain = draw_sight(SAMPLES, sight, CHANCE)
        other = draw_sight(MirroredSamples(), sight, CHANCE)
        assert torch.equal(plain.noise, other.noise)
        assert torch.equal(plain.text, other.text)
        assert plain.timestep == other.timestep
        assert other.mask is not None
        is_mirrored = not torch.equal(plain.latent, other.latent)
        mirrored += is_mirrored
        assert other.mask[0, 0] == int(is_mirrored)
        assert other.mask[0, -1] == int(not is_mirrored)
    assert 160 < mirrored < 240


def test_a_mirrored_sight_has_the_mirror_s_mean_and_spread_and_the_same_eps() -> None:
    for epoch in range(20):
        sight = replace(SIGHT, epoch=epoch)
        plain = draw_sight(SAMPLES, sight, CHANCE)
        other = draw_sight(MirroredSamples(), sight, CHANCE)
        if not torch.equal(plain.latent, other.latent):
            mean = SAMPLES.read("pone").latent_mean.double()
            eps = ((plain.latent.double() / 0.5 + 0.25) - mean) / (mean / 10)
            expected = (-mean + mean / 5 * eps - 0.25) * 0.5
            seen = other.latent.double()
            torch.testing.assert_close(seen[:, 1:], expected[:, 1:], atol=0.02, rtol=0.02)
            return
    raise AssertionError("no sight of twenty was mirrored")


def test_masked_cells_are_left_out_of_the_loss() -> None:
    schedule = prepare_schedule(make_scheduler(), 0.0, "cpu")
    generator = torch.Generator().manual_seed(0)
    answer, wanted = (torch.randn(2, 4, 6, 8, generator=generator) for _ in range(2))
    masks = torch.ones(2, 6, 8)
    masks[0, :, :3] = 0
    at = torch.tensor([10, 500])
    losses = sample_losses(schedule, answer, wanted, at, masks)
    counted = ((answer - wanted) ** 2)[0, :, :, 3:]
    assert float(losses[0]) == pytest.approx(float(counted.mean()), rel=1e-6)
    plain = sample_losses(schedule, answer, wanted, at)
    assert float(losses[1]) == pytest.approx(float(plain[1]), rel=1e-6)
    garbage = answer.clone()
    garbage[0, :, :, :3] = 1e3
    assert torch.equal(sample_losses(schedule, garbage, wanted, at, masks), losses)


def test_a_batch_has_masks_when_one_of_its_samples_has() -> None:
    draws = [draw_sight(samples, SIGHT, CHANCE) for samples in (SAMPLES, MirroredSamples())]
    masks = stack(["a", "b"], draws, [1, 1]).masks
    assert masks is not None
    assert masks.shape == (2, 6, 10)
    assert masks[0].min() == 1
    assert masks[1].sum() == 36
    assert stack(["a"], draws[:1], [1]).masks is None


def test_captions_are_dropped_and_variants_chosen_in_their_share() -> None:
    chance = replace(CHANCE, caption_dropout=0.25)
    firsts = [
        float(draw_sight(SAMPLES, replace(SIGHT, epoch=epoch), chance).text[0, 0])
        for epoch in range(2000)
    ]
    shares = [firsts.count(value) / 2000 for value in (0.0, 1.0, 2.0, 3.0)]
    assert shares == pytest.approx([0.25] * 4, abs=0.04)


def test_timesteps_cover_the_whole_schedule_evenly() -> None:
    drawn = [
        draw_sight(SAMPLES, replace(SIGHT, epoch=epoch), Chance(1, 10)).timestep
        for epoch in range(2000)
    ]
    assert sorted(set(drawn)) == list(range(10))
    assert max(drawn.count(step) for step in range(10)) < 260


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("gamma", [0.0, 5.0])
def test_the_loss_is_the_formula_in_float64(prediction: str, gamma: float) -> None:
    kept = exact_alphas()
    schedule = prepare_schedule(make_scheduler(prediction), gamma, "cpu")
    generator = torch.Generator().manual_seed(0)
    latents, noise, answer = (torch.randn(5, 4, 6, 8, generator=generator) for _ in range(3))
    at = torch.tensor([0, 1, 250, 700, 999])
    noisy = add_noise(schedule, latents, noise, at)
    losses = sample_losses(schedule, answer, target(schedule, latents, noise, at), at)
    for row, step in enumerate(at.tolist()):
        alpha, sigma = math.sqrt(kept[step]), math.sqrt(1 - kept[step])
        x, e = latents[row].double(), noise[row].double()
        torch.testing.assert_close(noisy[row].double(), alpha * x + sigma * e, atol=1e-5, rtol=1e-5)
        wanted = e if prediction == "epsilon" else alpha * e - sigma * x
        snr = alpha**2 / sigma**2
        weight = min(snr, gamma) / (snr if prediction == "epsilon" else snr + 1) if gamma else 1.0
        expected = weight * float(((answer[row].double() - wanted) ** 2).mean())
        assert float(losses[row]) == pytest.approx(expected, rel=1e-4)


def test_weights_stay_finite_where_nothing_of_the_picture_is_left() -> None:
    kept = torch.tensor([0.5, 0.0], dtype=torch.float64)
    assert loss_weights(kept, "epsilon", 5.0).tolist() == [1.0, 1.0]
    assert loss_weights(kept, "v_prediction", 5.0).tolist() == [0.5, 0.0]
    schedule = prepare_schedule(make_scheduler("v_prediction", zero_snr=True), 5.0, "cpu")
    assert float(schedule.signal[-1]) == 0.0
    assert bool(schedule.weight.isfinite().all())


def test_other_prediction_types_are_refused() -> None:
    with pytest.raises(ModelError, match="'sample'"):
        prepare_schedule(make_scheduler("sample"), 0.0, "cpu")


def test_a_batch_holds_its_draws_in_order() -> None:
    sights = [replace(SIGHT, id=name) for name in ("pone", "ptwo")]
    draws = [draw_sight(SAMPLES, sight, CHANCE) for sight in sights]
    batch = stack(["pone", "ptwo"], draws, [1.0, 0.5])
    assert batch.ids == ("pone", "ptwo")
    assert torch.equal(batch.noise[1], draws[1].noise)
    assert batch.timesteps.tolist() == [draw.timestep for draw in draws]
    assert batch.weights.tolist() == [1.0, 0.5]
