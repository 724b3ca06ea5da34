import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from latentmill.datasets.errors import DivergedError
from latentmill.stages.training.checkpoint import Progress
from latentmill.stages.training.hardware import Hardware
from latentmill.stages.training.step_window import SeenBatch, SeenStep, StepWindow, bad_samples


def make_window(scale: float | None = None, max_bad_steps: int = 2) -> StepWindow:
    scaler = None if scale is None else SimpleNamespace(get_scale=lambda: scale)
    accelerator: Any = SimpleNamespace(scaler=scaler, reduce=lambda tensor, **_: tensor)
    hardware = Hardware(accelerator, torch.device("cpu"), "fp32")

    def explain(step: int, ids: Sequence[str]) -> DivergedError:
        return DivergedError(f"step {step}: {', '.join(ids)}")

    return StepWindow(hardware, max_bad_steps, explain)


def seen(step: int, losses: Sequence[float], norm: float = 1.0) -> SeenStep:
    ids = tuple("abcdef"[: len(losses)])
    batch = SeenBatch(ids, torch.tensor(losses))
    return SeenStep(step, (batch,), len(losses), torch.tensor(norm))


def test_losses_add_up_sample_by_sample() -> None:
    window = make_window()
    window.add(seen(0, [1.0, 2.0, 3.0]))
    window.add(seen(1, [4.0]))
    progress = window.settle(Progress(step=2))
    assert (progress.window_loss, progress.window_samples) == (10.0, 4)
    assert window.settle(progress) == progress


@pytest.mark.parametrize(
    "bad", [seen(1, [1.0, math.nan]), seen(1, [1.0, math.inf]), seen(1, [1.0, 2.0], math.nan)]
)
def test_a_bad_step_counts_for_nothing_but_itself(bad: SeenStep) -> None:
    window = make_window()
    window.add(seen(0, [1.0]))
    window.add(bad)
    progress = window.settle(Progress())
    assert (progress.window_loss, progress.window_samples, progress.bad_steps) == (1.0, 1, 1)
    window.add(seen(2, [1.0]))
    assert window.settle(progress).bad_steps == 0


def test_bad_steps_in_a_row_end_the_run_even_across_settlements() -> None:
    window = make_window(max_bad_steps=2)
    window.add(seen(4, [math.nan, 1.0]))
    progress = window.settle(Progress())
    window.add(seen(5, [1.0, math.nan]))
    window.add(seen(6, [1.0]))
    with pytest.raises(DivergedError, match="step 6: b"):
        window.settle(progress)


def test_an_overflow_is_the_scaler_s_business_until_its_scale_is_small() -> None:
    lenient, strict = make_window(scale=1024.0), make_window(scale=0.5)
    for window in (lenient, strict):
        window.add(seen(0, [1.0], norm=math.inf))
    assert lenient.settle(Progress()).bad_steps == 0
    assert strict.settle(Progress()).bad_steps == 1


def test_the_samples_to_blame_are_those_with_a_bad_loss_else_all() -> None:
    assert bad_samples(seen(0, [1.0, math.nan, 2.0])) == ["b"]
    assert bad_samples(seen(0, [1.0, 2.0], norm=math.nan)) == ["a", "b"]
