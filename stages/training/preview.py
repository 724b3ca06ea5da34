"""Previews of a run: latents drawn by the UNet alone, and a quick picture of them.

Prompts and negative prompt come encoded from the cache; colours from the linear map that was
fitted on the set. No VAE and no text encoder is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.files import write_bytes
from latentmill.cache.mapped import CachedPrompt, LatentToRgb, MappedCache
from latentmill.cache.tensor_file import tensor_bytes
from latentmill.stages.training.hardware import Hardware
from latentmill.stages.training.trainee import Trainee

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

FOLDER: Final = "previews"
STRIP: Final = "strip.png"
_CELL_PX: Final = 192
_GAP_PX: Final = 4


@dataclass(frozen=True, slots=True)
class PreviewRecipe:
    """How previews are drawn: the same noise each time, `seed` for the first prompt, then on."""

    steps: int
    guidance: float
    seed: int


def draw_previews(
    trainee: Trainee, cache: MappedCache, recipe: PreviewRecipe, hardware: Hardware
) -> "list[Tensor]":
    """Draw one unscaled latent [4, h, w] per cached prompt, in the set's most frequent bucket."""
    import torch

    shape = _usual_shape(cache)
    trainee.unet.eval()
    try:
        with torch.no_grad(), hardware.accelerator.autocast():
            scaled = [
                _denoise(trainee, _texts(prompt, cache, hardware), shape, recipe, number)
                for number, prompt in enumerate(cache.prompts)
            ]
    finally:
        trainee.unet.train()
    return [one.float().cpu() / cache.scaling_factor + cache.shift_factor for one in scaled]


def save_previews(run: Path, step: int, latents: "Sequence[Tensor]", colours: LatentToRgb) -> Path:
    """Write the latents of a step, then the strip of all steps so far; return the strip."""
    tensors = {f"prompt-{number}": latent for number, latent in enumerate(latents)}
    content = tensor_bytes(tensors, {"format": "pt", "step": str(step)})
    write_bytes(run / FOLDER / f"step-{step:06}.safetensors", content)
    stream = BytesIO()
    draw_strip(saved_previews(run), colours).save(stream, "PNG")
    write_bytes(run / FOLDER / STRIP, stream.getvalue())
    return run / FOLDER / STRIP


def saved_previews(run: Path) -> list[Path]:
    """The files of latents of a run, oldest step first."""
    return sorted((run / FOLDER).glob("step-*.safetensors"))


def read_previews(path: Path) -> "list[Tensor]":
    """The unscaled latents [4, h, w] of one step, in the order of the prompts."""
    from safetensors.torch import load_file

    tensors = load_file(path)
    return [tensors[f"prompt-{number}"] for number in range(len(tensors))]


def draw_strip(files: Sequence[Path], colours: LatentToRgb) -> "Image":
    """Draw a row for each step and a column for each prompt, latents enlarged cell by cell."""
    from PIL import Image

    rows = [[_quick_picture(latent, colours) for latent in read_previews(path)] for path in files]
    width = max(sum(one.width + _GAP_PX for one in row) for row in rows)
    strip = Image.new("RGB", (width, sum(row[0].height + _GAP_PX for row in rows)), "white")
    top = 0
    for row in rows:
        left = 0
        for one in row:
            strip.paste(one, (left, top))
            left += one.width + _GAP_PX
        top += row[0].height + _GAP_PX
    return strip


def _quick_picture(latent: "Tensor", colours: LatentToRgb) -> "Image":
    from PIL import Image

    pixels = (colours.picture(latent) * 255).round().byte().permute(1, 2, 0).contiguous()
    small = Image.frombytes("RGB", (pixels.shape[1], pixels.shape[0]), pixels.numpy().tobytes())
    factor = max(1, _CELL_PX // max(small.size))
    return small.resize((small.width * factor, small.height * factor), Image.Resampling.BILINEAR)


def _denoise(
    trainee: Trainee, texts: "Tensor", shape: Sequence[int], recipe: PreviewRecipe, number: int
) -> "Tensor":
    """Run DDIM without its random term (Song et al. 2021, arXiv:2010.02502) with guidance.

    `texts` [2, tokens, width] are the negative prompt's and the prompt's.
    """
    import torch

    scheduler = trainee.ddim()
    scheduler.set_timesteps(recipe.steps)
    generator = torch.Generator("cpu").manual_seed(recipe.seed + number)
    latent = torch.randn((1, *shape), generator=generator).to(texts.device)
    latent = latent * scheduler.init_noise_sigma
    for timestep in scheduler.timesteps:
        both = scheduler.scale_model_input(torch.cat([latent, latent]), timestep)
        answer = trainee.unet(both.to(texts.dtype), timestep, texts, return_dict=False)[0].float()
        without, with_prompt = answer.chunk(2)
        guided = without + recipe.guidance * (with_prompt - without)
        latent = scheduler.step(guided, timestep, latent, return_dict=False)[0]
    drawn: Tensor = latent[0]
    return drawn


def _texts(prompt: CachedPrompt, cache: MappedCache, hardware: Hardware) -> "Tensor":
    import torch

    pair = torch.stack([cache.negative.embedding, prompt.embedding])
    return pair.to(hardware.device, hardware.dtype)


def _usual_shape(cache: MappedCache) -> tuple[int, ...]:
    """The shape of a latent in the bucket that most subjects have."""
    subjects = [one for one in cache.samples if not one.is_regularisation] or list(cache.samples)
    counts: dict[str, int] = {}
    for sample in subjects:
        counts[sample.bucket] = counts.get(sample.bucket, 0) + 1
    usual = min(counts, key=lambda bucket: (-counts[bucket], bucket))
    first = next(sample for sample in subjects if sample.bucket == usual)
    shape: Any = cache.read(first.id).latent_mean.shape
    return tuple(int(side) for side in shape)
