"""Trains the VAE on drawn pictures and measures the scale of its latents."""

import math
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from latentmill.pipeline.tinysd.architecture import LATENT_CHANNELS
from latentmill.pipeline.tinysd.batches import drawn_tensor, random_drawings
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from diffusers import AutoencoderKL

HATCHED_SHARE: Final = 0.4
KL_WEIGHT: Final = 1e-4
TILE_PX: Final = 16
START_LOG_VARIANCE: Final = -6.0


def train_vae(vae: "AutoencoderKL", plan: Plan, seed: int) -> float:
    """Train in place on small tiles, where a batch has many colours; return the last loss."""
    random = Random(seed)

    def loss_of_batch() -> Tensor:
        pictures = drawn_tensor(random_drawings(random, plan.batch_size, HATCHED_SHARE))
        return _loss(vae, _recoloured(_tiles(pictures, random), random))

    _quieten(vae)
    vae.train()
    loss = fit(vae.parameters(), loss_of_batch, plan)
    vae.eval()
    return loss


def train_decoder(vae: "AutoencoderKL", plan: Plan, seed: int) -> float:
    """Train the decoder alone, in place, on whole pictures: latents keep their meaning."""
    random = Random(seed)
    decoder = [*vae.post_quant_conv.parameters(), *vae.decoder.parameters()]

    def loss_of_batch() -> Tensor:
        pictures = drawn_tensor(random_drawings(random, plan.batch_size, HATCHED_SHARE))
        with torch.no_grad():
            latents = vae.encode(pictures).latent_dist.sample()
        return _distance(vae.decode(latents).sample, pictures)

    return fit(decoder, loss_of_batch, plan)


def measure_psnr(vae: "AutoencoderKL", pictures: Tensor) -> float:
    """Measure how well pictures `[N, 3, h, w]` survive the way there and back, in dB."""
    with torch.no_grad():
        decoded = vae.decode(vae.encode(pictures).latent_dist.mean).sample.clamp(-1, 1)
    error = torch.mean((decoded - pictures) ** 2).item()
    return 10 * math.log10(4 / error)


def measure_scaling_factor(vae: "AutoencoderKL", pictures: Tensor) -> float:
    """Measure what brings the latents of pictures to a standard deviation of 1."""
    with torch.no_grad():
        latents: Tensor = vae.encode(pictures).latent_dist.mean
    return 1.0 / latents.std().item()


def _quieten(vae: "AutoencoderKL") -> None:
    """Start with little noise on the latents, otherwise hundreds of steps only fight it."""
    channels = LATENT_CHANNELS
    with torch.no_grad():
        vae.quant_conv.weight[channels:] = 0.0
        vae.quant_conv.bias[channels:] = START_LOG_VARIANCE


def _loss(vae: "AutoencoderKL", pictures: Tensor) -> Tensor:
    posterior = vae.encode(pictures).latent_dist
    decoded = vae.decode(posterior.sample()).sample
    divergence: Tensor = posterior.kl().mean() / posterior.mean[0].numel()
    return _distance(decoded, pictures) + KL_WEIGHT * divergence


def _distance(decoded: Tensor, pictures: Tensor) -> Tensor:
    """Mix squared and absolute error: the first finds the colours, the second sharp edges."""
    difference = decoded - pictures
    distance: Tensor = (difference**2).mean() + 0.2 * difference.abs().mean()
    return distance


def _tiles(pictures: Tensor, random: Random) -> Tensor:
    """Cut one square at a random place out of each picture."""
    height, width = pictures.shape[-2:]
    corners = [
        (random.randint(0, height - TILE_PX), random.randint(0, width - TILE_PX)) for _ in pictures
    ]
    cuts = zip(pictures, corners, strict=True)
    return torch.stack([cut[:, y : y + TILE_PX, x : x + TILE_PX] for cut, (y, x) in cuts])


def _recoloured(pictures: Tensor, random: Random) -> Tensor:
    """Swap colour channels and turn to negatives by chance: more colours than have names."""
    if random.random() < 0.5:
        return pictures
    sign = random.choice((-1.0, 1.0))
    return sign * pictures[:, random.sample(range(3), 3)]
