from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.cache.index import CachedSample
from latentmill.datasets.errors import UsageError
from latentmill.datasets.records import Record
from latentmill.stages.training.holdout import divided, part_samples, unique_ids


def make_samples(**buckets: int) -> list[CachedSample]:
    return [
        CachedSample(f"p{bucket}{number:03}", "s", bucket, 1, 1.0, False, "file")
        for bucket, count in buckets.items()
        for number in range(count)
    ]


def ids(samples: list[CachedSample]) -> frozenset[str]:
    return frozenset(sample.id for sample in samples)


def make_record(name: str, pixels: str, codes: tuple[str, ...] = ()) -> Record:
    return Record(name, 0, name, name, 1, 1, "PNG", 8, 8, pixels, "a cat", codes=codes)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 40)), st.floats(0, 1))
def test_shares_add_up_and_none_is_more_than_its_bucket(
    sizes: dict[str, int], share: float
) -> None:
    count = int(share * sum(sizes.values()))
    quotas = divided(sizes, count)
    assert sum(quotas.values()) == count
    assert all(quotas[key] <= sizes[key] for key in sizes)
    assert all(
        abs(quotas[key] - count * sizes[key] / max(1, sum(sizes.values()))) < 1 for key in sizes
    )


def test_every_bucket_gives_its_share_and_the_parts_are_the_whole() -> None:
    samples = make_samples(a=20, b=10, c=10)
    parting = part_samples(samples, 0.1, ids(samples), 1)
    assert Counter(sample.bucket for sample in parting.held_out) == {"a": 2, "b": 1, "c": 1}
    assert sorted([*parting.trained, *parting.held_out], key=lambda one: one.id) == samples


def test_a_number_is_a_number_and_the_smallest_share_is_one() -> None:
    samples = make_samples(a=9)
    assert len(part_samples(samples, 3, ids(samples), 1).held_out) == 3
    assert len(part_samples(samples, 0.01, ids(samples), 1).held_out) == 1
    assert part_samples(samples, 0.0, ids(samples), 1).held_out == ()


def test_one_more_picture_moves_no_other() -> None:
    samples = make_samples(a=40)
    before = ids(list(part_samples(samples[:-1], 4, ids(samples), 1).held_out))
    after = ids(list(part_samples(samples, 4, ids(samples), 1).held_out))
    assert len(before - after) <= 1


def test_twins_and_regularisation_pictures_are_never_held_out() -> None:
    samples = make_samples(a=6)
    samples[0] = replace(samples[0], is_regularisation=True)
    unique = ids(samples) - {"pa001", "pa002"}
    parting = part_samples(samples, 6, unique, 1)
    assert ids(list(parting.held_out)) == {"pa003", "pa004", "pa005"}


def test_pictures_with_equal_pixels_or_a_near_duplicate_have_twins() -> None:
    records = [
        make_record("p1", "x"),
        make_record("p2", "x"),
        make_record("p3", "y", ("near-duplicate",)),
        make_record("p4", "z"),
    ]
    assert unique_ids(records) == {"p4"}


def test_ids_are_held_out_as_named() -> None:
    samples = make_samples(a=3)
    parting = part_samples(samples, ("pa002",), frozenset(), 1)
    assert ids(list(parting.held_out)) == {"pa002"}
    with pytest.raises(UsageError, match="names 1 ids that are not in the cached set"):
        part_samples(samples, ("pa002", "p9"), frozenset(), 1)


def test_something_must_be_left_to_train_on() -> None:
    samples = make_samples(a=2)
    with pytest.raises(UsageError, match="leaves no sample"):
        part_samples(samples, 2, ids(samples), 1)
