"""The training loop: micro-batches in, a LoRA, its states and its metrics out."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentmill.cache.disk import FULL
from latentmill.cache.files import write_bytes
from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import DiskFullError, DivergedError, Stopped
from latentmill.datasets.next_steps import Command
from latentmill.datasets.words import counted
from latentmill.stages.lora.header import Provenance, lora_header
from latentmill.stages.lora.kohya_file import kohya_bytes
from latentmill.stages.settings import TrainSettings
from latentmill.stages.training.checkpoint import (
    Progress,
    State,
    StepOrder,
    list_states,
    save_state,
)
from latentmill.stages.training.diffusion import Chance, seed_of
from latentmill.stages.training.hardware import Hardware
from latentmill.stages.training.interruption import stop_on_signals
from latentmill.stages.training.loader import Loaded, Reader, load
from latentmill.stages.training.metrics import Clock, MetricsLog, StepMetrics
from latentmill.stages.training.optimisation import LearningRate, Optimiser, flat_sum
from latentmill.stages.training.out_of_memory import Phase
from latentmill.stages.training.run_folder import LORA_FILE
from latentmill.stages.training.step_plan import StepPlan
from latentmill.stages.training.step_window import SeenBatch, SeenStep, StepWindow
from latentmill.stages.training.trainee import Trainee

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """All that a run needs: `steps` up to `stop`, into the folder `run`.

    `fixed` is what a later resume must find unchanged, `said` what it may change.
    """

    settings: TrainSettings
    hardware: Hardware
    trainee: Trainee
    samples: MappedCache
    steps: StepPlan
    stop: int
    run: Path
    origin: Provenance
    fixed: Mapping[str, Any]
    said: Mapping[str, Any]
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

    def diverged(self, step: int, ids: Sequence[str]) -> DivergedError:
        """Explain why training cannot go on after `step`."""
        return _diverged(self, step, ids)


def train(job: Job, state: State | None, phase: Phase, tick: Callable[[int], None]) -> Progress:
    """Train from `state`, or from the start, to the end of the job.

    Ctrl-C and SIGTERM save the state after the last whole step, then raise KeyboardInterrupt.
    """
    settings, hardware = job.settings, job.hardware
    optimiser = Optimiser(job.trainee.parameters(), settings.weight_decay)
    progress = _restore(job, optimiser, state)
    rate = job.learning_rate()
    window = StepWindow(hardware, settings.max_bad_steps, job.diverged)
    metrics = MetricsLog(job.run, progress.step)
    _say_plan(job, rate)
    phase.name = f"in the first step after step {progress.step}"
    clock = Clock(progress)
    batches: list[SeenBatch] = []
    with stop_on_signals() as stop:
        try:
            for loaded in job.loaded(progress.step):
                micro = loaded.micro
                if stop.requested:
                    raise KeyboardInterrupt
                if loaded.batch is not None:
                    batches.append(_backward(job, loaded))
                if not micro.ends_step:
                    continue
                norm = _take_step(job, optimiser, rate.at(micro.step))
                window.add(SeenStep(micro.step, tuple(batches), micro.step_samples, norm))
                batches.clear()
                step = micro.step + 1
                progress = replace(
                    progress, step=step, samples_seen=progress.samples_seen + micro.step_samples
                )
                phase.name = f"after {counted(step, 'step')}"
                is_last = step == job.stop
                is_logged = step % settings.log_every == 0 or is_last
                is_saved = step % settings.save_every == 0 or is_last
                if is_logged or is_saved:
                    progress = clock.at(window.settle(progress))
                if is_logged:
                    metrics.write(_line(job, progress, rate, norm, clock), job.stop)
                    progress = replace(progress, window_loss=0.0, window_samples=0)
                if is_saved:
                    metrics.sync()
                    save(job, optimiser, progress)
                tick(1)
        except KeyboardInterrupt:
            if not stop.forced:
                progress = clock.at(window.settle(progress))
                metrics.sync()
                save(job, optimiser, progress)
                log.info("stopped after step %d, with a saved state", progress.step)
            if list_states(job.run):
                raise Stopped(Command("train", ("--resume",))) from None
            raise
        finally:
            metrics.close()
    return progress


def save(job: Job, optimiser: Optimiser, progress: Progress) -> None:
    """Write the state and, as the run's LoRA, the weights as they are now."""
    if not job.hardware.accelerator.is_main_process:
        return
    scaler = job.hardware.scaler
    state = State(
        progress=progress,
        lora=job.trainee.take(),
        optimizer=optimiser.state(),
        scaler=scaler.state_dict() if scaler is not None else {},
        fixed=job.fixed,
        settings=job.said,
        order=StepOrder(job.steps.batch_size, job.steps.accumulation),
    )
    header = lora_header(job.settings, job.origin, progress.step)
    try:
        # The LoRA first: a run whose last state is there must have its last LoRA.
        write_bytes(job.run / LORA_FILE, kohya_bytes(state.lora, header))
        save_state(job.run, state, header, job.settings.keep_states)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFullError(
            f"the disk is full: the state after step {progress.step} could not be saved",
            where=str(job.run),
            fix="free some room, then go on from the state before",
            run=(Command("train", ("--resume",)),),
        ) from error


