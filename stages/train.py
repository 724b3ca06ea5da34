"""Shards become a LoRA: the UNet and the LoRA are loaded, no VAE and no text encoder."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from latentmill.cache.files import write_json
from latentmill.cache.mapped import MappedCache
from latentmill.cache.models.weights import resolve
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.stages.lora.header import Provenance
from latentmill.stages.settings import ModelSettings, Source, TrainSettings
from latentmill.stages.training.checkpoint import (
    Progress,
    State,
    latest_state,
    remove_unfinished,
    require_same,
    say_changes,
)
from latentmill.stages.training.data import open_cache, picture_names, tensors_digest
from latentmill.stages.training.hardware import Hardware, open_hardware
from latentmill.stages.training.out_of_memory import Phase, explained_memory
from latentmill.stages.training.run_folder import create_run, find_run, slug, write_snapshot
from latentmill.stages.training.step_plan import StepPlan

log = logging.getLogger(__name__)

FIXED: Final = ("rank", "alpha", "targets", "seed", "batch_size", "gradient_accumulation")
"""Settings that a resumed run must not change: the LoRA's form and the order of samples."""


@dataclass(frozen=True, slots=True)
class TrainUnit:
    """One run, or the rest of one: `run` is None for a new folder."""

    label: str
    run: Path | None
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Optimiser steps to do."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where a run ended."""

    run: Path
    progress: Progress
    epochs: int
    num_samples: int
    cache_digest: str


@dataclass(frozen=True, slots=True)
class Train:
    """Trains one LoRA on the cached samples, or resumes a run that was cut off.

    `encoding` is that of `review.csv`. `recipe` is what the cache must have been made by (see
    `recipe_settings`); empty takes any.
    """

    layout: Layout
    sources: tuple[Source, ...]
    settings: TrainSettings
    model: ModelSettings
    resume: bool
    run: Path | None
    config_text: str
    encoding: str = "auto"
    recipe: Mapping[str, object] = field(default_factory=dict)
    name: ClassVar[str] = "train"

    def plan(self) -> Sequence[TrainUnit]:
        """Check the cache and the run to resume; nothing is loaded, no folder is made.

        Raises UsageError and DataError: no cache, a stale or damaged one, nothing to resume.
        """
        cache = self._cache()
        resolve(self.model.id, self.model.revision)
        stop = self._steps(cache).total_steps(self.settings.epochs, self.settings.steps)
        if not self.resume:
            return [TrainUnit(self._slug, None, 0, stop)]
        run = find_run(self.layout, self.run)
        state = latest_state(run)
        require_same(state, self._fixed(cache), run)
        if state.progress.step >= stop:
            raise UsageError(
                f"nothing to do: {run.name} has done all of its {stop} steps",
                where=str(run),
                fix="train anew without --resume, or raise train.epochs or train.steps",
            )
        return [TrainUnit(run.name, run, state.progress.step, stop)]

    def work(self, unit: TrainUnit, tick: Callable[[int], None]) -> TrainResult:
        """Train from the last state to the end; states are saved on the way and on Ctrl-C."""
        phase = Phase("while the model is loaded")
        with open_hardware(self.settings) as hardware, explained_memory(self.settings, phase):
            return self._train(unit, hardware, phase, tick)

    def finish(self, results: Sequence[TrainResult]) -> Report:
        """Report the run, in its own folder too."""
        (result,) = results
        report = Report(
            stage=self.name,
            ok=True,
            counts={
                "samples": result.num_samples,
                "held_out": 0,
                "optimizer_steps": result.progress.step,
                "epochs": result.epochs,
                "samples_seen": result.progress.samples_seen,
            },
            fingerprint=result.cache_digest,
            seconds=round(result.progress.seconds, 3),
            next_steps=("run `latentmill sample` to see what it does",),
        )
        write_json(result.run / "report.json", report.to_json())
        return report

    def _train(
        self, unit: TrainUnit, hardware: Hardware, phase: Phase, tick: Callable[[int], None]
    ) -> TrainResult:
        from latentmill.stages.training.loop import Job, train
        from latentmill.stages.training.trainee import load_trainee

        cache = self._cache()
        if cache.index.model.get("id", self.model.id) != self.model.id:
            log.warning("the cache was made with %s", cache.index.model["id"])
        files = resolve(self.model.id, self.model.revision)
        trainee = load_trainee(files, self.settings, cache, hardware)
        state = self._state_of(unit)
        run = unit.run or self._new_run()
        steps = self._steps(cache)
        job = Job(
            settings=self.settings,
            hardware=hardware,
            trainee=trainee,
            samples=cache,
            steps=steps,
            stop=unit.stop,
            run=run,
            origin=self._provenance(cache, trainee),
            fixed=self._fixed(cache),
            name_pictures=lambda ids: picture_names(self.layout, ids),
        )
        progress = train(job, state, phase, tick)
        log.info("LoRA: %s", run / "lora.safetensors")
        epochs = steps.epoch_of(progress.step - 1) + 1
        return TrainResult(run, progress, epochs, len(cache.samples), cache.digest)

    def _cache(self) -> MappedCache:
        return open_cache(self.layout, self.sources, self.encoding, self.recipe)

    def _steps(self, cache: MappedCache) -> StepPlan:
        settings = self.settings
        num_processes = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, and accelerate's
        accumulation = settings.gradient_accumulation * num_processes
        return StepPlan(cache.samples, settings.batch_size, accumulation, settings.seed)

    def _state_of(self, unit: TrainUnit) -> State | None:
        if unit.run is None:
            return None
        state = latest_state(unit.run)
        remove_unfinished(unit.run)
        log.info("resuming %s after step %d", unit.run.name, state.progress.step)
        say_changes(state, self.settings.model_dump(exclude=set(FIXED)))
        return state

    def _new_run(self) -> Path:
        run = create_run(self.layout, self._slug)
        write_snapshot(run, self.layout, self.config_text)
        return run

    @property
    def _slug(self) -> str:
        return slug(self.settings.name or Path(self.sources[0].path).expanduser().resolve().name)

    def _fixed(self, cache: MappedCache) -> dict[str, Any]:
        values = self.settings.model_dump(include=set(FIXED))
        return {
            **{f"train.{name}": value for name, value in values.items()},
            "model.id": self.model.id,
            "model.revision": self.model.revision,
            "the data": tensors_digest(cache),
        }

    def _provenance(self, cache: MappedCache, trainee: Any) -> Provenance:
        return Provenance(
            name=self._slug,
            model=Path(self.model.id).name,
            text_width=trainee.text_width,
            prediction=trainee.schedule.prediction,
            cache_digest=cache.digest,
            num_samples=len(cache.samples),
            draft_captions=sum(sample.caption_by == "draft" for sample in cache.samples),
            buckets=tuple(sorted({sample.bucket for sample in cache.samples})),
        )
