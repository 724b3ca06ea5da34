"""Changes the type that a LoRA's weights are stored in."""

from typing import Final, Literal

from latentmill.datasets.errors import UsageError
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights

StoredType = Literal["keep", "float32", "float16", "bfloat16"]
_LARGEST: Final = {"float16": 65504.0}


def stored_as(lora: LoraWeights, dtype: StoredType) -> LoraWeights:
    """Round to `dtype`; UsageError names a layer whose weights are too large for it."""
    import torch

    if dtype == "keep":
        return lora
    kind = getattr(torch, dtype)
    layers = {
        name: LoraLayer(layer.down.to(kind), layer.up.to(kind), layer.alpha)
        for name, layer in lora.layers.items()
    }
    for name, layer in layers.items():
        if not (layer.down.isfinite().all() and layer.up.isfinite().all()):
            raise UsageError(
                f"the weights of {name} do not fit into {dtype}",
                where=f"export.dtype = {dtype}",
                expected=f"values up to {_LARGEST.get(dtype, 3.4e38):g}",
                fix="export with --dtype bfloat16 or float32",
            )
    return LoraWeights(layers)
