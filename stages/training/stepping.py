"""Micro-batches -> optimiser steps, each taken whole or not at all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from latentmill.cache.memory import is_out_of_memory
from latentmill.stages.training.adaptation import NoRoomError, adapted, release_memory
from latentmill.stages.training.diffusion import seed_of
from latentmill.stages.training.interruption import StopRequest
from latentmill.stages.training.job import Job
from latentmill.stages.training.loader import Loaded
from latentmill.stages.training.optimisation import LearningRate, Optimiser, flat_sum
from latentmill.stages.training.out_of_memory import Phase
from latentmill.stages.training.step_window import SeenBatch, SeenStep

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Walk:
    """What takes the steps of a job."""

    job: Job
    optimiser: Optimiser
    rate: LearningRate


def taken_steps(walk: Walk, start: int, stop: StopRequest, phase: Phase) -> Iterator[SeenStep]:
    """Yield each step as it was taken; where memory runs out, the same step in smaller parts."""
    step = start
    while True:
        try:
            for seen in _steps_from(walk, step, stop):
                yield seen
                step = seen.step + 1
            return
        except NoRoomError as error:
            smaller = adapted(walk.job, step)
            if smaller is None:
                raise error.cause from None
        walk, phase.is_adapted = replace(walk, job=smaller), True
        walk.optimiser.clear()
        release_memory()


def _steps_from(walk: Walk, start: int, stop: StopRequest) -> Iterator[SeenStep]:
    job = walk.job
    batches: list[SeenBatch] = []
    for loaded in job.loaded(start):
        micro = loaded.micro
        if _must_stop(job, stop, begins_step=micro.number == 0):
            raise KeyboardInterrupt
        if loaded.batch is not None:
            batches.append(_fitting(job, loaded))
        if micro.ends_step:
            norm = _take_step(job, walk.optimiser, walk.rate.at(micro.step))
            yield SeenStep(micro.step, tuple(batches), micro.step_samples, norm)
            batches.clear()


def _must_stop(job: Job, stop: StopRequest, *, begins_step: bool) -> bool:
    """Several processes stop before the same step, whichever of them was asked to."""
    if job.hardware.num_processes == 1:
        return stop.requested
    return begins_step and job.hardware.is_true_for_any(stop.requested)


def _fitting(job: Job, loaded: Loaded) -> SeenBatch:
    """Do a micro-batch, or tell that it does not fit in memory."""
    try:
        return _backward(job, loaded)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise NoRoomError(error.with_traceback(None)) from None
        raise


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
