"""A run that has too little memory goes on in smaller parts with the same result."""

import logging
from typing import Any

import pytest
import torch
from tests.test_train import Work, lean_model, run_stage, tensors_of, work

from latentmill.datasets.errors import OutOfMemoryError
from latentmill.stages.training.trainee import Trainee

pytestmark = pytest.mark.slow

__all__ = ["lean_model", "work"]


def limit_memory(monkeypatch: pytest.MonkeyPatch, samples: int, checkpointed: bool = False) -> None:
    """Let the UNet fail as a full card does for more samples at once."""
    losses = Trainee.losses

    def limited(self: Trainee, batch: Any, hardware: Any) -> Any:
        lean = self.unet.is_gradient_checkpointing or not checkpointed
        if len(batch.ids) > samples or not lean:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return losses(self, batch, hardware)

    monkeypatch.setattr(Trainee, "losses", limited)


@pytest.mark.parametrize("samples", [2, 1])
def test_the_result_is_that_of_a_run_with_room(
    work: Work, monkeypatch: pytest.MonkeyPatch, samples: int, caplog: pytest.LogCaptureFixture
) -> None:
    with_room = run_stage(work.stage(steps=4))
    limit_memory(monkeypatch, samples)
    with caplog.at_level(logging.WARNING):
        adapted = run_stage(work.stage(steps=4))
    assert "memory ran out in step 1: 2 samples at once instead of 4" in caplog.text
    assert adapted.progress.samples_seen == with_room.progress.samples_seen
    one, two = tensors_of(with_room.run), tensors_of(adapted.run)
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=2e-4, rtol=2e-3)


def test_a_step_that_failed_halfway_is_done_again_whole(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third micro-batch of step 2 fails once: nothing of that step may count twice."""
    plain = run_stage(work.stage(steps=3))
    losses, calls = Trainee.losses, []

    def failing_once(self: Trainee, batch: Any, hardware: Any) -> Any:
        calls.append(len(batch.ids))
        if len(calls) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(self, batch, hardware)

    monkeypatch.setattr(Trainee, "losses", failing_once)
    adapted = run_stage(work.stage(steps=3))
    assert [line["step"] for line in work.metrics(2)] == [1, 2, 3]
    one, two = tensors_of(plain.run), tensors_of(adapted.run)
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=2e-4, rtol=2e-3)


def test_checkpointing_is_the_last_thing_to_try(
    work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit_memory(monkeypatch, 1, checkpointed=True)
    with caplog.at_level(logging.WARNING):
        run_stage(work.stage(steps=1))
    said = [record.message for record in caplog.records if "memory ran out" in record.message]
    assert ["checkpointing" in line for line in said] == [False, False, True]


def test_when_nothing_is_left_to_save_the_advice_is_about_other_things(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_memory(monkeypatch, 0)
    with pytest.raises(OutOfMemoryError, match="Tried to allocate") as raised:
        run_stage(work.stage(steps=1))
    assert "batch_size" not in raised.value.fix
    assert "checkpointing" not in raised.value.fix
    assert "a lower bucket.area" in raised.value.fix
