"""Where a run computes and in which precision, by accelerate: one process or several."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from latentmill.datasets.errors import UsageError
from latentmill.stages.device import choose_device
from latentmill.stages.settings import TrainSettings

if TYPE_CHECKING:
    import torch

Precision = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The device, the dtype of frozen weights, and accelerate's view of the processes.

    `scaler` is there for fp16 only.
    """

    accelerator: Any
    device: "torch.device"
    precision: Precision

    @property
    def dtype(self) -> "torch.dtype":
        """The dtype of the frozen weights."""
        import torch

        return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[
            self.precision
        ]

    @property
    def scaler(self) -> Any:
        """The gradient scaler of fp16, else None."""
        return self.accelerator.scaler

    @property
    def num_processes(self) -> int:
        """Processes that train together."""
        return int(self.accelerator.num_processes)

    @property
    def process(self) -> int:
        """The number of this one among them."""
        return int(self.accelerator.process_index)

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run's files and speaks."""
        return self.process == 0

    def shared(self, make: Callable[[], str]) -> str:
        """Let the leader make something and tell all others what came of it."""
        from accelerate.utils import broadcast_object_list

        if self.num_processes == 1:
            return make()
        told = [make() if self.is_leader else ""]
        broadcast_object_list(told)
        return told[0]

    def is_true_for_any(self, value: bool) -> bool:
        """Whether it holds in any process; all of them must ask at the same place."""
        import torch

        if self.num_processes == 1:
            return value
        flag = torch.tensor(float(value), device=self.device)
        return bool(self.accelerator.reduce(flag, reduction="sum") > 0)

    def memory_bytes(self) -> int:
        """Peak memory on the card; the process's memory where there is none."""
        import psutil
        import torch

        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        return int(psutil.Process().memory_info().rss)


@contextmanager
def open_hardware(settings: TrainSettings) -> Iterator[Hardware]:
    """Set accelerate up for one run; raises UsageError for a device or precision that is not there.

    accelerate keeps one state per process for good: it is cleared after a run on its own.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    device = choose_device(settings.device, "train.device")
    precision = choose_precision(settings.precision, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.reset_peak_memory_stats(device)
    accelerator = Accelerator(
        cpu=device.type == "cpu", mixed_precision="no" if precision == "fp32" else precision
    )
    try:
        several = accelerator.num_processes > 1
        yield Hardware(accelerator, accelerator.device if several else device, precision)
    finally:
        if accelerator.num_processes == 1:
            AcceleratorState._reset_state(reset_partial_state=True)
        elif torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def choose_precision(setting: str, device: "torch.device") -> Precision:
    """Decide `auto`, and refuse what the device cannot do."""
    import torch

    if setting == "auto":
        if device.type != "cuda":
            return "fp32"
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if setting == "fp16" and device.type != "cuda":
        raise UsageError(
            f"train.precision = fp16 needs a CUDA card; the device is {device.type}",
            expected="auto, fp32 or bf16",
            fix="leave train.precision at auto",
        )
    return "bf16" if setting == "bf16" else "fp16" if setting == "fp16" else "fp32"
