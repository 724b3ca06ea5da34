"""Which samples each optimiser step sees: a pure function of the data, the seed and the step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latentmill.cache.index import CachedSample
from latentmill.cache.order import epoch_batches
from latentmill.stages.training.diffusion import Sight


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sights of one bucket, seen at once, as a part of optimiser step `step` (from 0).

    The step has `step_samples` samples in all its micro-batches and processes; each counts
    equally. Empty in a process for which a short last step has nothing left.
    """

    step: int
    number: int
    sights: tuple[Sight, ...]
    step_samples: int
    ends_step: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Steps of `accumulation` micro-batches; the last step of an epoch takes what is left.

    `accumulation` counts the micro-batches of all processes together. `split` above 0 divides each
    step's samples into micro-batches of that many instead, and changes nothing of the order.
    """

    samples: tuple[CachedSample, ...]
    batch_size: int
    accumulation: int
    seed: int
    split: int = 0

    @property
    def samples_per_epoch(self) -> int:
        """Sights in an epoch, repeats counted."""
        return sum(sample.repeats for sample in self.samples)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch, the same in each."""
        per_bucket = Counter[str]()
        for sample in self.samples:
            per_bucket[sample.bucket] += sample.repeats
        batches = sum(-(-count // self.batch_size) for count in per_bucket.values())
        return -(-batches // self.accumulation)

    def total_steps(self, epochs: int, steps: int) -> int:
        """The optimiser steps of a run: `steps`, or those of `epochs` where `steps` is 0."""
        return steps or epochs * self.steps_per_epoch

    def epoch_of(self, step: int) -> int:
        """The epoch, from 0, that a step belongs to."""
        return step // self.steps_per_epoch

    def micro_batches(
        self, start: int, stop: int, process: int = 0, num_processes: int = 1
    ) -> Iterator[MicroBatch]:
        """Yield one process's micro-batches of the steps from `start` up to `stop`, in order."""
        for epoch in range(self.epoch_of(start), self.epoch_of(stop - 1) + 1):
            first = epoch * self.steps_per_epoch
            groups = self._groups(epoch)
            for step in range(max(start, first), min(stop, first + self.steps_per_epoch)):
                group = groups[step - first]
                share = group[process::num_processes] or [()]
                step_samples = sum(len(sights) for sights in group)
                for number, sights in enumerate(share):
                    ends_step = number == len(share) - 1
                    yield MicroBatch(step, number, sights, step_samples, ends_step)

    def _groups(self, epoch: int) -> list[list[tuple[Sight, ...]]]:
        """Return the sights of each micro-batch of each step of an epoch."""
        batches = epoch_batches(_listed(self.samples), self.batch_size, self.seed, epoch)
        seen = Counter[str]()
        sights = [tuple(_next_sight(name, epoch, seen) for name in batch) for batch in batches]
        size = self.accumulation
        groups = [sights[at : at + size] for at in range(0, len(sights), size)]
        return [self._divided(group) for group in groups]

    def _divided(self, group: list[tuple[Sight, ...]]) -> list[tuple[Sight, ...]]:
        if self.split in (0, self.batch_size):
            return group
        bucket_of = {sample.id: sample.bucket for sample in self.samples}
        buckets: dict[str, list[Sight]] = {}
        for sight in (one for batch in group for one in batch):
            buckets.setdefault(bucket_of[sight.id], []).append(sight)
        return [
            tuple(sights[at : at + self.split])
            for sights in buckets.values()
            for at in range(0, len(sights), self.split)
        ]


def _listed(samples: Sequence[CachedSample]) -> dict[str, list[str]]:
    """List the ids of each bucket, as often as they are to be seen."""
    buckets: dict[str, list[str]] = {}
    for sample in samples:
        buckets.setdefault(sample.bucket, []).extend([sample.id] * sample.repeats)
    return buckets


def _next_sight(name: str, epoch: int, seen: Counter[str]) -> Sight:
    seen[name] += 1
    return Sight(name, epoch, seen[name] - 1)
