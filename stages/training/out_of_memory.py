"""Whatever a device says when its memory is used up becomes one explained failure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from latentmill.cache.memory import is_out_of_memory
from latentmill.datasets.errors import OutOfMemoryError
from latentmill.stages.settings import TrainSettings


@dataclass(slots=True)
class Phase:
    """What the trainer is doing, for the error; `is_adapted` when it has gone to smaller parts."""

    name: str
    is_adapted: bool = False


@contextmanager
def explained_memory(settings: TrainSettings, phase: Phase) -> Iterator[None]:
    """Turn a failed allocation on the card or the host into OutOfMemoryError with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            if phase.is_adapted:  # What it has done itself is no advice.
                done = {"batch_size": 1, "gradient_checkpointing": True}
                settings = settings.model_copy(update=done)
            raise _explained(error, settings, phase) from error
        raise


def advice(settings: TrainSettings) -> list[str]:
    """What to change, one at a time, in the order of effect by cost."""
    ways = ["close other programs that use the card"]
    if not settings.gradient_checkpointing:
        ways.append("train.gradient_checkpointing=true")
    if settings.batch_size > 1:
        smaller = settings.batch_size // 2
        groups = -(-settings.batch_size * settings.gradient_accumulation // smaller)
        ways.append(
            f"train.batch_size={smaller} with train.gradient_accumulation={groups} "
            "(as many samples a step)"
        )
    if settings.precision == "fp32":
        ways.append("train.precision=auto")
    ways.append("a lower bucket.area, for `cache` too")
    if settings.rank > 8:
        ways.append(f"train.rank={settings.rank // 2}")
    return ways


def _explained(error: BaseException, settings: TrainSettings, phase: Phase) -> OutOfMemoryError:
    ways = (f"{number}. {way}" for number, way in enumerate(advice(settings), 1))
    return OutOfMemoryError(
        f"memory ran out {phase.name}: {str(error).splitlines()[0] if str(error) else 'no room'}",
        where=f"train, {phase.name}",
        expected="room for the UNet, the LoRA and one micro-batch",
        fix="one at a time: " + "; ".join(ways),
    )
