"""All that a training run needs, and what is due after each of its steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import DivergedError
from latentmill.stages.lora.header import Provenance
from latentmill.stages.settings import TrainSettings
from latentmill.stages.training.diffusion import Chance
from latentmill.stages.training.hardware import Hardware
from latentmill.stages.training.holdout import Parting
from latentmill.stages.training.loader import Loaded, Reader, load
from latentmill.stages.training.optimisation import LearningRate
from latentmill.stages.training.preview import PreviewRecipe
from latentmill.stages.training.run_folder import LORA_FILE
from latentmill.stages.training.step_plan import StepPlan
from latentmill.stages.training.trainee import Trainee


@dataclass(frozen=True, slots=True)
class Due:
    """What is done after a step, in this order."""

    measured: bool
    logged: bool
    saved: bool
    previewed: bool


@dataclass(frozen=True, slots=True)
class Job:
    """All that a run needs: `steps` up to `stop`, into the folder `run`.

    `fixed` is what a later resume must find unchanged, `said` what it may change.
    """

    settings: TrainSettings
    hardware: Hardware
    trainee: Trainee
    samples: MappedCache
    parting: Parting
    steps: StepPlan
    stop: int
    run: Path
    origin: Provenance
    fixed: Mapping[str, Any]
    said: Mapping[str, Any]
    preview: PreviewRecipe
    name_pictures: Callable[[Sequence[str]], list[str]]

    def loaded(self, start: int) -> Iterator[Loaded]:
        """Yield the micro-batches of this process from step `start` on, drawn and on the device."""
        settings, hardware = self.settings, self.hardware
        chance = Chance(
            seed=settings.seed,
            num_timesteps=self.trainee.num_timesteps,
            caption_dropout=settings.caption_dropout,
            noise_offset=settings.noise_offset,
        )
        weights = {sample.id: sample.weight for sample in self.samples.samples}
        micros = self.steps.micro_batches(
            start, self.stop, hardware.process, hardware.num_processes
        )
        reader = Reader(self.samples, weights, chance)
        return load(reader, micros, settings.workers, hardware.device)

    def learning_rate(self) -> LearningRate:
        """The rate of each step of the whole run."""
        settings = self.settings
        return LearningRate(settings.learning_rate, settings.scheduler, self.stop, settings.warmup)

    def due(self, step: int) -> Due:
        """Say what is to be done after a step, counted from 1; after the last one all of it.

        A measurement has its line of metrics.
        """
        settings, is_last = self.settings, step == self.stop
        every = settings.measure_every or settings.save_every
        measured = bool(self.parting.held_out) and (step % every == 0 or is_last)
        previews = settings.preview_every
        return Due(
            measured=measured,
            logged=measured or step % settings.log_every == 0 or is_last,
            saved=step % settings.save_every == 0 or is_last,
            previewed=previews > 0 and (step % previews == 0 or is_last),
        )

    def diverged(self, step: int, ids: Sequence[str]) -> DivergedError:
        """Explain why training cannot go on after `step`."""
        names = self.name_pictures(ids)
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lora = self.run / LORA_FILE
        good = f"{lora} is the last good one" if lora.is_file() else "no LoRA was saved yet"
        return DivergedError(
            f"{self.settings.max_bad_steps} optimiser steps in a row had a loss or gradient that "
            f"is no number; none of them was taken, and {good}",
            where=f"step {step}: {', '.join(names[:8])}{more}",
            expected="finite losses and gradients",
            fix="check in this order: a lower train.learning_rate "
            f"({self.settings.learning_rate / 3:.2g}); train.precision=fp32 where it is "
            f"{self.hardware.precision}; these pictures and their captions, then `cache` again",
        )
