"""What chance gives a sample at one sight of it, and the loss of the UNet's answer.

All draws of one sight come from one CPU generator seeded by (seed, epoch, id, occurrence), always
in the same order: no setting, batch split, worker or device changes what another draw gives.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from latentmill.datasets.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from latentmill.cache.mapped import SampleTensors

Prediction = Literal["epsilon", "v_prediction"]


class Samples(Protocol):
    """The part of a cache that draws need: unscaled latents, embeddings."""

    @property
    def scaling_factor(self) -> float:
        """Between stored latents and what the UNet sees."""

    @property
    def shift_factor(self) -> float:
        """Subtracted before scaling."""

    @property
    def empty_text(self) -> "Tensor":
        """The empty caption's embedding [tokens, width]."""

    def read(self, sample_id: str) -> "SampleTensors":
        """One sample's tensors."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One sight of one sample: its `occurrence`-th in the epoch, all counted from 0."""

    id: str
    epoch: int
    occurrence: int


@dataclass(frozen=True, slots=True)
class Chance:
    """What is drawn for each sight, and from which seed."""

    seed: int
    num_timesteps: int
    caption_dropout: float = 0.0
    noise_offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """Scaled latent and noise [4, h, w] in fp32, the timestep, the text [tokens, width].

    `mask` [h, w] is 0 in cells that do not count; None where all do.
    """

    latent: "Tensor"
    noise: "Tensor"
    timestep: int
    text: "Tensor"
    mask: "Tensor | None" = None


@dataclass(frozen=True, slots=True)
class NoiseSchedule:
    """Tables over the timesteps [T] in fp32 on the training device.

    A noisy latent is signal[t] * latent + noise[t] * noise; `weight` is the loss weight.
    """

    prediction: Prediction
    signal: "Tensor"
    noise: "Tensor"
    weight: "Tensor"


def seed_of(*parts: int | str) -> int:
    """Mix values into a generator's seed of 63 bits, the same on every machine."""
    text = "/".join(map(str, parts)).encode("utf-8")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def draw_sight(samples: Samples, sight: Sight, chance: Chance) -> Draw:
    """Draw latent (mean + std * eps), noise, timestep, caption variant and dropout, mirroring."""
    import torch

    seed = seed_of("latentmill sight", chance.seed, sight.epoch, sight.id, sight.occurrence)
    generator = torch.Generator().manual_seed(seed)
    stored = samples.read(sight.id)
    timestep = int(torch.randint(chance.num_timesteps, (), generator=generator))
    is_dropped = float(torch.rand((), generator=generator)) < chance.caption_dropout
    variant = int(float(torch.rand((), generator=generator)) * len(stored.text))
    shape = stored.latent_mean.shape
    eps = torch.randn(shape, generator=generator)
    noise = torch.randn(shape, generator=generator)
    offset = torch.randn((shape[0], 1, 1), generator=generator)
    # New draws come last: those above stay what they were.
    is_mirrored = float(torch.rand((), generator=generator)) < 0.5
    mean, std, mask = stored.latent_mean, stored.latent_std, stored.loss_mask
    if is_mirrored and stored.flipped_mean is not None and stored.flipped_std is not None:
        mean, std = stored.flipped_mean, stored.flipped_std
        mask = None if mask is None else mask.flip(-1)
    latent = mean.float() + std.float() * eps
    return Draw(
        latent=(latent - samples.shift_factor) * samples.scaling_factor,
        # https://www.crosslabs.org/blog/diffusion-with-offset-noise
        noise=noise + chance.noise_offset * offset,
        timestep=timestep,
        text=samples.empty_text if is_dropped else stored.text[variant],
        mask=mask,
    )


def prepare_schedule(
    scheduler: Any, min_snr_gamma: float, device: "torch.device | str"
) -> NoiseSchedule:
    """Compute the tables once, in float64, from a diffusers scheduler.

    ModelError for a prediction type other than epsilon and v_prediction.
    """
    import torch

    prediction = scheduler.config.prediction_type
    if prediction not in ("epsilon", "v_prediction"):
        raise ModelError(
            f"the model's scheduler predicts {prediction!r}",
            where="scheduler/scheduler_config.json",
            expected="prediction_type epsilon or v_prediction",
        )
    kept = scheduler.alphas_cumprod.double().cpu()
    tables = (kept.sqrt(), (1 - kept).sqrt(), loss_weights(kept, prediction, min_snr_gamma))
    signal, noise, weight = (table.to(device=device, dtype=torch.float32) for table in tables)
    return NoiseSchedule(prediction, signal, noise, weight)


