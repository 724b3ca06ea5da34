"""What a run says of its steps: lines of metrics.jsonl, TensorBoard, the log."""

import json
import logging
import os
import time
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, TextIO

from latentmill.stages.training.checkpoint import Progress
from latentmill.stages.training.evaluation import HeldOutLoss
from latentmill.stages.training.run_folder import METRICS_FILE, cut_metrics

log = logging.getLogger(__name__)

SCALARS: Final = (
    *("loss", "held_out_loss", "lr", "grad_norm"),
    *("images_per_second", "memory_bytes"),
)
"""What TensorBoard shows."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One line: step and epoch from 1, the loss over the steps since the line before.

    `held_out_loss` is there where it was measured, `held_out_bands` are its parts by timestep.
    `seconds` is the training time of the run so far, earlier parts of a resumed run included;
    `memory_bytes` the peak on the card, or the process's memory where there is none.
    """

    step: int
    epoch: int
    loss: float | None
    lr: float
    grad_norm: float | None
    images_per_second: float
    seconds: float
    memory_bytes: int
    held_out_loss: float | None = None
    held_out_bands: tuple[float | None, ...] = ()


def with_held_out(line: StepMetrics, held_out: HeldOutLoss | None) -> StepMetrics:
    """Add what was measured on the held-out samples after this step, if anything was."""
    if held_out is None:
        return line
    finite = [band if isfinite(band) else None for band in (held_out.mean, *held_out.bands)]
    return replace(line, held_out_loss=finite[0], held_out_bands=tuple(finite[1:]))


class MetricsLog:
    """Appends to a run's metrics; with `step` above 0, after cutting off what came later."""

    def __init__(self, run: Path, step: int) -> None:
        self._file = run / METRICS_FILE
        cut_metrics(self._file, step)
        self._stream: TextIO = self._file.open("a", encoding="utf-8")
        self._board = _open_board(run / "tensorboard", step)

    def write(self, metrics: StepMetrics, total: int) -> None:
        """Write one line; a loss that is no number is null, so that the line stays JSON."""
        self._stream.write(json.dumps(_values(metrics), sort_keys=True, allow_nan=False) + "\n")
        self._stream.flush()
        for name in SCALARS:
            value = getattr(metrics, name)
            if self._board is not None and value is not None:
                self._board.add_scalar(name, value, metrics.step)
        if metrics.held_out_loss is not None:
            log.info("step %d/%d  held-out loss %.5f", metrics.step, total, metrics.held_out_loss)
        log.info(
            "step %d/%d  epoch %d  loss %s  lr %.3g  grad norm %s  %.2f images/s  %.0f MiB",
            *(metrics.step, total, metrics.epoch, _text(metrics.loss), metrics.lr),
            *(_text(metrics.grad_norm), metrics.images_per_second, metrics.memory_bytes / 2**20),
        )

    def sync(self) -> None:
        """Put the lines on the disk, before a state that counts on them."""
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the file and the board."""
        self._stream.close()
        if self._board is not None:
            self._board.close()


class NoMetrics:
    """Keeps nothing: of several processes the first one alone keeps the run's metrics."""

    def write(self, metrics: StepMetrics, total: int) -> None:
        """Leave it to the first process."""

    def sync(self) -> None:
        """Nothing to put on the disk."""

    def close(self) -> None:
        """Nothing is open."""


class Clock:
    """Training time over all parts of a run, and the pace since the last line."""

    def __init__(self, progress: Progress) -> None:
        self._begun = self._lapped = time.perf_counter()
        self._seconds_before = progress.seconds
        self._samples = progress.samples_seen

    def at(self, progress: Progress) -> Progress:
        """The same progress, at this time."""
        seconds = self._seconds_before + time.perf_counter() - self._begun
        return replace(progress, seconds=seconds)

    def lap(self, samples_seen: int) -> float:
        """Samples per second since the last lap."""
        now = time.perf_counter()
        pace = (samples_seen - self._samples) / max(now - self._lapped, 1e-9)
        self._lapped, self._samples = now, samples_seen
        return pace


def _values(metrics: StepMetrics) -> dict[str, Any]:
    """The object of a line; without a measurement it says nothing of one."""
    values = asdict(metrics)
    if not metrics.held_out_bands:
        del values["held_out_loss"], values["held_out_bands"]
    return values


def _open_board(folder: Path, step: int) -> Any:
    """Return TensorBoard's writer, or None without the package: metrics.jsonl has it all."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("tensorboard is not installed: metrics are in %s only", METRICS_FILE)
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


def _text(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"
