from dataclasses import replace
from pathlib import Path

import pytest
import torch

from latentmill.cache.files import TEMPORARY_SUFFIX
from latentmill.datasets.errors import DataError, UsageError
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights, read_lora
from latentmill.stages.training import checkpoint
from latentmill.stages.training.checkpoint import (
    Progress,
    State,
    StepOrder,
    latest_state,
    list_states,
    remove_unfinished,
    require_same,
    save_state,
    say_changes,
)

LAYER = "mid_block.attentions.0.proj_in"


def make_state(step: int) -> State:
    generator = torch.Generator().manual_seed(step)
    down, up = (torch.randn(*shape, generator=generator) for shape in ((2, 8), (8, 2)))
    return State(
        progress=Progress(step, samples_seen=3 * step, seconds=0.1, window_loss=1 / 3, bad_steps=1),
        lora=LoraWeights({LAYER: LoraLayer(down, up, 3.0)}),
        optimizer={"a/exp_avg": down * 2, "a/step": torch.tensor(float(step))},
        scaler={"scale": 65536.0},
        fixed={"train.rank": 2, "train.targets": ("to_q", "to_k")},
        settings={"learning_rate": 1e-4},
        order=StepOrder(4, 2),
    )


def test_a_state_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    written = make_state(7)
    folder = save_state(tmp_path, written, {"ss_network_dim": "2"}, keep=1)
    read = latest_state(tmp_path)
    assert folder.name == "step-000007"
    assert read.progress == written.progress
    assert torch.equal(read.lora.layers[LAYER].down, written.lora.layers[LAYER].down)
    assert torch.equal(read.lora.layers[LAYER].up, written.lora.layers[LAYER].up)
    assert read.lora.layers[LAYER].alpha == 3.0
    assert read.optimizer.keys() == written.optimizer.keys()
    assert all(torch.equal(read.optimizer[key], at) for key, at in written.optimizer.items())
    assert (read.scaler, read.settings) == (written.scaler, written.settings)


def test_the_state_s_lora_can_be_used_as_it_is(tmp_path: Path) -> None:
    folder = save_state(tmp_path, make_state(7), {}, keep=1)
    assert read_lora(folder / "lora.safetensors").layers.keys() == {LAYER}


def test_only_the_last_states_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 999_999, 1_000_000):
        save_state(tmp_path, make_state(step), {}, keep=2)
    assert [path.name for path in list_states(tmp_path)] == ["step-999999", "step-1000000"]
    assert latest_state(tmp_path).progress.step == 1_000_000


def test_a_failed_save_leaves_the_older_state_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path, make_state(1), {}, keep=1)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_json", fail)
    with pytest.raises(OSError, match="No space"):
        save_state(tmp_path, make_state(2), {}, keep=1)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step-000001"]


def test_what_a_killed_trainer_left_is_removed_and_never_read(tmp_path: Path) -> None:
    save_state(tmp_path, make_state(1), {}, keep=2)
    half = tmp_path / "state" / "step-000002"
    half.mkdir()
    (half / "lora.safetensors").write_bytes(b"half")
    temporary = tmp_path / "state" / f".0123456789ab{TEMPORARY_SUFFIX}"
    temporary.mkdir()
    (tmp_path / temporary.name).write_bytes(b"half a LoRA")
    assert latest_state(tmp_path).progress.step == 1
    remove_unfinished(tmp_path)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step-000001"]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("name", ["lora.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_state_is_named(tmp_path: Path, name: str) -> None:
    folder = save_state(tmp_path, make_state(1), {}, keep=1)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError) as raised:
        latest_state(tmp_path)
    assert str(folder) in raised.value.where


def test_a_run_without_a_state_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no saved state"):
        latest_state(tmp_path)


def test_each_difference_is_named(tmp_path: Path) -> None:
    save_state(tmp_path, make_state(1), {}, keep=1)
    state = latest_state(tmp_path)
    require_same(state, make_state(1).fixed, tmp_path)
    with pytest.raises(UsageError) as raised:
        require_same(state, {"train.rank": 4, "train.targets": ("to_q",)}, tmp_path)
    assert "train.rank was 2, is 4" in raised.value.what
    assert "train.targets was ['to_q', 'to_k'], is ['to_q']" in raised.value.what


def test_changed_settings_are_said(caplog: pytest.LogCaptureFixture) -> None:
    state = replace(make_state(1), settings={"learning_rate": 1e-4, "epochs": 3})
    say_changes(state, {"learning_rate": 1e-4, "epochs": 5})
    assert [record.getMessage() for record in caplog.records] == [
        "changed for the rest of the run: epochs = 5, was 3"
    ]
