"""A LoRA in any of the three layouts becomes the file that another program loads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latentmill.cache.files import write_bytes
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.stages.lora import chosen as chosen_lora
from latentmill.stages.lora.chosen import ChosenLora, choose_lora, effect_problems
from latentmill.stages.settings import ExportSettings
from latentmill.stages.training.run_folder import LORA_FILE

if TYPE_CHECKING:
    from latentmill.stages.lora.layouts import LoraWeights

PEFT_CONFIG_FILE: Final = "adapter_config.json"
LISTS_OF_TAGS: Final = (
    *("ss_tag_frequency", "ss_datasets", "ss_dataset_dirs", "ss_reg_dataset_dirs"),
    *("ss_bucket_info", "ss_training_comment"),
)
"""Fields of foreign headers that hold captions, tags or folder names: not passed on."""
HASHES: Final = ("sshs_model_hash", "sshs_legacy_hash", "modelspec.hash_sha256")


@dataclass(frozen=True, slots=True)
class ExportUnit:
    """The one thing to do: this LoRA to these places, the weights' file first."""

    lora: ChosenLora
    files: tuple[Path, ...]
    size: int = 1

    @property
    def label(self) -> str:
        """The LoRA's name."""
        return self.lora.name


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and what is in it."""

    files: tuple[Path, ...]
    num_layers: int
    rank: int
    digest: str


@dataclass(frozen=True, slots=True)
class Export:
    """Writes a run's LoRA, or any LoRA file, in the layout that the settings name."""

    settings: ExportSettings
    layout: Layout
    run_or_file: Path | None

    @property
    def name(self) -> str:
        """The stage's command."""
        return "export"

    def plan(self) -> Sequence[ExportUnit]:
        """Find the LoRA and decide where it goes; raises UsageError if either cannot be."""
        lora = choose_lora(self.layout, self.run_or_file)
        return (ExportUnit(lora, target_files(self.settings, lora)),)

    def work(self, unit: ExportUnit, tick: Callable[[int], None]) -> Exported:
        """Convert and write; a file that is already there with the same bytes is left alone."""
        from latentmill.stages.lora.layouts import read_lora

        weights = read_lora(unit.lora.file)
        contents = self._contents(weights, unit)
        for file, content in contents.items():
            _refuse_other(file, content, self.settings)
        for file, content in contents.items():
            if not file.is_file() or file.read_bytes() != content:
                write_bytes(file, content)
        tick(1)
        return Exported(
            files=tuple(contents),
            num_layers=len(weights.layers),
            rank=weights.rank,
            digest=sha256(contents[unit.files[0]]).hexdigest(),
        )

    def finish(self, results: Sequence[Exported]) -> Report:
        """Name the file and the lines that load it."""
        (exported,) = results
        return Report(
            stage=self.name,
            ok=True,
            counts={
                "files": len(exported.files),
                "layers": exported.num_layers,
                "rank": exported.rank,
            },
            problems=effect_problems(exported.files[0]),
            fingerprint=exported.digest,
            next_steps=loading_steps(self.settings, exported.files[0]),
        )

    def _contents(self, weights: "LoraWeights", unit: ExportUnit) -> dict[Path, bytes]:
        from latentmill.cache.tensor_file import tensor_bytes
        from latentmill.stages.lora import layouts as lora

        if self.settings.layout == "peft":
            config = json.dumps(lora.peft_config(weights), sort_keys=True, indent=1) + "\n"
            tensors = tensor_bytes(lora.to_peft(weights), {"format": "pt"})
            return dict(zip(unit.files, (tensors, config.encode()), strict=True))
        header = _kept_header(unit.lora.file)
        if self.settings.layout == "diffusers":
            header |= lora.diffusers_header(weights)
            return {unit.files[0]: tensor_bytes(lora.to_diffusers(weights), header)}
        return {unit.files[0]: _kohya_bytes(weights, header)}


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
    names = {"diffusers": chosen_lora.DIFFUSERS_FILE, "kohya": f"{lora.name}.safetensors"}
    file = _file_of(output, names[settings.layout])
    if file.exists() and file.samefile(lora.file):
        raise UsageError("the output is the LoRA itself", where=f"export.output = {output}")
    return (file,)


def loading_steps(settings: ExportSettings, file: Path) -> tuple[str, ...]:
    """Say how the exported file is loaded, in two lines that can be pasted."""
    opened = "pipeline = StableDiffusionPipeline.from_pretrained(MODEL)"
    if settings.layout == "peft":
        loaded = f"unet = PeftModel.from_pretrained(pipeline.unet, {str(file.parent)!r})"
        return (f"exported: {file.parent}", opened, loaded)
    if settings.layout == "kohya":
        return (
            f"exported: {file}",
            "ComfyUI: copy it to models/loras and load it with LoraLoader",
            f"A1111: copy it to models/Lora and write <lora:{file.stem}:1> in the prompt",
        )
    loaded = f"pipeline.load_lora_weights({str(file.parent)!r}, weight_name={file.name!r})"
    return (f"exported: {file}", opened, loaded)


def _default_folder(settings: ExportSettings, lora: ChosenLora) -> Path:
    is_main = lora.run is not None and lora.file.name == LORA_FILE
    folder = lora.file.parent / "export"
    return folder / settings.layout if is_main else folder / lora.file.stem / settings.layout


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


def _refuse_other(file: Path, content: bytes, settings: ExportSettings) -> None:
    if settings.output and file.is_file() and file.read_bytes() != content:
        raise UsageError(
            "another file is there already and stays as it is",
            where=str(file),
            fix="choose another export.output, or move that file away",
        )


def _kept_header(file: Path) -> dict[str, str]:
    """Take over what the source's header says, without hashes and lists of tags or folders."""
    from latentmill.stages.lora.layouts import DIFFUSERS_CONFIG_KEY, read_header

    left_out = {*LISTS_OF_TAGS, *HASHES, DIFFUSERS_CONFIG_KEY}
    return {key: text for key, text in read_header(file).items() if key not in left_out}


def _kohya_bytes(weights: "LoraWeights", header: Mapping[str, str]) -> bytes:
    from latentmill.cache.tensor_file import tensor_bytes
    from latentmill.stages.lora.layouts import to_kohya
    from latentmill.stages.lora.one_alpha import with_one_alpha

    uniform = with_one_alpha(weights)
    fields = {
        "ss_network_module": "networks.lora",
        "ss_network_dim": str(uniform.rank),
        "ss_network_alpha": f"{uniform.alpha:g}",
    }
    return tensor_bytes(to_kohya(uniform), {**header, **fields})
