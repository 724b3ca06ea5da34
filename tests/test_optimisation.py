import math

import pytest
import torch
from torch.nn import Parameter

from latentmill.stages.training.optimisation import LearningRate, Optimiser, flat_sum


def make_parameters() -> dict[str, Parameter]:
    generator = torch.Generator().manual_seed(0)
    return {name: Parameter(torch.randn(3, 4, generator=generator)) for name in ("a", "b")}


def take_steps(optimiser: Optimiser, count: int, start: int = 0) -> None:
    for step in range(start, start + count):
        generator = torch.Generator().manual_seed(step)
        for value in optimiser.parameters.values():
            value.grad = torch.randn(value.shape, generator=generator)
        optimiser.step(1e-2, optimiser.gradient_norm(), max_norm=1.0)


def test_the_rate_climbs_then_falls_along_the_cosine() -> None:
    rate = LearningRate(peak=1.0, shape="cosine", steps=14, warmup=4)
    assert [rate.at(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    expected = [(1 + math.cos(math.pi * at / 10)) / 2 for at in range(10)]
    assert [rate.at(step) for step in range(4, 14)] == pytest.approx(expected)


def test_linear_and_constant_rates() -> None:
    linear = LearningRate(1.0, "linear", steps=5, warmup=0)
    assert [linear.at(step) for step in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    constant = LearningRate(1.0, "constant", steps=5, warmup=0.4)
    assert [constant.at(step) for step in range(5)] == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])


@pytest.mark.parametrize(
    ("warmup", "steps", "expected"), [(0.05, 100, 5), (7, 100, 7), (500, 100, 100), (0, 9, 0)]
)
def test_warm_up_is_a_share_or_a_number_of_steps(warmup: float, steps: int, expected: int) -> None:
    assert LearningRate(1.0, "cosine", steps, warmup).warmup_steps == expected


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize("warmup", [0, 0.05, 1, 1000])
def test_no_step_has_rate_zero_or_above_the_peak(shape: str, steps: int, warmup: float) -> None:
    rate = LearningRate(1e-4, shape, steps, warmup)  # type: ignore[arg-type]
    assert all(0 < rate.at(step) <= 1e-4 for step in range(steps))


def test_steps_are_those_of_a_plain_adamw_with_clipping() -> None:
    ours, theirs = make_parameters(), make_parameters()
    take_steps(Optimiser(ours, weight_decay=0.01), 3)
    adamw = torch.optim.AdamW(theirs.values(), lr=1e-2, weight_decay=0.01, foreach=False)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for value in theirs.values():
            value.grad = torch.randn(value.shape, generator=generator)
        torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        adamw.step()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_step_with_a_bad_gradient_changes_nothing(bad: float) -> None:
    parameters = make_parameters()
    optimiser = Optimiser(parameters, weight_decay=0.01)
    take_steps(optimiser, 2)
    weights = {name: value.detach().clone() for name, value in parameters.items()}
    state = optimiser.state()
    for value in parameters.values():
        value.grad = torch.ones_like(value)
    parameters["b"].grad[0, 0] = bad  # type: ignore[index]
    optimiser.step(1e-2, optimiser.gradient_norm(), max_norm=1.0)
    assert all(torch.equal(parameters[name], value) for name, value in weights.items())
    after = optimiser.state()
    assert all(torch.equal(after[name], value) for name, value in state.items())
    assert optimiser.gradients == []


def test_state_carries_on_bit_for_bit() -> None:
    whole = make_parameters()
    take_steps(Optimiser(whole, 0.01), 5)
    broken = make_parameters()
    first = Optimiser(broken, 0.01)
    take_steps(first, 2)
    second = Optimiser(broken, 0.01)
    second.load_state(first.state())
    take_steps(second, 3, start=2)
    assert all(torch.equal(whole[name], broken[name]) for name in whole)


def test_half_precision_parameters_are_not_trained() -> None:
    with pytest.raises(AssertionError, match="less than fp32"):
        Optimiser({"a": Parameter(torch.zeros(2, dtype=torch.float16))}, 0.0)


def test_fp16_steps_are_those_of_fp32_and_skip_an_overflow() -> None:
    plain, scaled = make_parameters(), make_parameters()
    take_steps(Optimiser(plain, 0.01), 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimiser = Optimiser(scaled, 0.01)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        for value in scaled.values():
            value.grad = torch.randn(value.shape, generator=generator) * 1024
        scaler.scale(torch.zeros(()))  # as the loss would be, before its backward
        optimiser.unscale(scaler)
        optimiser.step(1e-2, optimiser.gradient_norm(), 1.0, scaler)
    assert all(torch.equal(plain[name], scaled[name]) for name in plain)
    before = {name: value.detach().clone() for name, value in scaled.items()}
    for value in scaled.values():
        value.grad = torch.full_like(value, math.inf)
    scaler.scale(torch.zeros(()))
    optimiser.unscale(scaler)
    optimiser.step(1e-2, optimiser.gradient_norm(), 1.0, scaler)
    assert all(torch.equal(scaled[name], value) for name, value in before.items())
    assert scaler.get_scale() == 512.0


def test_gradients_are_summed_over_processes_in_one_exchange() -> None:
    parameters = make_parameters()
    optimiser = Optimiser(parameters, 0.0)
    parameters["a"].grad = torch.ones(3, 4)
    exchanged = []

    def reduce(flat: torch.Tensor, reduction: str) -> torch.Tensor:
        exchanged.append((tuple(flat.shape), reduction))
        return flat + 2

    flat_sum(optimiser.all_gradients(), reduce)
    assert exchanged == [((24,), "sum")]
    assert [float(at.unique()) for at in optimiser.gradients] == [3.0, 2.0]
