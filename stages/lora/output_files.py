"""Decides which files an export writes."""

from pathlib import Path
from typing import Final

from latentmill.datasets.errors import UsageError
from latentmill.stages.lora import chosen as chosen_lora
from latentmill.stages.lora.chosen import ChosenLora
from latentmill.stages.settings import ExportSettings
from latentmill.stages.training.run_folder import LORA_FILE

PEFT_CONFIG_FILE: Final = "adapter_config.json"


def target_files(settings: ExportSettings, lora: ChosenLora) -> tuple[Path, ...]:
    """Return the files to write, the weights first; raises UsageError for a useless `output`."""
    output = (
        Path(settings.output).expanduser() if settings.output else _default_folder(settings, lora)
    )
    if settings.layout == "peft":
        if output.suffix in {".safetensors", *chosen_lora.PICKLES} or output.is_file():
            raise UsageError(
                "the PEFT layout is a folder of two files",
                where=f"export.output = {output}",
                expected="a folder, new or with an earlier export of the same LoRA",
            )
        return (output / chosen_lora.PEFT_FILE, output / PEFT_CONFIG_FILE)
    kohya = "-".join((lora.name, *_changes(settings)))
    names = {"diffusers": chosen_lora.DIFFUSERS_FILE, "kohya": f"{kohya}.safetensors"}
    file = _file_of(output, names[settings.layout])
    if file.exists() and file.samefile(lora.file):
        raise UsageError("the output is the LoRA itself", where=f"export.output = {output}")
    return (file,)


def _default_folder(settings: ExportSettings, lora: ChosenLora) -> Path:
    """Keep what differs apart: each step, rank and type of weights has its own folder."""
    folder = (lora.run or lora.file.parent) / "export"
    if lora.run is None or lora.file.name != LORA_FILE:
        folder /= lora.file.stem
    step = (f"step-{settings.step}",) if settings.step else ()
    return folder / "-".join((settings.layout, *step, *_changes(settings)))


def _changes(settings: ExportSettings) -> tuple[str, ...]:
    rank = (f"rank-{settings.rank}",) if settings.rank else ()
    dtype = (settings.dtype,) if settings.dtype != "keep" else ()
    return (*rank, *dtype)


def _file_of(output: Path, name: str) -> Path:
    if output.suffix == ".safetensors" and not output.is_dir():
        return output
    if output.suffix.lower() in chosen_lora.PICKLES or output.is_file():
        raise UsageError(
            "a LoRA is written as .safetensors only",
            where=f"export.output = {output}",
            expected="a name that ends in .safetensors, or a folder",
        )
    return output / name