def loss_weights(kept: "Tensor", prediction: Prediction, gamma: float) -> "Tensor":
    """Return the min-SNR-gamma weight of each timestep; ones where gamma is 0.

    min(SNR, gamma) / SNR for epsilon, / (SNR + 1) for v (Hang et al. 2023, arXiv:2303.09556).
    `kept` is the cumulative product of alphas [T]. At SNR 0 epsilon's limit is 1.
    """
    import torch

    if gamma == 0:
        return torch.ones_like(kept)
    snr = kept / (1 - kept)
    if prediction == "v_prediction":
        return snr.clamp(max=gamma) / (snr + 1)
    return torch.where(snr > gamma, gamma / snr, 1.0)


def add_noise(
    schedule: NoiseSchedule, latents: "Tensor", noise: "Tensor", at: "Tensor"
) -> "Tensor":
    """Return the noisy latents [n, 4, h, w] at timesteps `at` [n]."""
    return _column(schedule.signal[at]) * latents + _column(schedule.noise[at]) * noise


def target(schedule: NoiseSchedule, latents: "Tensor", noise: "Tensor", at: "Tensor") -> "Tensor":
    """Return what the UNet is to answer: the noise, or v (Salimans, Ho 2022, arXiv:2202.00512)."""
    if schedule.prediction == "epsilon":
        return noise
    return _column(schedule.signal[at]) * noise - _column(schedule.noise[at]) * latents


def sample_losses(
    schedule: NoiseSchedule,
    answer: "Tensor",
    wanted: "Tensor",
    at: "Tensor",
    masks: "Tensor | None" = None,
) -> "Tensor":
    """Return each sample's mean squared error [n] in fp32, weighted by its timestep.

    `masks` [n, h, w] leave cells out of the mean where they are 0.
    """
    squares = (answer.float() - wanted).square()
    if masks is None:
        return squares.flatten(1).mean(1) * schedule.weight[at]
    counted = masks.flatten(1).sum(1) * squares.shape[1]
    return (squares * masks[:, None]).flatten(1).sum(1) / counted * schedule.weight[at]


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one bucket: latents, noise [n, 4, h, w], timesteps [n], text [n, tokens, width].

    `weights` [n] are the sources' factors on the loss; `masks` [n, h, w] leave cells out of it.
    """

    ids: tuple[str, ...]
    latents: "Tensor"
    noise: "Tensor"
    timesteps: "Tensor"
    text: "Tensor"
    weights: "Tensor"
    masks: "Tensor | None" = None

    def pin_memory(self) -> "Batch":
        """Copy to memory that a GPU can fetch from while it computes; the DataLoader's hook."""
        return Batch(self.ids, *(tensor.pin_memory() for tensor in self._tensors()))

    def to(self, device: "torch.device") -> "Batch":
        """Move all tensors, without waiting."""
        moved = (tensor.to(device, non_blocking=True) for tensor in self._tensors())
        return Batch(self.ids, *moved)

    def _tensors(self) -> "tuple[Tensor, ...]":
        always = (self.latents, self.noise, self.timesteps, self.text, self.weights)
        return always if self.masks is None else (*always, self.masks)


def stack(ids: Sequence[str], draws: Sequence[Draw], weights: Sequence[float]) -> Batch:
    """Make a batch of sights of one bucket."""
    import torch

    return Batch(
        ids=tuple(ids),
        latents=torch.stack([draw.latent for draw in draws]),
        noise=torch.stack([draw.noise for draw in draws]),
        timesteps=torch.tensor([draw.timestep for draw in draws]),
        text=torch.stack([draw.text for draw in draws]),
        weights=torch.tensor(weights, dtype=torch.float32),
        masks=_stack_masks(draws),
    )


def _stack_masks(draws: Sequence[Draw]) -> "Tensor | None":
    """Stack in fp32, ones for draws without a mask; None when no draw has one."""
    import torch

    if all(draw.mask is None for draw in draws):
        return None
    shape = draws[0].latent.shape[-2:]
    return torch.stack(
        [torch.ones(shape) if draw.mask is None else draw.mask.float() for draw in draws]
    )


def _column(values: "Tensor") -> "Tensor":
    return values[:, None, None, None]
