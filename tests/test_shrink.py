import pytest
import torch

from latentmill.datasets.errors import UsageError
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights
from latentmill.stages.lora.shrink import shrink


def layer_with(values: list[float], alpha: float, sides: tuple[int, int] = (12, 9)) -> LoraLayer:
    """A layer whose up @ down has these singular values."""
    generator = torch.Generator().manual_seed(len(values))
    rank = len(values)
    left, _ = torch.linalg.qr(torch.randn(sides[0], rank, generator=generator).double())
    right, _ = torch.linalg.qr(torch.randn(sides[1], rank, generator=generator).double())
    mixed = torch.randn(rank, rank, generator=generator).double() + 3 * torch.eye(rank)
    up = left * torch.tensor(values) @ mixed
    down = torch.linalg.inv(mixed) @ right.T
    return LoraLayer(down.float(), up.float(), alpha)


def test_the_largest_singular_values_stay_and_the_kept_energy_is_their_share() -> None:
    lora = LoraWeights({"a": layer_with([4.0, 2.0, 1.0, 0.5], 8.0)})
    shrunk = shrink(lora, 2)
    layer = shrunk.lora.layers["a"]
    assert (layer.rank, layer.alpha) == (2, 4.0)
    values = torch.linalg.svdvals(layer.delta())[:2] / 2  # alpha / rank is 2, before and after
    torch.testing.assert_close(values, torch.tensor([4.0, 2.0]), atol=1e-4, rtol=0)
    assert shrunk.kept == pytest.approx(20 / 21.25, abs=1e-6)


def test_the_delta_is_the_nearest_one_of_that_rank() -> None:
    layer = layer_with([3.0, 1.0, 0.2], 3.0)
    full = layer.delta()
    u, values, v = torch.linalg.svd(full)
    best = u[:, :2] * values[:2] @ v[:2]
    near = shrink(LoraWeights({"a": layer}), 2).lora.layers["a"].delta()
    torch.testing.assert_close(near, best, atol=1e-5, rtol=0)


def test_a_convolution_keeps_its_shape() -> None:
    generator = torch.Generator().manual_seed(0)
    down = torch.randn(4, 3, 3, 3, generator=generator)
    up = torch.randn(5, 4, 1, 1, generator=generator)
    layer = shrink(LoraWeights({"a": LoraLayer(down, up, 2.0)}), 3).lora.layers["a"]
    assert (layer.down.shape, layer.up.shape) == ((3, 3, 3, 3), (5, 3, 1, 1))
    error = layer.delta() - LoraLayer(down, up, 2.0).delta()
    smallest = torch.linalg.svdvals(LoraLayer(down, up, 2.0).delta().flatten(1))[3]
    assert float(error.norm()) == pytest.approx(float(smallest), rel=1e-4)


def test_layers_that_are_small_already_stay_bit_for_bit_and_the_worst_one_is_named() -> None:
    layers = {"small": layer_with([1.0, 1.0], 8.0), "large": layer_with([1.0] * 4, 8.0)}
    shrunk = shrink(LoraWeights(layers), 2)
    assert shrunk.lora.layers["small"].up is layers["small"].up
    assert (shrunk.worst, round(shrunk.least, 6)) == ("large", 0.5)


def test_an_untrained_layer_loses_nothing() -> None:
    layer = LoraLayer(torch.randn(4, 6), torch.zeros(5, 4), 4.0)
    shrunk = shrink(LoraWeights({"a": layer}), 1)
    assert shrunk.kept == shrunk.least == 1.0
    assert not shrunk.lora.layers["a"].delta().any()


@pytest.mark.parametrize("rank", [4, 5])
def test_a_rank_that_is_no_smaller_is_refused(rank: int) -> None:
    with pytest.raises(UsageError, match="no smaller than the LoRA's rank"):
        shrink(LoraWeights({"a": layer_with([1.0] * 4, 4.0)}), rank)
