"""A LoRA in any of the three layouts becomes the file that another program loads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latentmill.cache.files import write_bytes
from latentmill.cache.models.weights import resolve
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import step
from latentmill.datasets.records import Problem, Report
from latentmill.stages.lora.chosen import ChosenLora, at_step, choose_lora, effect_problems
from latentmill.stages.lora.fitting import Pair
from latentmill.stages.lora.merged_model import require_free
from latentmill.stages.lora.output_files import target_files
from latentmill.stages.settings import ExportSettings, ModelSettings

if TYPE_CHECKING:
    from latentmill.stages.lora.layouts import LoraWeights

LISTS_OF_TAGS: Final = (
    *("ss_tag_frequency", "ss_datasets", "ss_dataset_dirs", "ss_reg_dataset_dirs"),
    *("ss_bucket_info", "ss_training_comment"),
)
"""Fields of foreign headers that hold captions, tags or folder names: not passed on."""


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
    """What was written, and what is in it; `notes` say what was given up for it."""

    files: tuple[Path, ...]
    num_layers: int
    rank: int
    digest: str
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """Writes a run's LoRA, or any LoRA file, in the layout that the settings name.

    With `export.merge` it writes the whole model instead, the LoRA added to its UNet.
    """

    settings: ExportSettings
    layout: Layout
    run_or_file: Path | None
    model: ModelSettings

    @property
    def name(self) -> str:
        """The stage's command."""
        return "export"

    def plan(self) -> Sequence[ExportUnit]:
        """Find the LoRA and decide where it goes; raises UsageError if either cannot be."""
        lora = choose_lora(self.layout, self.run_or_file)
        if self.settings.step:
            lora = at_step(lora, self.settings.step)
        if not self.settings.merge:
            return (ExportUnit(lora, target_files(self.settings, lora)),)
        if self.settings.output:
            raise UsageError(
                "export.output and export.merge are both given",
                expected="one of them: a LoRA file, or a whole model",
            )
        folder = Path(self.settings.merge).expanduser()
        require_free(folder)
        return (ExportUnit(lora, (folder,)),)

    def work(self, unit: ExportUnit, tick: Callable[[int], None]) -> Exported:
        """Convert and write; a file that is already there with the same bytes is left alone."""
        from latentmill.stages.lora.layouts import read_lora

        weights, notes = self._changed(read_lora(unit.lora.file))
        commit = self._merge if self.settings.merge else self._write
        digest = commit(weights, unit)
        tick(1)
        return Exported(
            files=unit.files,
            num_layers=len(weights.layers),
            rank=weights.rank,
            digest=digest,
            notes=notes,
            problems=effect_problems(unit.lora.file),
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
            problems=exported.problems,
            fingerprint=exported.digest,
            next_steps=tuple(
                map(step, (*exported.notes, *loading_steps(self.settings, exported.files[0])))
            ),
        )

    def _changed(self, lora: "LoraWeights") -> "tuple[LoraWeights, tuple[str, ...]]":
        """Shrink and round as the settings ask."""
        from latentmill.stages.lora.shrink import shrink
        from latentmill.stages.lora.storage import stored_as

        notes: tuple[str, ...] = ()
        if self.settings.rank:
            shrunk = shrink(lora, self.settings.rank)
            lora = shrunk.lora
            notes = (
                f"rank {lora.rank} keeps {shrunk.kept:.2%} of the LoRA's energy; "
                f"least in {shrunk.worst}: {shrunk.least:.2%}",
            )
        return stored_as(lora, self.settings.dtype), notes

    def _write(self, weights: "LoraWeights", unit: ExportUnit) -> str:
        contents = self._contents(weights, unit)
        for file, content in contents.items():
            _refuse_other(file, content, self.settings)
        for file, content in contents.items():
            if not file.is_file() or file.read_bytes() != content:
                write_bytes(file, content)
        return sha256(contents[unit.files[0]]).hexdigest()

    def _merge(self, weights: "LoraWeights", unit: ExportUnit) -> str:
        from latentmill.stages.lora.merged_model import Merge, write_merged_model

        (folder,) = unit.files
        pair = Pair(unit.lora.file, self.model.id)
        files = resolve(self.model.id, self.model.revision)
        write_merged_model(weights, Merge(files, pair, self.settings.scale, folder))
        return sha256(unit.lora.file.read_bytes()).hexdigest()

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
        return {unit.files[0]: _kohya_content(weights, header)}


def loading_steps(settings: ExportSettings, file: Path) -> tuple[str, ...]:
    """Say how the exported file is loaded, in two lines that can be pasted."""
    if settings.merge:
        loaded = f"pipeline = StableDiffusionPipeline.from_pretrained({str(file)!r})"
        return (f"merged: {file}, a whole model of its own", loaded)
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


def _refuse_other(file: Path, content: bytes, settings: ExportSettings) -> None:
    if settings.output and file.is_file() and file.read_bytes() != content:
        raise UsageError(
            "another file is there already and stays as it is",
            where=str(file),
            fix="choose another export.output, or move that file away",
        )


def _kept_header(file: Path) -> dict[str, str]:
    """Take over what the source's header says, without hashes and lists of tags or folders."""
    from latentmill.stages.lora.kohya_file import HASH_FIELDS
    from latentmill.stages.lora.layouts import DIFFUSERS_CONFIG_KEY, read_header

    left_out = {*LISTS_OF_TAGS, *HASH_FIELDS, DIFFUSERS_CONFIG_KEY}
    return {key: text for key, text in read_header(file).items() if key not in left_out}


def _kohya_content(weights: "LoraWeights", header: Mapping[str, str]) -> bytes:
    from latentmill.stages.lora.kohya_file import kohya_bytes
    from latentmill.stages.lora.one_alpha import with_one_alpha

    uniform = with_one_alpha(weights)
    fields = {
        "ss_network_module": "networks.lora",
        "ss_network_dim": str(uniform.rank),
        "ss_network_alpha": f"{uniform.alpha:g}",
    }
    return kohya_bytes(uniform, {**header, **fields})
