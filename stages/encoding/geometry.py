"""What the model's configuration says about the size of latents and embeddings."""

from collections.abc import Iterable

from latentmill.cache.models.weights import ModelFiles, read_config
from latentmill.datasets.errors import UsageError
from latentmill.stages.encoding.survey import ShardUnit

_DETAILS_BYTES = 3072  # ID.json, the tar's headers and the padding of two members.


def vae_factor(files: ModelFiles) -> int:
    """How many times smaller than the picture its latent is, along each side."""
    channels = read_config(files, "vae").get("block_out_channels", [128, 256, 512, 512])
    return int(2 ** (len(channels) - 1))


def require_fitting_step(step: int, files: ModelFiles) -> None:
    """Raise UsageError when buckets would not divide into latent cells."""
    factor = vae_factor(files)
    if step % factor:
        raise UsageError(
            f"bucket.step is {step}, but the VAE shrinks pictures by {factor}",
            where="the [bucket] settings",
            fix=f"set bucket.step to a multiple of {factor}; 64 suits every model",
        )


def estimated_bytes(units: Iterable[ShardUnit], files: ModelFiles, dtype: str) -> int:
    """Estimate what new shards take on disk: mean and std of each latent, and each embedding."""
    item_bytes = 2 if dtype == "float16" else 4
    text = read_config(files, "text_encoder")
    text_values = text.get("max_position_embeddings", 77) * text.get("hidden_size", 768)
    channels = read_config(files, "vae").get("latent_channels", 4)
    values_per_px = 2 * channels / vae_factor(files) ** 2
    total = 0
    for unit in units:
        bucket = unit.tasks[0].wanted.placement.bucket
        values = int(values_per_px * bucket.width * bucket.height) + text_values
        total += unit.size * (values * item_bytes + _DETAILS_BYTES)
    return total
