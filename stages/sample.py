"""A LoRA and prompts become pictures with and without it, and one labelled comparison of them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.files import write_bytes, write_text
from latentmill.cache.fingerprints import digest
from latentmill.cache.index import file_sha256
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.prompts import spread
from latentmill.datasets.records import Report
from latentmill.stages.lora.chosen import ChosenLora, choose_lora, effect_problems
from latentmill.stages.sampling.comparison_picture import ComparisonRow, draw_comparison
from latentmill.stages.sampling.prompts import training_captions
from latentmill.stages.sampling.recipe import trained_clip_skip, usual_size
from latentmill.stages.sampling.sampler import PictureRequest, SamplerKey, load_sampler
from latentmill.stages.settings import ModelSettings, SampleSettings, Source
from latentmill.stages.training.run_folder import LORA_FILE

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger(__name__)

FORMAT: Final = 1
"""Version of the recipe: a change here makes every picture anew."""
STAMP: Final = "latentmill"
"""The PNG text field with the key of a picture's recipe."""


@dataclass(frozen=True, slots=True)
class SampleUnit:
    """One prompt: the same noise with and without the LoRA. `key` names all that decides it."""

    number: int
    request: PictureRequest
    sampler: SamplerKey
    base: Path
    lora: Path
    key: str
    size: int = 2

    @property
    def label(self) -> str:
        """The prompt's number and beginning."""
        return f"prompt {self.number}: {self.request.prompt[:60]}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Draws fixed prompts from fixed seeds, so that runs can be compared.

    `review_encoding` is the encoding of `review.csv`, whose captions are prompts when none is set.
    """

    layout: Layout
    sources: tuple[Source, ...]
    settings: SampleSettings
    model: ModelSettings
    run: Path | None
    review_encoding: str = "auto"

    @property
    def name(self) -> str:
        """The stage's command and folder."""
        return "sample"

    def plan(self) -> Sequence[SampleUnit]:
        """One unit for each prompt whose two pictures are not there yet."""
        return tuple(unit for unit in self._units() if not _is_drawn(unit))

    def work(self, unit: SampleUnit, tick: Callable[[int], None]) -> SampleUnit:
        """Draw the prompt without and with the LoRA."""
        sampler = load_sampler(unit.sampler)
        cut = sampler.cut_of(unit.request.prompt)
        if cut:
            log.warning("%s: the text encoder has no room for its end: %s", unit.label, cut)
        for path, with_lora in ((unit.base, False), (unit.lora, True)):
            write_bytes(path, _png(sampler.draw(unit.request, with_lora), unit.key))
            tick(1)
        return unit

    def finish(self, results: Sequence[SampleUnit]) -> Report:
        """Put all pictures into one, write the prompts beside it, and name it."""
        chosen, units = self._chosen(), self._units()
        folder = samples_folder(self.layout, chosen)
        rows = [
            ComparisonRow(unit.number, unit.request.prompt, (unit.base, unit.lora))
            for unit in units
        ]
        columns = ("without LoRA", f"with LoRA, strength {self.settings.lora_scale:g}")
        picture = draw_comparison(self._title(chosen), columns, rows, "prompts.txt")
        write_bytes(folder / "comparison.png", _png(picture, digest("comparison", [FORMAT])))
        write_text(folder / "prompts.txt", _prompt_lines(units))
        return Report(
            stage=self.name,
            ok=True,
            counts={
                "prompts": len(units),
                "pictures": 2 * len(units),
                "drawn": 2 * len(results),
                "reused": 2 * (len(units) - len(results)),
            },
            problems=effect_problems(chosen.file),
            fingerprint=digest("samples", [unit.key for unit in units]),
            next_steps=(
                step(f"look at {folder / 'comparison.png'}"),
                step("write the LoRA for diffusers", Command("export")),
            ),
        )

    def _prompts(self, chosen: ChosenLora) -> tuple[str, ...]:
        if self.settings.prompts:
            return self.settings.prompts
        captions = training_captions(self.layout, self.sources, chosen.run, self.review_encoding)
        return spread(captions, self.settings.num_prompts)

    def _chosen(self) -> ChosenLora:
        return choose_lora(self.layout, self.run)

    def _units(self) -> list[SampleUnit]:
        chosen = self._chosen()
        folder = samples_folder(self.layout, chosen)
        prompts = self._prompts(chosen)
        request, sampler = self._request(), self._sampler_key(chosen)
        common = _common_key(sampler)
        units = []
        for number, prompt in enumerate(prompts, start=1):
            one = replace(request, prompt=prompt, seed=request.seed + number - 1)
            key = digest("sample", [common, asdict(one)])
            base, lora = (folder / f"{number:03d}-{kind}.png" for kind in ("base", "lora"))
            units.append(SampleUnit(number, one, sampler, base, lora, key))
        return units

    def _request(self) -> PictureRequest:
        """Return the request that all prompts share; the seed is the first one's."""
        width, height = usual_size(self.layout)
        return PictureRequest(
            prompt="",
            negative=self.settings.negative,
            seed=self.settings.seed,
            steps=self.settings.steps,
            guidance=self.settings.guidance,
            width=self.settings.width or width,
            height=self.settings.height or height,
        )

    def _sampler_key(self, chosen: ChosenLora) -> SamplerKey:
        return SamplerKey(
            model_id=self.model.id,
            revision=self.model.revision,
            clip_skip=trained_clip_skip(chosen.run),
            lora=chosen.file,
            lora_digest=_file_digest(chosen.file, chosen.file.stat().st_mtime_ns),
            lora_scale=self.settings.lora_scale,
            device=self.settings.device,
        )

    def _title(self, chosen: ChosenLora) -> str:
        settings = self.settings
        last = f"{settings.steps} steps, guidance {settings.guidance:g}"
        return f"{chosen.name}: the same seed in each row, from {settings.seed}; {last}"


