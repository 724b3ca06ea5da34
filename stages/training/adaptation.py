"""Makes a run need less memory without changing what it computes."""

import gc
import logging
from dataclasses import replace

from latentmill.datasets.words import counted
from latentmill.stages.training.job import Job

log = logging.getLogger(__name__)


class NoRoomError(Exception):
    """A micro-batch did not fit in memory; the step that it belongs to was not taken."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


def adapted(job: Job, step: int) -> Job | None:
    """Return the job in smaller parts, or None when there is nothing left to save.

    First the micro-batch is halved: a step has the same samples in more parts, each sample counts
    as before. Then gradient checkpointing is turned on. One process only: another one would wait
    for this one's part of a step that it has already done.
    """
    if job.settings.on_oom != "adapt" or job.hardware.num_processes > 1:
        return None
    size = job.steps.split or job.steps.batch_size
    if size > 1:
        _say(step, f"{counted(size // 2, 'sample')} at once instead of {size}", "train.batch_size")
        return replace(job, steps=replace(job.steps, split=size // 2))
    if not job.trainee.unet.is_gradient_checkpointing:
        job.trainee.unet.enable_gradient_checkpointing()
        _say(step, "gradient checkpointing is on from here", "train.gradient_checkpointing")
        return job
    return None


def release_memory() -> None:
    """Give back what the failed micro-batch left behind."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say(step: int, what: str, setting: str) -> None:
    log.warning(
        "memory ran out in step %d: %s; the result stays the same. Set %s so from the start to "
        "save the attempt",
        *(step + 1, what, setting),
    )
