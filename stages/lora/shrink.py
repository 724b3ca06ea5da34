"""A LoRA of a lower rank that is as near to the given one as that rank allows."""

from dataclasses import dataclass

from latentmill.datasets.errors import UsageError
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smaller LoRA, and the share of energy (squared singular values) that it keeps.

    `kept` is over all layers, `least` that of the layer `worst`.
    """

    lora: LoraWeights
    kept: float
    least: float
    worst: str


@dataclass(frozen=True, slots=True)
class _Factors:
    layer: LoraLayer
    kept: float
    total: float


def shrink(lora: LoraWeights, rank: int) -> Shrunk:
    """Cut every layer to `rank` by its singular values (Eckart, Young 1936); alpha / rank stays.

    Raises UsageError when no layer has a higher rank.
    """
    largest = max(layer.rank for layer in lora.layers.values())
    if rank >= largest:
        raise UsageError(
            f"export.rank = {rank} is no smaller than the LoRA's rank",
            expected=f"1 to {largest - 1}",
            fix="leave export.rank out, or choose a smaller one",
        )
    parts = {name: _cut(layer, rank) for name, layer in lora.layers.items()}
    total = sum(part.total for part in parts.values())
    shares = {name: _share(part.kept, part.total) for name, part in parts.items()}
    worst = min(shares, key=lambda name: (shares[name], name))
    return Shrunk(
        lora=LoraWeights({name: part.layer for name, part in parts.items()}),
        kept=_share(sum(part.kept for part in parts.values()), total),
        least=shares[worst],
        worst=worst,
    )


def _cut(layer: LoraLayer, rank: int) -> _Factors:
    """Work on the small square between two orthonormal factors: the full delta is never built."""
    import torch

    scale = layer.alpha / layer.rank
    left, above = torch.linalg.qr(layer.up.double().flatten(1))
    right, below = torch.linalg.qr(layer.down.double().flatten(1).T)
    u, values, v = torch.linalg.svd(above @ below.T)
    energy = (values * scale) ** 2
    if rank >= layer.rank:
        return _Factors(layer, float(energy.sum()), float(energy.sum()))
    roots = values[:rank].sqrt()
    up, down = left @ u[:, :rank] * roots, (right @ v[:rank].T * roots).T
    smaller = LoraLayer(
        down=down.reshape(rank, *layer.down.shape[1:]).to(layer.down.dtype).contiguous(),
        up=up.reshape(layer.up.shape[0], rank, *layer.up.shape[2:]).to(layer.up.dtype).contiguous(),
        alpha=scale * rank,
    )
    return _Factors(smaller, float(energy[:rank].sum()), float(energy.sum()))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
