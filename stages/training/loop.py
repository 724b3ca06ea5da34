"""The training loop: micro-batches in, a LoRA, its states and its metrics out."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from latentmill.cache.disk import FULL
from latentmill.cache.files import write_bytes
from latentmill.datasets.errors import DiskFullError, Stopped
from latentmill.datasets.next_steps import Command
from latentmill.datasets.words import counted
from latentmill.stages.lora.header import lora_header
from latentmill.stages.lora.kohya_file import kohya_bytes
from latentmill.stages.training.checkpoint import (
    Progress,
    State,
    StepOrder,
    list_states,
    save_state,
)
from latentmill.stages.training.evaluation import HeldOutLoss, held_out_loss
from latentmill.stages.training.interruption import stop_on_signals
from latentmill.stages.training.job import Job
from latentmill.stages.training.metrics import (
    Clock,
    MetricsLog,
    NoMetrics,
    StepMetrics,
    with_held_out,
)
from latentmill.stages.training.optimisation import LearningRate, Optimiser
from latentmill.stages.training.out_of_memory import Phase
from latentmill.stages.training.preview import draw_previews, save_previews
from latentmill.stages.training.run_folder import BEST_FILE, LORA_FILE
from latentmill.stages.training.step_window import StepWindow
from latentmill.stages.training.stepping import Walk, taken_steps

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Books:
    """What a run keeps of itself while it trains."""

    optimiser: Optimiser
    rate: LearningRate
    window: StepWindow
    metrics: MetricsLog | NoMetrics
    clock: Clock


def train(job: Job, state: State | None, phase: Phase, tick: Callable[[int], None]) -> Progress:
    """Train from `state`, or from the start, to the end of the job or an early stop.

    Ctrl-C and SIGTERM save the state after the last whole step, then raise KeyboardInterrupt.
    """
    settings = job.settings
    optimiser = Optimiser(job.trainee.parameters(), settings.weight_decay)
    progress = _restore(job, optimiser, state)
    books = _Books(
        optimiser,
        job.learning_rate(),
        StepWindow(job.hardware, settings.max_bad_steps, job.diverged),
        MetricsLog(job.run, progress.step) if job.hardware.is_leader else NoMetrics(),
        Clock(progress),
    )
    walk = Walk(job, optimiser, books.rate)
    _say_plan(job, books.rate)
    phase.name = f"in the first step after step {progress.step}"
    with stop_on_signals() as stop:
        try:
            for seen in taken_steps(walk, progress.step, stop, phase):
                books.window.add(seen)
                samples_seen = progress.samples_seen + seen.samples
                progress = replace(progress, step=seen.step + 1, samples_seen=samples_seen)
                phase.name = f"after {counted(progress.step, 'step')}"
                progress = _close_step(job, books, progress, seen.norm)
                tick(1)
                if progress.best.is_exhausted(settings.patience):
                    _say_early_stop(progress)
                    break
        except KeyboardInterrupt:
            if not stop.forced:
                progress = books.clock.at(books.window.settle(progress))
                books.metrics.sync()
                save(job, optimiser, progress)
                log.info("stopped after step %d, with a saved state", progress.step)
            if list_states(job.run):
                raise Stopped(Command("train", ("--resume",))) from None
            raise
        finally:
            books.metrics.close()
    return progress


def _close_step(job: Job, books: _Books, progress: Progress, norm: "Tensor") -> Progress:
    """Do what is due after a step: measure, write a line, save, draw previews."""
    due = job.due(progress.step)
    if due.logged or due.saved:
        progress = books.clock.at(books.window.settle(progress))
    held_out = _measured(job) if due.measured else None
    if held_out is not None:
        progress = _remember_best(job, progress, held_out)
    if due.logged:
        line = _line(job, progress, books, norm)
        books.metrics.write(with_held_out(line, held_out), job.stop)
        progress = replace(progress, window_loss=0.0, window_samples=0)
    if due.saved or progress.best.is_exhausted(job.settings.patience):
        books.metrics.sync()
        save(job, books.optimiser, progress)
    if due.previewed:
        _preview(job, progress.step)
    return progress


def _measured(job: Job) -> HeldOutLoss:
    return held_out_loss(job.trainee, job.samples, job.parting.held_out, job.hardware)


def _remember_best(job: Job, progress: Progress, held_out: HeldOutLoss) -> Progress:
    """Count a measurement in; the LoRA of the best one is a file of its own."""
    best = progress.best.after(held_out.mean, progress.step, job.settings.min_gain)
    if best.step == progress.step and job.hardware.is_leader:
        header = lora_header(job.settings, job.origin, progress.step)
        with _explained_disk(job, progress):
            write_bytes(job.run / BEST_FILE, kohya_bytes(job.trainee.take(), header))
    return replace(progress, best=best)


def _preview(job: Job, step: int) -> None:
    """Draw and keep previews; the first process alone, the others wait at the next step."""
    if not job.hardware.is_leader:
        return
    latents = draw_previews(job.trainee, job.samples, job.preview, job.hardware)
    strip = save_previews(job.run, step, latents, job.samples.latent_to_rgb)
    log.info("previews of step %d: %s", step, strip)


def _say_early_stop(progress: Progress) -> None:
    log.info(
        "stopped early after step %d: no gain in %s on the held-out samples since step %d",
        progress.step,
        counted(progress.best.without_gain, "measurement"),
        progress.best.step,
    )


def save(job: Job, optimiser: Optimiser, progress: Progress) -> None:
    """Write the state and, as the run's LoRA, the weights as they are now."""
    if not job.hardware.is_leader:
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
    with _explained_disk(job, progress):
        # The LoRA first: a run whose last state is there must have its last LoRA.
        write_bytes(job.run / LORA_FILE, kohya_bytes(state.lora, header))
        save_state(job.run, state, header, job.settings.keep_states)


@contextmanager
def _explained_disk(job: Job, progress: Progress) -> Iterator[None]:
    try:
        yield
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


def _line(job: Job, progress: Progress, books: _Books, norm: "Tensor") -> StepMetrics:
    grad_norm = float(norm)
    samples = progress.window_samples
    return StepMetrics(
        step=progress.step,
        epoch=job.steps.epoch_of(progress.step - 1) + 1,
        loss=progress.window_loss / samples if samples else None,
        lr=books.rate.at(progress.step - 1),
        grad_norm=grad_norm if grad_norm - grad_norm == 0 else None,
        images_per_second=round(books.clock.lap(progress.samples_seen), 4),
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
