"""`torchrun` starts one run in two processes; it is the run of one process with more parts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from latentmill.pipeline.run import is_follower

pytestmark = pytest.mark.slow
LATENTMILL = (sys.executable, "-c", "from latentmill.pipeline.main import main; main()")
SIZES = ((64, 64), (64, 64), (64, 64), (128, 64), (64, 128), (64, 64), (64, 64))
SETTINGS = (
    *("bucket.area=64", "bucket.step=16", "bucket.min=32", "bucket.max=128"),
    *("train.rank=2", "train.batch_size=2", "train.steps=5", "train.learning_rate=1e-3"),
    *("train.save_every=2", "train.holdout=1", "train.gradient_checkpointing=false"),
)


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> list[str]:
    """Seven pictures validated and cached; the flags that name them."""
    root: Path = tmp_path_factory.mktemp("two")
    data = root / "my dog 狗"
    data.mkdir()
    for number, size in enumerate(SIZES):
        Image.effect_noise(size, 40 + number).convert("RGB").save(data / f"{number}.png")
        (data / f"{number}.txt").write_text(f"a grey noise number {number} on grey paper")
    flags = ["--data", str(data), "--work", str(root / "work"), "--model", str(small_model)]
    flags += [part for setting in SETTINGS for part in ("--set", setting)]
    for stage in ("validate", "cache"):
        run_in([*LATENTMILL, stage, *flags])
    return flags


def run_in(command: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def train(flags: list[str], processes: int, *more: str) -> Path:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    torchrun += ["--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "localhost:0"]
    launcher = torchrun if processes > 1 else []
    run_in([*launcher, *LATENTMILL, "train", *flags, *more])
    return max(Path(flags[3]).glob("runs/*"))


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_train_what_one_trains_with_twice_the_accumulation(cached: list[str]) -> None:
    one = train(cached, 1, "--set", "train.gradient_accumulation=4")
    two = train(cached, 2, "--set", "train.gradient_accumulation=2")
    assert (one.name[:3], two.name[:3]) == ("001", "002")
    alone, together = metrics_of(one), metrics_of(two)
    for name in ("step", "epoch", "lr"):
        assert [line[name] for line in together] == [line[name] for line in alone]
    for name in ("loss", "held_out_loss", "grad_norm"):
        for left, right in zip(alone, together, strict=True):
            assert right.get(name, 0) == pytest.approx(left.get(name, 0), rel=1e-3)
    counts = [json.loads((run / "report.json").read_text())["counts"] for run in (one, two)]
    assert counts[0] == counts[1]
    wanted, found = (load_file(run / "lora.safetensors") for run in (one, two))
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], atol=2e-4, rtol=2e-3)


def test_a_run_of_two_is_resumed_by_two(cached: list[str]) -> None:
    whole = train(cached, 2, "--set", "train.name=whole")
    begun = train(cached, 2, "--set", "train.name=begun", "--set", "train.steps=2")
    resumed = train(cached, 2, "--resume", "--set", "train.steps=5")
    assert resumed == begun
    assert [line["step"] for line in metrics_of(begun)] == [1, 2, 3, 4, 5]
    assert (
        load_file(whole / "lora.safetensors").keys() == load_file(begun / "lora.safetensors").keys()
    )


@pytest.mark.parametrize(
    ("environment", "follows"),
    [
        ({}, False),
        ({"WORLD_SIZE": "1", "RANK": "0"}, False),
        ({"WORLD_SIZE": "2", "RANK": "0"}, False),
        ({"WORLD_SIZE": "2", "RANK": "1"}, True),
        ({"WORLD_SIZE": "", "RANK": ""}, False),
    ],
)
def test_the_first_process_leads(environment: dict[str, str], follows: bool) -> None:
    assert is_follower(environment) == follows