def samples_folder(layout: Layout, chosen: ChosenLora) -> Path:
    """Return where the pictures of a LoRA go: into its run, or WORK/sample for other files."""
    if chosen.run is None:
        return layout.stage("sample") / chosen.name
    if chosen.file.name == LORA_FILE:
        return chosen.run / "samples"
    return chosen.run / "samples" / chosen.file.stem


def _is_drawn(unit: SampleUnit) -> bool:
    return all(_stamp(path) == unit.key for path in (unit.base, unit.lora))


def _stamp(path: Path) -> str | None:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return str(picture.info.get(STAMP))
    except (OSError, ValueError, SyntaxError):
        return None


def _png(picture: "Image", key: str) -> bytes:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text(STAMP, key)
    content = BytesIO()
    picture.save(content, "PNG", pnginfo=info, compress_level=6)
    return content.getvalue()


def _common_key(key: SamplerKey) -> str:
    """Name what all pictures depend on; where they are computed is left out."""
    model = [key.model_id, key.revision, key.clip_skip, _model_stamp(key.model_id)]
    return digest("sampler", [FORMAT, *model, key.lora_digest, key.lora_scale])


def _model_stamp(model_id: str) -> list[list[Any]]:
    """Sizes and times of a local model's files, by their names; empty for one on the hub.

    Configurations and vocabularies decide pictures as weights do.
    """
    path = Path(model_id).expanduser()
    kinds = (".safetensors", ".json", ".txt")
    inside = sorted(file for file in path.glob("*/*") if file.suffix in kinds)
    files = [path] if path.is_file() else inside
    stats = [(file.relative_to(path), file.stat()) for file in files]
    return [[name.as_posix(), at.st_size, at.st_mtime_ns] for name, at in stats]


@lru_cache(maxsize=4)
def _file_digest(path: Path, modified_ns: int) -> str:  # noqa: ARG001 - the time renews the cache
    return file_sha256(path)


def _prompt_lines(units: Sequence[SampleUnit]) -> str:
    lines = [
        f"{unit.number:03d}\tseed {unit.request.seed}\t{' '.join(unit.request.prompt.split())}"
        for unit in units
    ]
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode() + "\n"
