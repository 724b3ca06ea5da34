from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from latentmill.cache.index import CachedSample
from latentmill.cache.mapped import SampleTensors
from latentmill.datasets.errors import DataError
from latentmill.stages.training.diffusion import Batch, Chance
from latentmill.stages.training.loader import Loaded, Reader, load
from latentmill.stages.training.step_plan import MicroBatch, StepPlan

CPU = torch.device("cpu")


@dataclass(frozen=True)
class FakeSamples:
    broken: str = ""
    scaling_factor: float = 1.0
    shift_factor: float = 0.0

    @property
    def empty_text(self) -> Tensor:
        return torch.zeros(3, 8)

    def read(self, sample_id: str) -> SampleTensors:
        if sample_id == self.broken:
            raise DataError("shard x is damaged", where=str(Path("x.tar")), fix="run cache")
        value = float(sample_id[1:])
        mean = torch.full((4, 4, 4 + 2 * int(value % 2)), value)
        return SampleTensors(mean, mean, torch.full((1, 3, 8), value))


SAMPLES = tuple(
    CachedSample(f"p{number}", "shard", "ab"[number % 2], 1, 1.0 + number, False, "file")
    for number in range(6)
)


def read_all(workers: int, batch_size: int = 2, broken: str = "") -> list[Loaded]:
    plan = StepPlan(SAMPLES, batch_size, accumulation=2, seed=1)
    weights = {sample.id: sample.weight for sample in SAMPLES}
    reader = Reader(FakeSamples(broken), weights, Chance(seed=1, num_timesteps=100))
    return list(load(reader, plan.micro_batches(0, plan.steps_per_epoch * 2), workers, CPU))


def rows(loaded: list[Loaded]) -> dict[tuple[str, int], tuple[list[float], int]]:
    """What each sight met: noise and timestep by id and epoch."""
    found = {}
    for one in loaded:
        batch = one.batch
        assert isinstance(batch, Batch)
        for number, sight in enumerate(one.micro.sights):
            noise = batch.noise[number].flatten().tolist()
            found[sight.id, sight.epoch] = (noise, int(batch.timesteps[number]))
    return found


def test_loader_processes_give_the_same_batches_in_the_same_order() -> None:
    alone, helped = read_all(workers=0), read_all(workers=2)
    assert [one.micro for one in alone] == [one.micro for one in helped]
    assert rows(alone) == rows(helped)


def test_the_batch_split_does_not_change_what_a_sample_meets() -> None:
    assert rows(read_all(0, batch_size=1)) == rows(read_all(0, batch_size=3))


def test_weights_go_with_their_samples() -> None:
    for one in read_all(0):
        assert one.batch is not None
        assert one.batch.weights.tolist() == [1.0 + int(name[1:]) for name in one.batch.ids]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_shard_is_named_without_a_traceback(workers: int) -> None:
    with pytest.raises(DataError) as raised:
        read_all(workers, broken="p3")
    assert raised.value.what == "shard x is damaged"
    assert raised.value.fix == "run cache"


def test_an_empty_share_has_no_tensors() -> None:
    reader = Reader(FakeSamples(), {}, Chance(1, 100))
    empty = MicroBatch(step=0, number=0, sights=(), step_samples=4, ends_step=True)
    assert [one.batch for one in load(reader, [empty], 0, CPU)] == [None]
