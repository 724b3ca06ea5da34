from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.cache.index import CachedSample
from latentmill.stages.training.step_plan import StepPlan


def make_sample(number: int, bucket: str, repeats: int = 1) -> CachedSample:
    return CachedSample(f"p{number:03}", "shard", bucket, repeats, 1.0, False, "file")


SEVEN_IN_FIVE = tuple(
    make_sample(number, bucket) for number, bucket in enumerate(["a", "a", "a", "b", "c", "d", "e"])
)


def test_seven_pictures_in_five_buckets_are_all_trained() -> None:
    plan = StepPlan(SEVEN_IN_FIVE, batch_size=4, accumulation=3, seed=1)
    assert plan.steps_per_epoch == 2
    micros = list(plan.micro_batches(0, 2))
    ids = [sight.id for micro in micros for sight in micro.sights]
    assert sorted(ids) == [sample.id for sample in SEVEN_IN_FIVE]
    assert [micro.ends_step for micro in micros] == [False, False, True, False, True]
    per_step = Counter(micro.step for micro in micros for _ in micro.sights)
    assert all(micro.step_samples == per_step[micro.step] for micro in micros)


@given(
    repeats=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    batch_size=st.integers(1, 5),
    accumulation=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_each_sample_is_seen_exactly_repeats_times_an_epoch(
    repeats: list[int], batch_size: int, accumulation: int, seed: int
) -> None:
    samples = tuple(
        make_sample(number, "ab"[number % 2], count) for number, count in enumerate(repeats)
    )
    plan = StepPlan(samples, batch_size, accumulation, seed)
    per_epoch = plan.steps_per_epoch
    for epoch in range(2):
        micros = list(plan.micro_batches(epoch * per_epoch, (epoch + 1) * per_epoch))
        sights = [sight for micro in micros for sight in micro.sights]
        assert len(set(sights)) == len(sights) == plan.samples_per_epoch
        assert Counter(sight.id for sight in sights) == {at.id: at.repeats for at in samples}
        assert {sight.epoch for sight in sights} == {epoch}
        assert [micro.step for micro in micros if micro.ends_step] == list(
            range(epoch * per_epoch, (epoch + 1) * per_epoch)
        )


def test_starting_late_gives_the_rest_of_the_same_order() -> None:
    plan = StepPlan(SEVEN_IN_FIVE, batch_size=1, accumulation=2, seed=5)
    whole = list(plan.micro_batches(0, 11))
    for start in range(11):
        assert list(plan.micro_batches(start, 11)) == [at for at in whole if at.step >= start]


@pytest.mark.parametrize("num_processes", [2, 3, 4])
def test_processes_share_the_batches_of_one_process_with_more_accumulation(
    num_processes: int,
) -> None:
    plan = StepPlan(SEVEN_IN_FIVE, batch_size=2, accumulation=num_processes, seed=3)
    steps = 2 * plan.steps_per_epoch
    alone = [sight for micro in plan.micro_batches(0, steps) for sight in micro.sights]
    shares = [
        list(plan.micro_batches(0, steps, process, num_processes))
        for process in range(num_processes)
    ]
    together = [sight for share in shares for micro in share for sight in micro.sights]
    assert Counter(together) == Counter(alone)
    for share in shares:
        assert [micro.step for micro in share if micro.ends_step] == list(range(steps))


def test_steps_decide_over_epochs() -> None:
    plan = StepPlan(SEVEN_IN_FIVE, batch_size=4, accumulation=3, seed=1)
    assert plan.total_steps(epochs=10, steps=0) == 20
    assert plan.total_steps(epochs=10, steps=7) == 7
    assert len([micro for micro in plan.micro_batches(0, 7) if micro.ends_step]) == 7
