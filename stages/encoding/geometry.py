"""What the model's configuration says about the size of latents and embeddings."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from latentmill.cache.models.part_configs import TextEncoderConfig, VaeConfig
from latentmill.cache.models.weights import ModelFiles, read_part_config
from latentmill.datasets.buckets import Placement
from latentmill.datasets.errors import UsageError
from latentmill.stages.encoding.survey import ShardUnit
from latentmill.stages.settings import CacheSettings

if TYPE_CHECKING:
    import torch

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


def loss_mask(placement: Placement, latent: "torch.Tensor") -> "torch.Tensor":
    """Return [h, w] in the latent's type: 1 in cells that lie in the picture, 0 in grey ones.

    A cell at the edge counts if most of it is picture.
    """
    import torch

    height, width = latent.shape[-2:]
    box, bucket = placement.picture, placement.bucket
    down, across = bucket.height / height, bucket.width / width
    rows, columns = torch.arange(height) + 0.5, torch.arange(width) + 0.5
    is_in_rows = (rows * down > box.top) & (rows * down < box.bottom)
    is_in_columns = (columns * across > box.left) & (columns * across < box.right)
    mask = is_in_rows[:, None] & is_in_columns[None, :]
    if not mask.any():  # A line thinner than a cell: what lies nearest to it.
        row = min(int((box.top + box.bottom) / 2 / down), height - 1)
        column = min(int((box.left + box.right) / 2 / across), width - 1)
        rows_of, columns_of = is_in_rows.any(), is_in_columns.any()
        mask = (is_in_rows if rows_of else torch.arange(height) == row)[:, None] & (
            is_in_columns if columns_of else torch.arange(width) == column
        )[None, :]
    return mask.to(latent.dtype)


def estimated_bytes(units: Iterable[ShardUnit], files: ModelFiles, settings: CacheSettings) -> int:
    """Estimate what new shards take on disk: mean and std of each latent, and each embedding."""
    item_bytes = 2 if settings.dtype == "float16" else 4
    text = read_part_config(files, TextEncoderConfig)
    text_values = text.max_position_embeddings * text.hidden_size
    vae = read_part_config(files, VaeConfig)
    values_per_px = 2 * vae.latent_channels / vae.factor**2
    total = 0
    for unit in units:
        bucket = unit.tasks[0].wanted.placement.bucket
        latent_values = int(values_per_px * bucket.width * bucket.height)
        for task in unit.tasks:
            texts = len(task.wanted.texts) * settings.text_chunks * text_values
            latents = len(task.wanted.keys.latent_keys) * latent_values
            total += (texts + latents) * item_bytes + _DETAILS_BYTES
    return total