def _restore(job: Job, optimiser: Optimiser, state: State | None) -> Progress:
    if state is None:
        return Progress()
    job.trainee.put(state.lora)
    optimiser.load_state(state.optimizer)
    if job.hardware.scaler is not None and state.scaler:
        job.hardware.scaler.load_state_dict(dict(state.scaler))
    return state.progress


def _backward(job: Job, loaded: Loaded) -> SeenBatch:
    """Add a micro-batch's gradients: each sample of the step counts equally."""
    import torch

    batch, micro = loaded.batch, loaded.micro
    assert batch is not None
    # Whatever the model itself draws (a LoRA's dropout) depends on the step alone.
    torch.manual_seed(seed_of("latentmill model", job.settings.seed, micro.step, micro.number))
    losses = job.trainee.losses(batch, job.hardware)
    loss = losses.sum() / micro.step_samples
    scaler = job.hardware.scaler
    (scaler.scale(loss) if scaler is not None else loss).backward()
    return SeenBatch(batch.ids, losses.detach())


def _take_step(job: Job, optimiser: Optimiser, rate: float) -> "Tensor":
    """Sum the gradients over processes, step, and return their norm before clipping."""
    hardware = job.hardware
    if hardware.num_processes > 1:
        flat_sum(optimiser.all_gradients(), hardware.accelerator.reduce)
    if hardware.scaler is not None:
        optimiser.unscale(hardware.scaler)
    norm = optimiser.gradient_norm()
    optimiser.step(rate, norm, job.settings.max_grad_norm, hardware.scaler)
    return norm


def _line(
    job: Job, progress: Progress, rate: LearningRate, norm: "Tensor", clock: Clock
) -> StepMetrics:
    grad_norm = float(norm)
    samples = progress.window_samples
    return StepMetrics(
        step=progress.step,
        epoch=job.steps.epoch_of(progress.step - 1) + 1,
        loss=progress.window_loss / samples if samples else None,
        lr=rate.at(progress.step - 1),
        grad_norm=grad_norm if grad_norm - grad_norm == 0 else None,
        images_per_second=round(clock.lap(progress.samples_seen), 4),
        seconds=round(progress.seconds, 3),
        memory_bytes=job.hardware.memory_bytes(),
    )


def _say_plan(job: Job, rate: LearningRate) -> None:
    steps = job.steps
    seen = steps.samples_per_epoch
    repeated = f" ({seen:,} with repeats)" if seen != len(steps.samples) else ""
    log.info(
        "%s%s, %s an epoch; %s in all, %d of them warm-up to a learning rate of %g; %s on %s",
        *(counted(len(steps.samples), "sample"), repeated),
        counted(steps.steps_per_epoch, "optimiser step"),
        *(counted(job.stop, "step"), rate.warmup_steps, rate.peak),
        *(job.hardware.precision, job.hardware.device),
    )


def _diverged(job: Job, step: int, ids: Sequence[str]) -> DivergedError:
    names = job.name_pictures(ids)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    is_there = (job.run / LORA_FILE).is_file()
    good = f"{job.run / LORA_FILE} is the last good one" if is_there else "no LoRA was saved yet"
    return DivergedError(
        f"{job.settings.max_bad_steps} optimiser steps in a row had a loss or gradient that is "
        f"no number; none of them was taken, and {good}",
        where=f"step {step}: {', '.join(names[:8])}{more}",
        expected="finite losses and gradients",
        fix="check in this order: a lower train.learning_rate "
        f"({job.settings.learning_rate / 3:.2g}); train.precision=fp32 where it is "
        f"{job.hardware.precision}; these pictures and their captions, then `cache` again",
    )
