"""Turns a `device` setting into a torch device that is there."""

from typing import TYPE_CHECKING

from latentmill.datasets.errors import UsageError

if TYPE_CHECKING:
    import torch


def choose_device(setting: str, name: str) -> "torch.device":
    """Return the device; `auto` is the GPU if there is one. `name` is the setting's, for errors.

    Raises UsageError for a device that is unknown or missing.
    """
    import torch

    if setting == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(setting)
    except RuntimeError:
        raise _missing(setting, name, "there is no such kind of device") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise _missing(setting, name, f"this machine shows {found} CUDA devices to torch")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise _missing(setting, name, "this torch has no Metal support")
    return device


def _missing(setting: str, name: str, reason: str) -> UsageError:
    return UsageError(
        f"{name} = {setting!r} cannot be used: {reason}",
        where=name,
        expected="auto, cpu, cuda, cuda:1 or mps",
        fix=f"leave {name} at auto, or set it to cpu",
    )
