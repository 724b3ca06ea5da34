"""What a person names becomes the LoRA file that is meant: a run, a file, or the latest run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Problem
from latentmill.stages.training.checkpoint import list_states
from latentmill.stages.training.run_folder import LORA_FILE, find_run, list_runs

DIFFUSERS_FILE: Final = "pytorch_lora_weights.safetensors"
PEFT_FILE: Final = "adapter_model.safetensors"
PICKLES: Final = {".bin", ".ckpt", ".pkl", ".pt", ".pth"}


@dataclass(frozen=True, slots=True)
class ChosenLora:
    """A LoRA file, what to call it, and the folder of its run (None for a file from elsewhere)."""

    file: Path
    name: str
    run: Path | None


def choose_lora(layout: Layout, wanted: Path | None) -> ChosenLora:
    """Find the LoRA of `wanted`: a file, a folder, a run's name or number; None is the latest run.

    Raises UsageError when there is none, or when the file is a pickle.
    """
    if wanted is None:
        return _describe(_latest_run(layout) / LORA_FILE, layout)
    if wanted.is_dir():
        return _describe(_file_in(wanted), layout)
    if wanted.is_file():
        return _describe(_checked(wanted), layout)
    if wanted.suffix or len(wanted.parts) > 1:
        raise UsageError(
            "there is no such run folder or LoRA file",
            where=str(wanted),
            expected="a run's name or folder, or a .safetensors file",
        )
    return _describe(_file_in(find_run(layout, wanted)), layout)


def at_step(lora: ChosenLora, step: int) -> ChosenLora:
    """Find the LoRA as it was after `step`; UsageError names the steps that are kept."""
    if lora.run is None:
        raise UsageError(
            "a single LoRA file has no earlier steps",
            where=f"export.step = {step}, {lora.file}",
            expected="a run",
        )
    kept = {int(state.name.removeprefix("step-")): state for state in list_states(lora.run)}
    if step not in kept:
        raise UsageError(
            f"{lora.run.name} has no saved state of step {step}",
            where=str(lora.run),
            expected=f"one of the steps {', '.join(map(str, kept)) or '(none is kept)'}",
            fix="train.save_every and train.keep_states decide which are saved and kept",
        )
    return ChosenLora(kept[step] / LORA_FILE, f"{lora.name}-step-{step}", lora.run)


def effect_problems(file: Path) -> tuple[Problem, ...]:
    """Report a LoRA whose `up` is all zeros: it was never trained, or its training failed."""
    from latentmill.stages.lora.layouts import read_lora

    if any(bool(layer.up.any()) for layer in read_lora(file).layers.values()):
        return ()
    return (
        Problem(
            id="",
            path=str(file),
            code="lora-without-effect",
            message="every weight of the LoRA's upper half is zero: it changes no picture",
            fix="train longer, or look at the loss and learning rate in the run's metrics",
        ),
    )


def _latest_run(layout: Layout) -> Path:
    runs = list_runs(layout)
    for run in reversed(runs):
        if (run / LORA_FILE).is_file():
            return run
    if runs:
        raise UsageError(
            f"no run has finished; {runs[-1].name} has no {LORA_FILE} yet",
            where=str(layout.runs),
            fix="finish it, or name a LoRA file",
            run=(Command("train", ("--resume",)), Command(flags=("--run", "FILE"))),
        )
    raise UsageError(
        "there is no LoRA yet: no run was made in this work folder",
        where=str(layout.runs),
        fix="train one, or name a LoRA file",
        run=(Command("train"), Command(flags=("--run", "FILE"))),
    )


def _file_in(folder: Path) -> Path:
    for name in (LORA_FILE, DIFFUSERS_FILE, PEFT_FILE):
        if (folder / name).is_file():
            return folder / name
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return files[0]
    raise UsageError(
        f"the folder holds {len(files)} .safetensors files"
        if files
        else "no LoRA is in this folder",
        where=str(folder),
        expected=f"{LORA_FILE}, {DIFFUSERS_FILE}, {PEFT_FILE} or a single .safetensors file",
        fix="name the file itself, or finish the run",
        run=(Command(flags=("--run", "FILE")), Command("train", ("--resume",))),
    )


def _checked(file: Path) -> Path:
    if file.suffix.lower() in PICKLES:
        raise UsageError(
            f"a {file.suffix} file is refused: it is a pickle, which can run any code when read",
            where=str(file),
            expected="a .safetensors file",
        )
    return file


def _describe(file: Path, layout: Layout) -> ChosenLora:
    folder = file.parent
    is_run = (folder / "config.toml").is_file() or folder.parent == layout.runs
    name = folder.name if is_run and file.name == LORA_FILE else file.stem
    if file.name in (DIFFUSERS_FILE, PEFT_FILE):
        name = folder.resolve().name
    return ChosenLora(file, name, folder if is_run else None)
