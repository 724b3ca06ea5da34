"""Trains the UNet and the text encoder together on the latents of flat drawings."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from latentmill.pipeline.tinysd.batches import drawn_tensor, random_drawings
from latentmill.pipeline.tinysd.drawing import Drawing
from latentmill.pipeline.tinysd.fitting import Plan, fit

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline

NUM_POOL_BATCHES: Final = 160
CAPTION_DROPOUT: Final = 0.1
_OPENINGS: Final = ("a picture of", "a photo of", "a small drawing of", "a good picture of")


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Drawings of one size with their scaled latents `[N, 4, h, w]`."""

    drawings: list[Drawing]
    latents: Tensor


def train_denoiser(pipeline: "StableDiffusionPipeline", plan: Plan, seed: int) -> float:
    """Train both in place to predict the noise; return the last loss."""
    random = Random(seed)
    pool = encode_pool(pipeline, random, plan.batch_size)

    def loss_of_batch() -> Tensor:
        batch = random.choice(pool)
        captions = [varied_caption(drawing, random) for drawing in batch.drawings]
        return denoising_loss(pipeline, batch.latents, captions)

    weights = [*pipeline.unet.parameters(), *pipeline.text_encoder.parameters()]
    pipeline.unet.train()
    pipeline.text_encoder.train()
    loss = fit(weights, loss_of_batch, plan)
    pipeline.unet.eval()
    pipeline.text_encoder.eval()
    return loss


def encode_pool(
    pipeline: "StableDiffusionPipeline", random: Random, batch_size: int
) -> list[EncodedBatch]:
    """Draw and encode the pictures once; a few thousand are enough."""
    pool = []
    for _ in range(NUM_POOL_BATCHES):
        drawings = random_drawings(random, batch_size, hatched_share=0.0)
        with torch.no_grad():
            posterior = pipeline.vae.encode(drawn_tensor(drawings)).latent_dist
        scale = pipeline.vae.config.scaling_factor
        pool.append(EncodedBatch(drawings, posterior.mean * scale))
    return pool


def denoising_loss(
    pipeline: "StableDiffusionPipeline", latents: Tensor, captions: list[str]
) -> Tensor:
    """Compare predicted with added noise at random timesteps."""
    noise = torch.randn_like(latents)
    timesteps = torch.randint(0, pipeline.scheduler.config.num_train_timesteps, (len(latents),))
    noisy = pipeline.scheduler.add_noise(latents, noise, timesteps)
    predicted = pipeline.unet(noisy, timesteps, embed(pipeline, captions)).sample
    return mse_loss(predicted, noise)


def embed(pipeline: "StableDiffusionPipeline", captions: list[str]) -> Tensor:
    """Encode captions as SD 1.x does: padded to 77 tokens, last hidden state."""
    tokens = pipeline.tokenizer(
        captions, padding="max_length", truncation=True, return_tensors="pt"
    )
    hidden: Tensor = pipeline.text_encoder(tokens.input_ids).last_hidden_state
    return hidden


def varied_caption(drawing: Drawing, random: Random) -> str:
    """Drop the caption, open it with other words or leave out the ground, each by chance."""
    chance = random.random()
    if chance < CAPTION_DROPOUT:
        return ""
    if chance < 0.4:
        return f"{random.choice(_OPENINGS)} {drawing.description}"
    if chance < 0.5:
        return drawing.description.split(" on ")[0]
    return drawing.description
