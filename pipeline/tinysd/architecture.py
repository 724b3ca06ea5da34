"""Builds a Stable Diffusion of toy size with random weights and writes it in diffusers layout."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from latentmill.cache.clip_tokenizer import NUM_POSITIONS, NUM_TOKENS, write_tokenizer

if TYPE_CHECKING:
    from diffusers import (
        AutoencoderKL,
        DDPMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextModel, CLIPTokenizer

PICTURE_PX: Final = 64
LATENT_CHANNELS: Final = 4
TEXT_WIDTH: Final = 64
VAE_CHANNELS: Final = (32, 48, 64)
VAE_FACTOR: Final = 2 ** (len(VAE_CHANNELS) - 1)
UNET_CHANNELS: Final = (64, 64, 96)


def write_random_model(folder: Path, seed: int = 0) -> None:
    """Write an untrained model that `StableDiffusionPipeline.from_pretrained` loads offline."""
    write_pipeline(build_pipeline(seed), folder)


def write_pipeline(pipeline: "StableDiffusionPipeline", folder: Path) -> None:
    """Write a model in diffusers layout; the tokenizer keeps SD 1.x's two plain files."""
    from latentmill.cache.models.weights import quiet

    with quiet():
        for name in ("vae", "text_encoder", "unet"):
            getattr(pipeline, name).save_pretrained(folder / name, safe_serialization=True)
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    pipeline.save_config(folder)
    write_tokenizer(folder / "tokenizer")


def build_pipeline(seed: int = 0, scaling_factor: float = 1.0) -> "StableDiffusionPipeline":
    """Build the model with random weights that depend on the seed alone, in fp32."""
    import torch
    from diffusers import StableDiffusionPipeline

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return StableDiffusionPipeline(
            vae=build_vae(scaling_factor),
            text_encoder=build_text_encoder(),
            tokenizer=build_tokenizer(),
            unet=build_unet(),
            scheduler=build_scheduler(),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )


def build_vae(scaling_factor: float = 1.0) -> "AutoencoderKL":
    """Build a VAE with three blocks: pictures shrink by 4 (by 8 it stayed poor at this size)."""
    from diffusers import AutoencoderKL

    num_blocks = len(VAE_CHANNELS)
    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=LATENT_CHANNELS,
        down_block_types=("DownEncoderBlock2D",) * num_blocks,
        up_block_types=("UpDecoderBlock2D",) * num_blocks,
        block_out_channels=VAE_CHANNELS,
        layers_per_block=1,
        norm_num_groups=8,
        sample_size=PICTURE_PX,
        scaling_factor=scaling_factor,
    )


def build_text_encoder() -> "CLIPTextModel":
    """Build a two-layer CLIP text encoder; most of it is the table of 49,408 tokens."""
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(
        vocab_size=NUM_TOKENS,
        max_position_embeddings=NUM_POSITIONS,
        hidden_size=TEXT_WIDTH,
        intermediate_size=4 * TEXT_WIDTH,
        projection_dim=TEXT_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_act="quick_gelu",
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    return CLIPTextModel(config).eval()


def build_tokenizer() -> "CLIPTokenizer":
    """Load CLIP's tokenizer from a folder written for the moment."""
    from tempfile import TemporaryDirectory

    from transformers import CLIPTokenizer

    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return CLIPTokenizer.from_pretrained(folder)


def build_unet() -> "UNet2DConditionModel":
    """Build a UNet with SD 1.x's kinds of blocks: cross-attention at two levels and in the middle.

    Latents are halved twice inside it, so their sides must be multiples of 4.
    """
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=PICTURE_PX // VAE_FACTOR,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        mid_block_type="UNetMidBlock2DCrossAttn",
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=UNET_CHANNELS,
        layers_per_block=1,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
    )


def build_scheduler() -> "DDPMScheduler":
    """Build SD's noise schedule; epsilon prediction, steps counted from pure noise."""
    from diffusers import DDPMScheduler

    return DDPMScheduler(
        num_train_timesteps=1000,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="epsilon",
        clip_sample=False,
        timestep_spacing="trailing",
        steps_offset=1,
    )
