"""Tensors to the bytes of a file, the same bytes each time."""

import pytest

from latentmill.cache.tensor_file import tensor_bytes

torch = pytest.importorskip("torch")
load = pytest.importorskip("safetensors.torch").load


def test_names_that_share_a_tensor_are_written_apart() -> None:
    both = torch.arange(6.0).reshape(2, 3)
    loaded = load(tensor_bytes({"a": both, "b": both, "c": both[0], "d": both.T}, {}))
    assert loaded["a"].equal(both)
    assert loaded["b"].equal(both)
    assert loaded["c"].equal(both[0])
    assert loaded["d"].equal(both.T)


def test_the_order_of_names_and_fields_does_not_change_a_byte() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    first = tensor_bytes({"a": one, "b": two}, {"x": "1", "y": "2"})
    assert tensor_bytes({"b": two, "a": one}, {"y": "2", "x": "1"}) == first
