"""A model and a LoRA become a pipeline that draws with the LoRA and without it."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

    from latentmill.cache.models.weights import ModelFiles
    from latentmill.stages.encoding.encoders import Encoders
    from latentmill.stages.lora.layouts import LoraWeights

ADAPTER: Final = "latentmill"


@dataclass(frozen=True, slots=True)
class SamplerKey:
    """What is loaded: the model, the LoRA at its strength, and where they run.

    `clip_skip` counts as the cache does: 1 is the text encoder's last layer.
    """

    model_id: str
    revision: str
    clip_skip: int
    lora: Path
    lora_digest: str
    lora_scale: float
    device: str


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """One picture; a side of 0 px is the model's own."""

    prompt: str
    negative: str
    seed: int
    steps: int
    guidance: float
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Sampler:
    """A pipeline whose UNet carries the LoRA and whose VAE computes in fp32; texts come encoded."""

    pipeline: Any
    encoders: "Encoders"

    def draw(self, request: PictureRequest, with_lora: bool) -> "Image":
        """Draw one picture; the same request gives the same start from noise on every device."""
        import torch

        unet = self.pipeline.unet
        (unet.enable_lora if with_lora else unet.disable_lora)()
        default_px = unet.config.sample_size * self.pipeline.vae_scale_factor
        latents = self.pipeline(
            prompt_embeds=self._embed(request.prompt),
            negative_prompt_embeds=self._embed(request.negative),
            width=request.width or default_px,
            height=request.height or default_px,
            num_inference_steps=request.steps,
            guidance_scale=request.guidance,
            generator=torch.Generator("cpu").manual_seed(request.seed),
            output_type="latent",
        ).images
        return self._decode(latents)

    def cut_of(self, prompt: str) -> str:
        """Return the end of a prompt that the text encoder has no room for."""
        return self.encoders.encode_text(prompt).cut

    def _embed(self, text: str) -> "torch.Tensor":
        """Encode as the cache does: diffusers' own `clip_skip` fails with transformers 5."""
        unet = self.pipeline.unet
        return self.encoders.encode_text(text).embedding[None].to(unet.device, unet.dtype)

    def _decode(self, latents: "torch.Tensor") -> "Image":
        import torch

        vae = self.pipeline.vae
        if not torch.isfinite(latents).all():
            raise ModelError(
                f"the model gives non-finite numbers in {latents.dtype}",
                where=f"sample.device = {latents.device}",
                fix="draw on the CPU, which computes in fp32",
                run=(Command("sample", settings=("sample.device=cpu",)),),
            )
        unscaled = latents.float() / vae.config.scaling_factor
        with torch.no_grad():
            decoded = vae.decode(unscaled + (vae.config.shift_factor or 0), return_dict=False)[0]
        picture: Image = self.pipeline.image_processor.postprocess(decoded, output_type="pil")[0]
        return picture


@lru_cache(maxsize=1)
def load_sampler(key: SamplerKey) -> Sampler:
    """Load model and LoRA once per process: the UNet in fp16 on a CUDA card, all else in fp32.

    Raises ModelError for the model, UsageError for a LoRA of another model, DivergedError for one
    with non-finite weights.
    """
    import torch

    from latentmill.cache.models import weights
    from latentmill.stages.device import choose_device
    from latentmill.stages.encoding.encoders import Encoders, EncoderSettings
    from latentmill.stages.lora.fitting import Pair, require_fit
    from latentmill.stages.lora.layouts import read_lora

    device = choose_device(key.device, "sample.device")
    lora = read_lora(key.lora)
    files = weights.resolve(key.model_id, key.revision)
    unet = weights.load_unet(files)
    require_fit(lora, unet, Pair(key.lora, key.model_id))
    with weights.quiet():
        _attach(unet, lora, key.lora_scale)
        unet.to(device, torch.float16 if device.type == "cuda" else torch.float32)
    encoders = Encoders(EncoderSettings(files, key.device, "float32", key.clip_skip))
    return Sampler(_assemble(files, unet, weights.load_vae(files).to(device)), encoders)


def _assemble(files: "ModelFiles", unet: Any, vae: Any) -> Any:
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    from latentmill.cache.models import weights

    # DDIM without its random term draws the same picture again whatever the model's own sampler
    # is; clipping belongs to models of pixels, and is DDIM's default where the model says nothing.
    weights.load_scheduler(files)  # Refuses a schedule that cannot be.
    config = weights.read_config(files, "scheduler")
    with weights.quiet():
        pipeline = StableDiffusionPipeline(
            vae=vae,
            text_encoder=None,
            tokenizer=None,
            unet=unet,
            scheduler=DDIMScheduler.from_config(config, clip_sample=False),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _attach(unet: Any, lora: "LoraWeights", scale: float) -> None:
    from latentmill.stages.lora.layouts import DIFFUSERS_CONFIG_KEY, diffusers_header, to_diffusers

    unet.load_lora_adapter(
        to_diffusers(lora),
        prefix="unet",
        adapter_name=ADAPTER,
        metadata=json.loads(diffusers_header(lora)[DIFFUSERS_CONFIG_KEY]),
    )
    unet.set_adapters([ADAPTER], [scale])
