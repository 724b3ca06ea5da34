"""The loss on held-out samples, at the same timesteps with the same noise each time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from latentmill.cache.index import CachedSample
from latentmill.stages.training.diffusion import Batch, Draw, Samples, seed_of, stack
from latentmill.stages.training.hardware import Hardware
from latentmill.stages.training.trainee import Trainee

if TYPE_CHECKING:
    from torch import Tensor

SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in the noise schedule each held-out sample is looked at, 0 clean, 1 pure noise."""


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """The mean squared error without any weighting: over all, and at each of `SHARES`."""

    mean: float
    bands: tuple[float, ...]


def held_out_loss(
    trainee: Trainee, samples: Samples, held_out: Sequence[CachedSample], hardware: Hardware
) -> HeldOutLoss:
    """Measure all of `held_out` at every band; nothing is drawn by chance, no gradient is kept.

    The posterior's mean and the first caption are used, one bucket's samples at a time, so that
    two runs with other batch sizes or seeds can be compared.
    """
    import torch

    plain = replace(
        trainee,
        schedule=replace(trainee.schedule, weight=torch.ones_like(trainee.schedule.weight)),
    )
    ordered = sorted(held_out, key=lambda sample: (sample.bucket, sample.id))
    totals = torch.zeros(len(SHARES), dtype=torch.float64)
    trainee.unet.eval()
    try:
        with torch.no_grad():
            for sample in ordered:
                batch = _batch(samples, sample, trainee.num_timesteps).to(hardware.device)
                totals += plain.losses(batch, hardware).double().cpu()
    finally:
        trainee.unet.train()
    bands = (totals / len(ordered)).tolist()
    return HeldOutLoss(sum(bands) / len(bands), tuple(bands))


def _batch(samples: Samples, sample: CachedSample, num_timesteps: int) -> Batch:
    """One sample at every band; its weight in training plays no part."""
    draws = [_draw(samples, sample.id, int(share * num_timesteps)) for share in SHARES]
    return stack([sample.id] * len(SHARES), draws, [1.0] * len(SHARES))


def _draw(samples: Samples, name: str, timestep: int) -> Draw:
    import torch

    stored = samples.read(name)
    generator = torch.Generator().manual_seed(seed_of("latentmill held out", name, timestep))
    latent = (stored.latent_mean.float() - samples.shift_factor) * samples.scaling_factor
    noise: Tensor = torch.randn(stored.latent_mean.shape, generator=generator)
    return Draw(latent=latent, noise=noise, timestep=timestep, text=stored.text[0])
