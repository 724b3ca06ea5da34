"""AdamW with a learning rate that is a function of the step, and steps that bad numbers skip."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The learning rate of every optimiser step of a run of `steps`.

    `warmup` below 1 is a share of the steps, else their number.
    """

    peak: float
    shape: Shape
    steps: int
    warmup: float

    @property
    def warmup_steps(self) -> int:
        """Steps that climb to the peak."""
        wanted = self.warmup * self.steps if self.warmup < 1 else self.warmup
        return min(round(wanted), self.steps)

    def at(self, step: int) -> float:
        """Return the rate of a step counted from 0: never 0, the peak right after the warm-up."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / (self.warmup_steps + 1)
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        if self.shape == "constant":
            return self.peak
        if self.shape == "linear":
            return self.peak * (1 - progress)
        return self.peak * (1 + math.cos(math.pi * progress)) / 2


class Optimiser:
    """AdamW over named fp32 parameters (Loshchilov and Hutter 2019, arXiv:1711.05101).

    A step with a non-finite gradient changes nothing, not even the moments. This is decided on
    the device: no step waits for the host.
    """

    def __init__(self, parameters: "Mapping[str, Parameter]", weight_decay: float) -> None:
        import torch

        self.parameters = dict(parameters)
        wrong = [name for name, at in self.parameters.items() if at.dtype != torch.float32]
        assert not wrong, f"trained in less than fp32: {wrong[:3]}"
        self._adamw = torch.optim.AdamW(
            self.parameters.values(), lr=0.0, weight_decay=weight_decay, fused=True
        )

    @property
    def gradients(self) -> "list[Tensor]":
        """The gradients that are there."""
        return [at.grad for at in self.parameters.values() if at.grad is not None]

    def all_gradients(self) -> "list[Tensor]":
        """The gradients, zeros made where this process had no sample."""
        import torch

        for at in self.parameters.values():
            if at.grad is None:
                at.grad = torch.zeros_like(at)
        return self.gradients

    def gradient_norm(self) -> "Tensor":
        """Return the norm of all gradients as one scalar on the device."""
        import torch

        return torch.nn.utils.get_total_norm(self.gradients)

    def step(self, rate: float, norm: "Tensor", max_norm: float, scaler: Any = None) -> None:
        """Cut the gradients to `max_norm` (0 is off), step unless `norm` is not finite, clear them.

        With a `scaler` (fp16) the gradients must have been unscaled by it.
        """
        import torch

        adamw: Any = self._adamw
        adamw.param_groups[0]["lr"] = rate
        if max_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), max_norm, norm)
        if scaler is None:
            # The same two attributes by which GradScaler tells a fused optimiser to sit out.
            adamw.grad_scale, adamw.found_inf = None, (~norm.isfinite()).float()
            adamw.step()
            del adamw.grad_scale, adamw.found_inf
        else:
            scaler.step(adamw)
            scaler.update()
        adamw.zero_grad(set_to_none=True)

    def unscale(self, scaler: Any) -> None:
        """Divide the gradients by the scaler's factor."""
        scaler.unscale_(self._adamw)

    def clear(self) -> None:
        """Forget the gradients of an unfinished step."""
        self._adamw.zero_grad(set_to_none=True)

    def state(self) -> "dict[str, Tensor]":
        """Copy the moments and step counts to the CPU, as `PARAMETER/KIND`."""
        stored = self._adamw.state_dict()["state"]
        names = list(self.parameters)
        return {
            f"{names[index]}/{kind}": value.detach().cpu().clone()
            for index, values in stored.items()
            for kind, value in values.items()
        }

    def load_state(self, tensors: "Mapping[str, Tensor]") -> None:
        """Take over what `state` returned."""
        numbers = {name: index for index, name in enumerate(self.parameters)}
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            name, _, kind = key.rpartition("/")
            state.setdefault(numbers[name], {})[kind] = value.clone()
        groups = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": state, "param_groups": groups})


def flat_sum(tensors: "Sequence[Tensor]", reduce: Any) -> None:
    """Replace tensors by their sum over all processes, in one exchange."""
    import torch

    summed = reduce(torch.cat([tensor.flatten() for tensor in tensors]), reduction="sum")
    parts = summed.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
