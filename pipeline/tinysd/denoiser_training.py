"""Trains the UNet and the text encoder together on the latents of flat drawings."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from latentmill.pipeline.tinysd.batches import drawn_tensor, random_drawings
from latentmill.pipeline.tinysd.captions import embed, varied_caption
from latentmill.pipeline.tinysd.drawing import Drawing
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

NUM_POOL_PICTURES: Final = 8000
MAX_WEIGHT: Final = 40.0
WEIGHT_EXPONENT: Final = 0.75


@dataclass(frozen=True, slots=True)
class Course:
    """What a plan trains on. Below 1, `timestep_skew` draws more of the noisy end.

    The noisy end decides the picture: captions count there and hardly anywhere else.
    """

    plan: Plan
    sizes_px: tuple[tuple[int, int], ...]
    timestep_skew: float


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Drawings of one size with their scaled latents `[N, 4, h, w]`."""

    drawings: list[Drawing]
    latents: Tensor


def train_denoiser(pipeline: "StableDiffusionPipeline", course: Course, seed: int) -> float:
    """Train both in place to predict the noise; return the last loss."""
    random = Random(seed)
    pool = encode_pool(pipeline, random, course)

    def loss_of_batch() -> Tensor:
        batch = random.choice(pool)
        captions = [varied_caption(drawing, random) for drawing in batch.drawings]
        return denoising_loss(pipeline, batch.latents, captions, course.timestep_skew)

    pipeline.unet.to(memory_format=torch.channels_last)  # A fifth faster on a CPU.
    weights = [*pipeline.unet.parameters(), *pipeline.text_encoder.parameters()]
    pipeline.unet.train()
    pipeline.text_encoder.train()
    loss = fit(weights, loss_of_batch, course.plan)
    pipeline.unet.eval()
    pipeline.text_encoder.eval()
    return loss


def encode_pool(
    pipeline: "StableDiffusionPipeline", random: Random, course: Course
) -> list[EncodedBatch]:
    """Draw and encode the pictures once; a few thousand are enough."""
    pool = []
    for _ in range(NUM_POOL_PICTURES // course.plan.batch_size):
        drawings = random_drawings(random, course.plan.batch_size, 0.0, course.sizes_px)
        with torch.no_grad():
            posterior = pipeline.vae.encode(drawn_tensor(drawings)).latent_dist
        scale = pipeline.vae.config.scaling_factor
        pool.append(EncodedBatch(drawings, posterior.mean * scale))
    return pool


def denoising_loss(
    pipeline: "StableDiffusionPipeline", latents: Tensor, captions: list[str], skew: float
) -> Tensor:
    """Compare predicted with added noise at random timesteps, one from each equal share of them.

    Weighted by the share of noise: captions matter where little of the picture is left, and
    count for nothing there without it.
    """
    noise = torch.randn_like(latents)
    num_timesteps = pipeline.scheduler.config.num_train_timesteps
    shares = (torch.arange(len(latents)) + torch.rand(len(latents))) / len(latents)
    timesteps = (num_timesteps * shares**skew).long()
    noisy = pipeline.scheduler.add_noise(latents, noise, timesteps)
    predicted = pipeline.unet(noisy, timesteps, embed(pipeline, captions)).sample
    errors: Tensor = mse_loss(predicted, noise, reduction="none").mean(dim=(1, 2, 3))
    weights: Tensor = (1 / pipeline.scheduler.alphas_cumprod[timesteps]).clamp(max=MAX_WEIGHT)
    return (errors * weights**WEIGHT_EXPONENT).mean()
