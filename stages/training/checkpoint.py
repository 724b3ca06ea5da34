"""The state of a run between two steps, as a folder that is whole or absent; never a pickle.

`state/step-NNNNNN/` holds `lora.safetensors` (kohya layout, loadable as it is),
`optimizer.safetensors` and `state.json`.
"""

import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.files import TEMPORARY_SUFFIX, remove_leftovers, write_bytes, write_json
from latentmill.cache.tensor_file import tensor_bytes
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.next_steps import Command
from latentmill.stages.lora.kohya_file import kohya_bytes
from latentmill.stages.lora.layouts import LoraWeights, from_kohya
from latentmill.stages.training.best import Best
from latentmill.stages.training.run_folder import anew

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

STATE_FILE: Final = "state.json"
LORA_FILE: Final = "lora.safetensors"
OPTIMIZER_FILE: Final = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, counted over all its parts.

    `window_loss` and `window_samples` are the sum since the last line of metrics; `bad_steps` the
    steps in a row that were not taken; `best` is of the held-out samples.
    """

    step: int = 0
    samples_seen: int = 0
    seconds: float = 0.0
    window_loss: float = 0.0
    window_samples: int = 0
    bad_steps: int = 0
    best: Best = field(default_factory=Best)


@dataclass(frozen=True, slots=True)
class StepOrder:
    """Samples in a batch, and batches in an optimiser step over all processes."""

    batch_size: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class State:
    """All that the rest of a run depends on. `fixed` is what must not change on the way.

    `order` divides the samples into steps, however they are divided within one. `settings` are
    the other settings it was made with, to say what a resume changes.
    """

    progress: Progress
    lora: LoraWeights
    optimizer: "Mapping[str, Tensor]"
    scaler: Mapping[str, Any]
    fixed: Mapping[str, Any]
    settings: Mapping[str, Any]
    order: StepOrder


def save_state(run: Path, state: State, header: Mapping[str, str], keep: int) -> Path:
    """Write a state, then delete all but the last `keep`; one that is there already stays."""
    folder = run / "state" / f"step-{state.progress.step:06}"
    if not folder.is_dir():
        files = {
            LORA_FILE: kohya_bytes(state.lora, header),
            OPTIMIZER_FILE: tensor_bytes(state.optimizer, {"format": "pt"}),
        }
        _commit_folder(folder, files, _values(state))
        size = sum(path.stat().st_size for path in folder.iterdir())
        log.info("state of step %d saved: %.1f MiB", state.progress.step, size / 2**20)
    for old in list_states(run)[:-keep]:
        (old / STATE_FILE).unlink(missing_ok=True)  # first, so that no half state counts
        shutil.rmtree(old)
    return folder


def list_states(run: Path) -> list[Path]:
    """The whole states of a run, oldest first."""
    found = (run / "state").glob(f"step-*/{STATE_FILE}")
    return sorted((path.parent for path in found), key=lambda path: int(path.name[5:]))


def read_state(folder: Path) -> State:
    """Read a state; DataError when it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        values = json.loads((folder / STATE_FILE).read_bytes())
        return State(
            progress=_progress(values["progress"]),
            lora=from_kohya(load_file(folder / LORA_FILE)),
            optimizer=load_file(folder / OPTIMIZER_FILE),
            scaler=values["scaler"],
            fixed=values["fixed"],
            settings=values["settings"],
            order=StepOrder(**values["order"]),
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the saved state cannot be read: {error}",
            where=str(folder),
            fix="move this folder away and go on from the state before it, or train anew",
            run=(Command("train", ("--resume",)), Command("train")),
        ) from error


def latest_state(run: Path) -> State:
    """Read a run's last state; UsageError when it has none."""
    states = list_states(run)
    if not states:
        raise UsageError(
            f"{run.name} has no saved state to resume from",
            where=str(run),
            fix="train anew; train.save_every sets how often states are saved",
            run=(Command("train"),),
        )
    return read_state(states[-1])


def remove_unfinished(run: Path) -> None:
    """Delete what a killed trainer had begun to write in the run's folder and its states."""
    remove_leftovers(run)
    for path in (run / "state").glob(f".*{TEMPORARY_SUFFIX}"):
        shutil.rmtree(path)
    for path in (run / "state").glob("step-*"):
        if not (path / STATE_FILE).is_file():
            shutil.rmtree(path)


def require_same(state: State, fixed: Mapping[str, Any], run: Path) -> None:
    """Refuse to go on with another LoRA, order or data, naming each difference."""
    pairs = {name: (state.fixed.get(name), value) for name, value in _plain(fixed).items()}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if changed:
        what = ", ".join(
            f"{name} was {_short(old)}, is {_short(new)}" for name, (old, new) in changed.items()
        )
        raise UsageError(
            f"{run.name} cannot go on as another run: {what}",
            where=str(run),
            expected="the LoRA, data and UNet that the run began with (its config.toml); steps, "
            "learning rate, batch split, device, precision and the like may change",
            fix="leave these out or set them back, or train anew",
            run=(Command("train", ("--resume", "--run", run.name)), anew(run)),
        )


def say_changes(state: State, settings: Mapping[str, Any]) -> None:
    """Say which other settings a resumed run changes."""
    for name, value in sorted(_plain(settings).items()):
        before = state.settings.get(name)
        if before != value:
            log.warning("changed for the rest of the run: %s = %s, was %s", name, value, before)


def _progress(values: Mapping[str, Any]) -> Progress:
    return Progress(**{**values, "best": Best(**values["best"])})


def _short(value: Any) -> str:
    """A value in a message: of a hash, its beginning."""
    text = str(value)
    return text[:12] if re.fullmatch(r"[0-9a-f]{64}", text) else text


def _values(state: State) -> dict[str, Any]:
    return {
        "progress": asdict(state.progress),
        "scaler": dict(state.scaler),
        "fixed": dict(state.fixed),
        "settings": dict(state.settings),
        "order": asdict(state.order),
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dict(values)))
    return plain


def _commit_folder(folder: Path, files: Mapping[str, bytes], values: Mapping[str, Any]) -> None:
    temporary = folder.parent / f".{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
    try:
        for name, content in files.items():
            write_bytes(temporary / name, content)
        write_json(temporary / STATE_FILE, values)
        temporary.replace(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _sync(folder: Path) -> None:
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
