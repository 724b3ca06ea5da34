from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.cache.order import epoch_batches

BUCKETS = {"512x512": [f"p{n:02}" for n in range(7)], "448x576": ["q1", "q2", "q1"]}


def test_every_sample_comes_exactly_as_often_as_it_is_listed() -> None:
    batches = epoch_batches(BUCKETS, 3, seed=1, epoch=0)
    assert Counter(id for batch in batches for id in batch) == Counter(
        id for ids in BUCKETS.values() for id in ids
    )
    assert sorted(map(len, batches)) == [1, 3, 3, 3]


def test_a_batch_holds_one_bucket() -> None:
    for batch in epoch_batches(BUCKETS, 3, seed=1, epoch=0):
        assert len({id[0] for id in batch}) == 1


def test_the_order_does_not_depend_on_how_the_input_is_arranged() -> None:
    turned = {name: list(reversed(ids)) for name, ids in reversed(list(BUCKETS.items()))}
    assert epoch_batches(turned, 2, 5, 3) == epoch_batches(BUCKETS, 2, 5, 3)


def test_the_order_is_pinned() -> None:
    assert epoch_batches({"a": ["x", "y", "z"], "b": ["v", "w"]}, 2, seed=42, epoch=1) == [
        ("z",),
        ("w", "v"),
        ("y", "x"),
    ]


def test_epochs_and_seeds_differ() -> None:
    orders = {str(epoch_batches(BUCKETS, 1, seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}
    assert len(orders) == 4


def test_a_batch_size_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        epoch_batches(BUCKETS, 0, 1, 1)


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=2), max_size=9), max_size=4),
    st.integers(1, 12),
    st.integers(0, 2**40),
)
def test_nothing_is_lost_or_added(buckets: dict[str, list[str]], size: int, seed: int) -> None:
    batches = epoch_batches(buckets, size, seed, epoch=0)
    assert Counter(id for batch in batches for id in batch) == Counter(
        id for ids in buckets.values() for id in ids
    )
    assert len(batches) == sum(-(-len(ids) // size) for ids in buckets.values())
    assert all(batches)
