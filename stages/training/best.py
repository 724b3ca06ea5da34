"""Remembers the best held-out loss of a run, and tells when it is no use to go on."""

from dataclasses import dataclass, replace
from math import isfinite


@dataclass(frozen=True, slots=True)
class Best:
    """The lowest held-out loss so far, its step, and the measurements since then without a gain."""

    loss: float | None = None
    step: int = 0
    without_gain: int = 0

    def after(self, loss: float, step: int, min_gain: float) -> "Best":
        """Count a measurement in; it is a gain when it is lower by the share `min_gain`."""
        if isfinite(loss) and (self.loss is None or loss < self.loss * (1 - min_gain)):
            return Best(loss, step)
        return replace(self, without_gain=self.without_gain + 1)

    def is_exhausted(self, patience: int) -> bool:
        """Whether `patience` measurements in a row brought no gain; 0 never gives up."""
        return 0 < patience <= self.without_gain
