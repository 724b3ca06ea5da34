"""The folder of a training run: its name, and the copies of what it was made from."""

import json
import platform
import re
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latentmill.cache.files import committed, write_json, write_text
from latentmill.cache.index import SetIndex, read_set_index
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.versions import versions
from latentmill.stages.training.data import tensors_digest

LORA_FILE: Final = "lora.safetensors"
BEST_FILE: Final = "lora-best.safetensors"
HELD_OUT_FILE: Final = Path("snapshot") / "held-out.json"
METRICS_FILE: Final = "metrics.jsonl"
_SLUG_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class RunOf:
    """A run of a certain cached set, and whether it came to its end."""

    folder: Path
    finished: bool


def slug(name: str) -> str:
    """Make a name fit for a folder: letters and digits of any script, joined by `-`; not empty.

    Decomposed letters are composed; lone surrogates, emoji and punctuation become `-`.
    """
    composed = unicodedata.normalize("NFC", name).casefold()
    words = re.findall(r"[^\W_]+", composed)
    joined = "-".join(words).encode("utf-8", "ignore")[:_SLUG_BYTES].decode("utf-8", "ignore")
    return joined.strip("-") or "run"


def list_runs(layout: Layout) -> list[Path]:
    """All run folders, oldest first."""
    if not layout.runs.is_dir():
        return []
    return sorted((path for path in layout.runs.iterdir() if _number(path) > 0), key=_number)


def create_run(layout: Layout, name: str) -> Path:
    """Make the next run folder, `NNN-NAME`; two trainers at once get two folders."""
    layout.runs.mkdir(parents=True, exist_ok=True)
    number = 1 + max((_number(run) for run in list_runs(layout)), default=0)
    while True:
        run = layout.runs / f"{number:03}-{name}"
        taken = any(_number(other) == number for other in layout.runs.iterdir())
        try:
            if not taken:
                run.mkdir()
                return run
        except FileExistsError:
            pass
        number += 1


def find_run(layout: Layout, wanted: Path | None) -> Path:
    """Find a run by its folder, its name, its number or its name's ending; None is the latest.

    Raises UsageError when there is none, or more than one.
    """
    runs = list_runs(layout)
    if wanted is None and runs:
        return runs[-1]
    if wanted is None:
        raise UsageError(
            "there is no run to go on with",
            where=str(layout.runs),
            fix="begin one",
            run=(Command("train"),),
        )
    found = [run for run in runs if _is_called(run, str(wanted))]
    if len(found) == 1:
        return found[0]
    if wanted.is_dir():
        return wanted
    names = ", ".join(run.name for run in (found or runs)[-8:]) or "none is there"
    raise UsageError(
        f"{'more than one run is' if found else 'no run is'} called {wanted}",
        where=str(layout.runs),
        expected=f"a run: {names}",
    )


def latest_run_of(layout: Layout, index: SetIndex) -> RunOf | None:
    """The last run that was trained on just this cached set and can be used or resumed."""
    wanted = tensors_digest(index)
    for run in reversed(list_runs(layout)):
        finished = (run / "report.json").is_file()
        if (finished or has_state(run)) and _digest_of(run) == wanted:
            return RunOf(run, finished)
    return None


def has_state(run: Path) -> bool:
    """Whether a saved state is there to go on from."""
    return any((run / "state").glob("step-*/state.json"))


def _digest_of(run: Path) -> str:
    try:
        return tensors_digest(read_set_index(run / "snapshot" / "cache-index.json"))
    except (DataError, UsageError):
        return ""


def write_snapshot(run: Path, layout: Layout, config_text: str) -> None:
    """Copy into the run what it was made from: settings, captions, manifest, index, versions."""
    write_text(run / "config.toml", config_text)
    for source in (layout.review, layout.manifest, layout.cache_index):
        if source.is_file():
            name = "cache-index.json" if source == layout.cache_index else source.name
            with committed(run / "snapshot" / name) as temporary:
                shutil.copyfile(source, temporary)
    write_json(run / "snapshot" / "environment.json", environment())


def anew(run: Path) -> Command:
    """The command that trains a new run with the settings of `run`."""
    return Command("train", ("--config", str(run / "config.toml")))


def renew_config(run: Path, config_text: str, step: int) -> None:
    """Let a run's config.toml say what it goes on with after `step`; the one before is kept."""
    file = run / "config.toml"
    before = file.read_text("utf-8") if file.is_file() else ""
    if config_text != before:
        write_text(run / "snapshot" / f"config-until-step-{step:06}.toml", before)
        write_text(file, config_text)


def write_held_out(run: Path, ids: Sequence[str]) -> None:
    """Keep which samples the run measures on; a resumed run holds the same ones out."""
    write_json(run / HELD_OUT_FILE, sorted(ids))


def read_held_out(run: Path) -> tuple[str, ...]:
    """The ids that a run holds out. Raises DataError when the file is damaged."""
    file = run / HELD_OUT_FILE
    try:
        return tuple(json.loads(file.read_bytes())) if file.is_file() else ()
    except (ValueError, TypeError) as error:
        raise DataError(
            "the list of held-out samples is damaged",
            where=str(file),
            fix="train anew",
            run=(Command("train"),),
        ) from error


def environment() -> dict[str, str]:
    """Versions and the machine's kind: what a result may depend on besides its settings."""
    import torch

    found = versions() | {"system": platform.platform(terse=True)}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    return found


def cut_metrics(file: Path, step: int) -> None:
    """Drop the lines of a run's metrics after `step`, and a last line that was not finished."""
    if not file.is_file():
        return
    kept = []
    for line in file.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            break
        if values["step"] <= step:
            kept.append(line + "\n")
    write_text(file, "".join(kept))


def _number(run: Path) -> int:
    number = run.name.partition("-")[0]
    return int(number) if re.fullmatch(r"[0-9]+", number) else 0


def _is_called(run: Path, wanted: str) -> bool:
    is_number = re.fullmatch(r"[0-9]+", wanted) is not None
    return wanted in (run.name, run.name.partition("-")[2]) or (
        is_number and int(wanted) == _number(run)
    )
