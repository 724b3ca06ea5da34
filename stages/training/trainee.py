"""The model that learns: the frozen UNet with its LoRA on the device, and the noise schedule."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from latentmill.cache.mapped import MappedCache
from latentmill.cache.models.weights import ModelFiles, load_scheduler, load_unet, read_config
from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command
from latentmill.datasets.words import counted
from latentmill.stages.lora.layers import (
    LoraShape,
    attach,
    lora_parameters,
    put_weights,
    take_weights,
)
from latentmill.stages.lora.layouts import LoraWeights
from latentmill.stages.settings import TrainSettings
from latentmill.stages.training.diffusion import (
    Batch,
    NoiseSchedule,
    add_noise,
    prepare_schedule,
    sample_losses,
    seed_of,
    target,
)
from latentmill.stages.training.hardware import Hardware

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trainee:
    """The UNet, the names of its layers with a LoRA, and the tables of the noise schedule."""

    unet: Any
    names: tuple[str, ...]
    schedule: NoiseSchedule
    num_timesteps: int
    scheduler_config: Mapping[str, Any]

    @property
    def text_width(self) -> int:
        """Width of the text embeddings that the UNet attends to."""
        return int(self.unet.config.cross_attention_dim)

    def parameters(self) -> "dict[str, Parameter]":
        """What is trained."""
        return lora_parameters(self.unet)

    def losses(self, batch: Batch, hardware: Hardware) -> "Tensor":
        """Return the loss of each sample [n], in fp32, with its gradient."""
        schedule, at = self.schedule, batch.timesteps
        noisy = add_noise(schedule, batch.latents, batch.noise, at)
        with hardware.accelerator.autocast():
            answer = self.unet(
                noisy.to(hardware.dtype), at, batch.text.to(hardware.dtype), return_dict=False
            )[0]
        wanted = target(schedule, batch.latents, batch.noise, at)
        return sample_losses(schedule, answer, wanted, at, batch.masks) * batch.weights

    def ddim(self) -> Any:
        """A sampler without chance, on the model's own noise schedule."""
        from diffusers import DDIMScheduler

        return DDIMScheduler.from_config(dict(self.scheduler_config), clip_sample=False)

    def take(self) -> LoraWeights:
        """Copy the LoRA to the CPU."""
        return take_weights(self.unet, self.names)

    def put(self, lora: LoraWeights) -> None:
        """Take the weights of a saved state over."""
        put_weights(self.unet, lora.layers)


def load_trainee(
    files: ModelFiles, settings: TrainSettings, cache: MappedCache, hardware: Hardware
) -> Trainee:
    """Load UNet and schedule, attach the LoRA and move all to the device; nothing else is loaded.

    Raises ModelError when the cached tensors are not what the UNet takes.
    """
    import torch

    unet: Any = load_unet(files, hardware.dtype)
    require_fit(unet.config, cache, files.reference)
    scheduler = load_scheduler(files)
    schedule = prepare_schedule(scheduler, settings.min_snr_gamma, hardware.device)
    generator = torch.Generator().manual_seed(seed_of("latentmill lora", settings.seed))
    shape = LoraShape(settings.targets, settings.rank, settings.alpha)
    names = attach(unet, shape, generator)
    if settings.gradient_checkpointing:
        unet.enable_gradient_checkpointing()
    unet.to(hardware.device).train()
    _say_size(names, lora_parameters(unet))
    num_timesteps = int(scheduler.config.num_train_timesteps)
    return Trainee(unet, tuple(names), schedule, num_timesteps, read_config(files, "scheduler"))


def require_fit(config: Any, cache: MappedCache, model: str) -> None:
    """Compare one cached sample with the UNet's configuration; both numbers stand in the error."""
    first = cache.read(cache.samples[0].id)
    pairs = (
        ("latent channels", first.latent_mean.shape[0], config.in_channels),
        ("wide text embeddings", first.text.shape[-1], config.cross_attention_dim),
    )
    for what, cached, taken in pairs:
        if cached != taken:
            raise ModelError(
                f"the UNet takes {taken} {what}, the cache has {cached}",
                where=model,
                expected="the cache made with the same model's VAE and text encoder",
                fix="train with the cache's model, or encode with this one",
                run=(Command("cache"),),
            )


def _say_size(names: Sequence[str], parameters: "dict[str, Parameter]") -> None:
    count = sum(value.numel() for value in parameters.values())
    layers = counted(len(names), "layer")
    log.info("LoRA on %s: %.2f million parameters in fp32", layers, count / 1e6)
