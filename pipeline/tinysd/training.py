"""Trains the small models on drawn pictures and writes the weights that the package ships."""

import argparse
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import torch
from torch import Tensor

from latentmill.pipeline.tinysd.architecture import build_pipeline, build_vae
from latentmill.pipeline.tinysd.batches import SIZES_PX, drawn_tensor
from latentmill.pipeline.tinysd.captioner import build_captioner, build_processor
from latentmill.pipeline.tinysd.captioner_training import measure_hits, train_captioner
from latentmill.pipeline.tinysd.denoiser_training import Course, train_denoiser
from latentmill.pipeline.tinysd.drawing import Drawing, random_drawing
from latentmill.pipeline.tinysd.fitting import Plan
from latentmill.pipeline.tinysd.model import (
    FIGURES,
    load_pipeline,
    load_weights,
    read_figures,
    save_weights,
)
from latentmill.pipeline.tinysd.text_training import train_text_encoder
from latentmill.pipeline.tinysd.vae_training import (
    measure_psnr,
    measure_scaling_factor,
    train_decoder,
    train_vae,
)

VAE: Final = Plan("vae", num_steps=1500, batch_size=32, learning_rate=1e-3)
DECODER: Final = Plan("decoder", num_steps=600, batch_size=3, learning_rate=8e-4)
TEXT: Final = Plan("text", num_steps=300, batch_size=32, learning_rate=1e-3)
SMALL: Final = Course(
    Plan("small", num_steps=1000, batch_size=32, learning_rate=1.5e-3), ((32, 32),), 0.6
)
"""Captions are learned several times faster on small pictures; outlines are not."""
FULL: Final = Course(
    Plan("full", num_steps=1200, batch_size=16, learning_rate=1e-3), SIZES_PX, 0.75
)
CAPTIONER: Final = Plan("captioner", num_steps=2400, batch_size=32, learning_rate=1e-3)
SHAPES: Final = Course(
    Plan("shapes", num_steps=4000, batch_size=16, learning_rate=1e-3), SIZES_PX, 1.0
)
"""Outlines come late, and from the middle of the noise."""
UNSEEN_SEED: Final = 1_000_003

_README: Final = """# Weights of the small models

Made by `python -m latentmill.pipeline.tinysd.training --out FOLDER --seed {seed}`, fp16, part by
part (`--parts`): each part starts from the files of those before it.
Numbers differ in the last digits between machines and numbers of threads.

| figure | value |
|---|---|
{rows}
"""


def main() -> None:
    """Read the arguments and train the parts asked for, in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=list(TRAINERS), default=list(TRAINERS))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for part in arguments.parts:
        torch.manual_seed(arguments.seed)
        started = time.monotonic()
        figures = TRAINERS[part](arguments.out, arguments.seed)
        figures[f"{part}_minutes"] = (time.monotonic() - started) / 60
        _record(arguments.out, figures, arguments.seed)


def make_vae(out: Path, seed: int) -> dict[str, float]:
    """Train the whole VAE on tiles, fix the scale of its latents, then train its decoder."""
    vae = build_vae()
    figures = {"vae_loss": train_vae(vae, VAE, seed)}
    figures["vae_scaling_factor"] = measure_scaling_factor(vae, _unseen_pictures(hatched=False))
    figures["decoder_loss"] = train_decoder(vae, DECODER, seed + 1)
    save_weights(vae, out / "vae.safetensors")
    for hatched in (False, True):
        look = "hatched" if hatched else "flat"
        figures[f"vae_psnr_{look}_db"] = measure_psnr(vae, _unseen_pictures(hatched=hatched))
    return figures


def make_denoiser(out: Path, seed: int) -> dict[str, float]:
    """Train UNet and text encoder on the latents of the VAE that lies in `out`.

    First the words, then the colours that the words ask for, then the shapes.
    """
    pipeline = build_pipeline(seed, read_figures(out)["vae_scaling_factor"])
    load_weights(pipeline.vae, out / "vae.safetensors")
    figures = {"text_loss": train_text_encoder(pipeline, TEXT, seed)}
    figures["small_loss"] = train_denoiser(pipeline, SMALL, seed + 1)
    figures["full_loss"] = train_denoiser(pipeline, FULL, seed + 2)
    save_weights(pipeline.unet, out / "unet.safetensors")
    save_weights(pipeline.text_encoder, out / "text_encoder.safetensors")
    return figures


def refine_shapes(out: Path, seed: int) -> dict[str, float]:
    """Go on with the UNet and the text encoder that lie in `out`."""
    pipeline = load_pipeline(out)
    figures = {"shapes_loss": train_denoiser(pipeline, SHAPES, seed + 3)}
    save_weights(pipeline.unet, out / "unet.safetensors")
    save_weights(pipeline.text_encoder, out / "text_encoder.safetensors")
    return figures


def make_captioner(out: Path, seed: int) -> dict[str, float]:
    """Train the captioner, which needs no other part."""
    captioner, processor = build_captioner(seed), build_processor()
    figures = {"captioner_loss": train_captioner(captioner, processor, CAPTIONER, seed)}
    save_weights(captioner, out / "captioner.safetensors")
    for hatched in (False, True):
        look = "hatched" if hatched else "flat"
        drawings = _unseen_drawings(hatched=hatched)
        figures[f"captioner_hits_{look}"] = measure_hits(captioner, processor, drawings)
    return figures


TRAINERS: Final[dict[str, Callable[[Path, int], dict[str, float]]]] = {
    "vae": make_vae,
    "denoiser": make_denoiser,
    "shapes": refine_shapes,
    "captioner": make_captioner,
}


def _unseen_drawings(*, hatched: bool) -> list[Drawing]:
    random = Random(UNSEEN_SEED)
    return [random_drawing(random, hatched=hatched) for _ in range(64)]


def _unseen_pictures(*, hatched: bool) -> Tensor:
    return drawn_tensor(_unseen_drawings(hatched=hatched))


def _record(out: Path, figures: dict[str, float], seed: int) -> None:
    """Add to the figures of earlier parts and write the table anew."""
    if (out / FIGURES).exists():
        figures = read_figures(out) | figures
    (out / FIGURES).write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in sorted(figures.items()))
    (out / "README.md").write_text(_README.format(seed=seed, rows=rows))


if __name__ == "__main__":
    main()
