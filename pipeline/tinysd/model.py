"""Writes the trained models of the package as folders that diffusers and transformers load."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latentmill.pipeline.tinysd.architecture import build_pipeline, write_pipeline
from latentmill.pipeline.tinysd.captioner import build_captioner, write_blip

if TYPE_CHECKING:
    from diffusers import StableDiffusionPipeline
    from torch.nn import Module
    from transformers import BlipForConditionalGeneration

PACKAGED: Final = Path(__file__).with_name("weights")
FIGURES: Final = "figures.json"
PARTS: Final = ("vae", "unet", "text_encoder")


def write_model(folder: Path) -> None:
    """Write the trained Stable Diffusion in diffusers layout, fp32; same bytes each time."""
    write_pipeline(load_pipeline(PACKAGED), folder)


def write_captioner(folder: Path) -> None:
    """Write the trained BLIP captioner in Hugging Face layout, fp32; same bytes each time."""
    write_blip(load_captioner(PACKAGED), folder)


def load_pipeline(weights: Path) -> "StableDiffusionPipeline":
    """Build the Stable Diffusion whose parts lie as `PART.safetensors` in `weights`."""
    pipeline = build_pipeline(scaling_factor=read_figures(weights)["vae_scaling_factor"])
    for part in PARTS:
        load_weights(getattr(pipeline, part), weights / f"{part}.safetensors")
    return pipeline


def load_captioner(weights: Path) -> "BlipForConditionalGeneration":
    """Build the captioner from `captioner.safetensors` in `weights`."""
    captioner = build_captioner()
    load_weights(captioner, weights / "captioner.safetensors")
    return captioner


def read_figures(weights: Path) -> dict[str, float]:
    """Read what training measured; the VAE's scaling factor is one of the figures."""
    figures: dict[str, float] = json.loads((weights / FIGURES).read_text(encoding="utf-8"))
    return figures


def load_weights(module: "Module", path: Path) -> None:
    """Fill every weight of a module from fp16 safetensors."""
    from safetensors.torch import load

    module.load_state_dict(load(path.read_bytes()))


def save_weights(module: "Module", path: Path) -> None:
    """Write a module's weights as fp16 safetensors."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    halves = {name: weight.half().contiguous() for name, weight in module.state_dict().items()}
    save_file(halves, path, metadata={"format": "pt"})
