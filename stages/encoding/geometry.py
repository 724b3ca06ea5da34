"""What the model's configuration says about the size of latents and embeddings."""

from collections.abc import Iterable

from latentmill.cache.models.part_configs import TextEncoderConfig, VaeConfig
from latentmill.cache.models.weights import ModelFiles, read_part_config
from latentmill.datasets.errors import UsageError
from latentmill.stages.encoding.survey import ShardUnit

_DETAILS_BYTES = 3072  # ID.json, the tar's headers and the padding of two members.


def require_fitting_step(step: int, files: ModelFiles) -> None:
    """Raise UsageError when buckets would not divide into latent cells."""
    factor = read_part_config(files, VaeConfig).factor
    if step % factor:
        raise UsageError(
            f"bucket.step is {step}, but the VAE shrinks pictures by {factor}",
            where="the [bucket] settings",
            fix=f"set bucket.step to a multiple of {factor}; 64 suits every model",
        )


def estimated_bytes(units: Iterable[ShardUnit], files: ModelFiles, dtype: str) -> int:
    """Estimate what new shards take on disk: mean and std of each latent, and each embedding."""
    item_bytes = 2 if dtype == "float16" else 4
    text = read_part_config(files, TextEncoderConfig)
    text_values = text.max_position_embeddings * text.hidden_size
    vae = read_part_config(files, VaeConfig)
    values_per_px = 2 * vae.latent_channels / vae.factor**2
    total = 0
    for unit in units:
        bucket = unit.tasks[0].wanted.placement.bucket
        values = int(values_per_px * bucket.width * bucket.height) + text_values
        total += unit.size * (values * item_bytes + _DETAILS_BYTES)
    return total
