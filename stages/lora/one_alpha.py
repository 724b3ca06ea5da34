"""A LoRA whose layers have several alphas becomes the same LoRA with one alpha."""

from dataclasses import replace

from latentmill.stages.lora.layouts import LoraLayer, LoraWeights


def with_one_alpha(lora: LoraWeights) -> LoraWeights:
    """Give each layer the alpha that most have, and put the difference into `up`.

    diffusers (0.42) misreads kohya files with several alphas: for q, k, v and out it takes the
    most frequent one, because the names it looks them up by do not match.
    """
    alpha = lora.alpha or 1.0
    return LoraWeights({name: _scaled(layer, alpha) for name, layer in lora.layers.items()})


def _scaled(layer: LoraLayer, alpha: float) -> LoraLayer:
    if layer.alpha == alpha:
        return layer
    return replace(layer, up=layer.up * (layer.alpha / alpha), alpha=alpha)
