"""The one training loop of the small models: a loss function is called until the plan is done."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

log = logging.getLogger(__name__)

_WARMUP_STEPS: Final = 50
_LOG_EVERY: Final = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast a model is trained."""

    name: str
    num_steps: int
    batch_size: int
    learning_rate: float


def fit(parameters: Iterable[Parameter], loss_of_batch: Callable[[], Tensor], plan: Plan) -> float:
    """Lower the loss by AdamW with warm-up and cosine; return the mean of the last 50 losses.

    No weight decay: it would shrink the embeddings of the words that never occur.
    """
    weights = list(parameters)
    optimizer = torch.optim.AdamW(weights, lr=plan.learning_rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, plan))
    losses: list[float] = []
    for step in range(1, plan.num_steps + 1):
        loss = loss_of_batch()
        # torch leaves backward() without types.
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses = [*losses[1 - _LOG_EVERY :], loss.item()]
        if step % _LOG_EVERY == 0:
            log.info("%s step %d loss %.4f", plan.name, step, _mean(losses))
    return _mean(losses)


def _rate(step: int, plan: Plan) -> float:
    warmup = min(1.0, (step + 1) / _WARMUP_STEPS)
    return warmup * 0.5 * (1 + math.cos(math.pi * step / plan.num_steps))


def _mean(losses: list[float]) -> float:
    return sum(losses) / len(losses)
