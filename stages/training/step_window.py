"""Gathers losses on the device between two lines of metrics, and judges the steps then."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from latentmill.datasets.errors import DivergedError
from latentmill.stages.training.checkpoint import Progress
from latentmill.stages.training.hardware import Hardware

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A micro-batch's ids and their losses [n] on the device."""

    ids: tuple[str, ...]
    losses: "Tensor"


@dataclass(frozen=True, slots=True)
class SeenStep:
    """What an optimiser step saw in this process, and its gradient's norm in all."""

    step: int
    batches: tuple[SeenBatch, ...]
    samples: int
    norm: "Tensor"


Explain = Callable[[int, Sequence[str]], DivergedError]
"""Makes the error from the last bad step, counted from 1, and its samples."""


class StepWindow:
    """Holds steps until `settle`, the one place that waits for the device."""

    def __init__(self, hardware: Hardware, max_bad_steps: int, explain: Explain) -> None:
        self._hardware = hardware
        self._max_bad_steps = max_bad_steps
        self._explain = explain
        self._pending: list[SeenStep] = []

    def add(self, seen: SeenStep) -> None:
        """Note a step without looking at its numbers."""
        self._pending.append(seen)

    def settle(self, progress: Progress) -> Progress:
        """Count the noted steps in; DivergedError after too many bad ones in a row.

        A step is bad when its loss is not finite, or its gradient: the optimiser did not take it.
        With fp16 an overflowed gradient alone is the scaler's business until its scale is below 1.
        """
        pending, self._pending = self._pending, []
        scaler = self._hardware.scaler
        is_lenient = scaler is not None and scaler.get_scale() >= 1
        for seen, (loss, norm) in zip(pending, self._fetch(pending), strict=True):
            if _is_finite(loss) and (is_lenient or _is_finite(norm)):
                progress = replace(
                    progress,
                    window_loss=progress.window_loss + loss,
                    window_samples=progress.window_samples + seen.samples,
                    bad_steps=0,
                )
                continue
            progress = replace(progress, bad_steps=progress.bad_steps + 1)
            names = ", ".join(bad_samples(seen))
            log.warning("step %d not taken: loss or gradient not finite; %s", seen.step + 1, names)
            if progress.bad_steps >= self._max_bad_steps:
                raise self._explain(seen.step + 1, bad_samples(seen))
        return progress

    def _fetch(self, pending: Sequence[SeenStep]) -> list[tuple[float, float]]:
        import torch

        if not pending:
            return []
        zero = torch.zeros((), device=self._hardware.device)
        sums = [sum((at.losses.sum() for at in seen.batches), zero) for seen in pending]
        losses = self._hardware.accelerator.reduce(torch.stack(sums), reduction="sum")
        norms = torch.stack([seen.norm for seen in pending])
        rows: list[list[float]] = torch.stack([losses, norms], dim=1).tolist()
        return [(loss, norm) for loss, norm in rows]


def bad_samples(seen: SeenStep) -> list[str]:
    """The ids whose own loss is not finite; all of the step's when each is."""
    pairs = [
        (name, bool(loss.isfinite()))
        for batch in seen.batches
        for name, loss in zip(batch.ids, batch.losses, strict=True)
    ]
    return [name for name, finite in pairs if not finite] or [name for name, _ in pairs]


def _is_finite(value: float) -> bool:
    return value - value == 0
