"""Work on a batch, in halves where memory runs out."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from latentmill.cache.memory import is_out_of_memory
from latentmill.datasets.errors import OutOfMemoryError
from latentmill.datasets.next_steps import Command
from latentmill.datasets.words import counted

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def in_halves(
    work: Callable[[Sequence[ItemT]], Sequence[ResultT]],
    items: Sequence[ItemT],
    noun: str,
    device: "torch.device",
    does_not_fit: Callable[[str], OutOfMemoryError],
) -> list[ResultT]:
    """One result for each item, in order; raises `does_not_fit` when one item is too much."""
    try:
        return list(work(items))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = first_line(error)
    _free(device)
    if len(items) == 1:
        raise does_not_fit(reason)
    half = (len(items) + 1) // 2
    _log.warning("out of memory with %s at once: trying %d", counted(len(items), noun), half)
    return [
        result
        for part in (items[:half], items[half:])
        for result in in_halves(work, part, noun, device, does_not_fit)
    ]


def too_large(
    what: str, reason: str, device: "torch.device", settings: Sequence[str]
) -> OutOfMemoryError:
    """The error of a model that does not fit, with the settings to try in this order."""
    return OutOfMemoryError(
        f"{what} does not fit, even with one picture at once: {reason}",
        where=f"caption.device = {device}",
        fix="free the GPU's memory, then try one of these, in this order",
        run=tuple(Command("caption", settings=(setting,)) for setting in settings),
    )


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _free(device: "torch.device") -> None:
    import gc

    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
