"""Micro-batches of the plan become tensors, read in the trainer or in loader processes."""

import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from latentmill.datasets.errors import LatentmillError
from latentmill.stages.training.diffusion import Batch, Chance, Samples, draw_sight, stack
from latentmill.stages.training.step_plan import MicroBatch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Loaded:
    """A micro-batch and its tensors; `batch` is None when it is empty."""

    micro: MicroBatch
    batch: Batch | None

    def pin_memory(self) -> "Loaded":
        """Copy to memory that a GPU can fetch from while it computes; the DataLoader's hook."""
        return Loaded(self.micro, self.batch.pin_memory() if self.batch else None)


@dataclass(frozen=True, slots=True)
class Reader:
    """Draws the sights of one micro-batch: the DataLoader's data set, indexed by micro-batches."""

    samples: Samples
    weights: Mapping[str, float]
    chance: Chance

    def __getitem__(self, micro: MicroBatch) -> Loaded | LatentmillError:
        """Read one micro-batch.

        An error is returned, not raised: the DataLoader would rebuild it around a traceback.
        """
        if not micro.sights:
            return Loaded(micro, None)
        try:
            draws = [draw_sight(self.samples, sight, self.chance) for sight in micro.sights]
        except LatentmillError as error:
            return error
        ids = [sight.id for sight in micro.sights]
        return Loaded(micro, stack(ids, draws, [self.weights[name] for name in ids]))


def load(
    reader: Reader, micros: Iterable[MicroBatch], workers: int, device: "torch.device"
) -> Iterator[Loaded]:
    """Yield the micro-batches in their order, on the device; any number of workers, same tensors.

    One loader serves all epochs, so its processes start once.
    """
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        reader,  # type: ignore[arg-type]  # indexed by micro-batches, not by numbers
        batch_size=None,
        sampler=micros,
        num_workers=workers,
        worker_init_fn=_leave_interrupts_to_the_trainer,
        pin_memory=device.type == "cuda",
    )
    for loaded in loader:
        if isinstance(loaded, LatentmillError):
            raise loaded
        yield Loaded(loaded.micro, loaded.batch.to(device) if loaded.batch else None)


def _leave_interrupts_to_the_trainer(worker: int) -> None:  # noqa: ARG001
    # Ctrl-C reaches the whole process group; the trainer finishes its step and needs its batches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
