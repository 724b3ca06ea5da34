"""Shards become a LoRA: the UNet and the LoRA are loaded, no VAE and no text encoder."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from latentmill.cache.files import write_json
from latentmill.cache.mapped import MappedCache
from latentmill.cache.models.model_folder import holds_all_parts
from latentmill.cache.models.unet_hash import unet_hash
from latentmill.cache.models.weights import resolve
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Report, read_manifest
from latentmill.datasets.words import counted
from latentmill.stages.lora.header import Provenance
from latentmill.stages.settings import ModelSettings, SampleSettings, Source, TrainSettings
from latentmill.stages.training.checkpoint import (
    Progress,
    State,
    StepOrder,
    latest_state,
    remove_unfinished,
    require_same,
    say_changes,
)
from latentmill.stages.training.data import open_cache, picture_names, tensors_digest
from latentmill.stages.training.hardware import Hardware, open_hardware
from latentmill.stages.training.holdout import Parting, part_samples, unique_ids
from latentmill.stages.training.out_of_memory import Phase, explained_memory
from latentmill.stages.training.run_folder import (
    anew,
    create_run,
    find_run,
    read_held_out,
    renew_config,
    slug,
    write_held_out,
    write_snapshot,
)
from latentmill.stages.training.step_plan import StepPlan

log = logging.getLogger(__name__)

FIXED: Final = ("rank", "alpha", "targets", "seed", "holdout")
"""Settings that a resumed run must not change: the LoRA's form, and all that is drawn."""


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
    num_held_out: int
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
    sample: SampleSettings = field(default_factory=SampleSettings)
    name: ClassVar[str] = "train"

    def plan(self) -> Sequence[TrainUnit]:
        """Check the cache and the run to resume; nothing is loaded, no folder is made.

        Raises UsageError and DataError: no cache, a stale or damaged one, nothing to resume.
        """
        cache = self._cache()
        resolve(self.model.id, self.model.revision)
        if not self.resume:
            steps = self._steps(self._parting(cache, None))
            return [TrainUnit(self._slug, None, 0, self._stop(steps))]
        run = find_run(self.layout, self.run)
        state = latest_state(run)
        require_same(state, self._fixed(cache), run)
        stop = self._stop(self._steps(self._parting(cache, run), state.order))
        if state.progress.best.is_exhausted(self.settings.patience):
            raise UsageError(
                f"nothing to do: {run.name} stopped early after step {state.progress.step}",
                where=f"{run}, train.patience = {self.settings.patience}",
                fix="go on in spite of it, or train anew",
                run=(Command("train", ("--resume",), ("train.patience=0",)), Command("train")),
            )
        if state.progress.step >= stop:
            longer = Command("train", ("--resume",), (f"train.steps={2 * state.progress.step}",))
            raise UsageError(
                f"nothing to do: {run.name} has done all of its {counted(stop, 'step')}",
                where=str(run),
                fix="train it longer, or train anew",
                run=(longer, anew(run)),
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
                "held_out": result.num_held_out,
                "optimizer_steps": result.progress.step,
                "epochs": result.epochs,
                "samples_seen": result.progress.samples_seen,
            },
            fingerprint=result.cache_digest,
            seconds=round(result.progress.seconds, 3),
            next_steps=(self._next_step,),
        )
        write_json(result.run / "report.json", report.to_json())
        return report

    def _train(
        self, unit: TrainUnit, hardware: Hardware, phase: Phase, tick: Callable[[int], None]
    ) -> TrainResult:
        from latentmill.stages.training.job import Job
        from latentmill.stages.training.loop import train
        from latentmill.stages.training.preview import PreviewRecipe
        from latentmill.stages.training.trainee import load_trainee

        cache = self._cache()
        cached_with = cache.index.model.get("id", self.model.id)
        if Path(cached_with).expanduser().absolute() != Path(self.model.id).expanduser().absolute():
            log.warning("the cache was made with %s", cached_with)
        files = resolve(self.model.id, self.model.revision)
        trainee = load_trainee(files, self.settings, cache, hardware)
        state = self._state_of(unit, hardware)
        run = unit.run or Path(hardware.shared(lambda: str(self._new_run())))
        parting = self._parting(cache, unit.run)
        if hardware.is_leader:
            write_held_out(run, [sample.id for sample in parting.held_out])
        steps = self._steps(parting, state.order if state else None)
        job = Job(
            settings=self.settings,
            hardware=hardware,
            trainee=trainee,
            samples=cache,
            parting=parting,
            steps=steps,
            stop=unit.stop,
            run=run,
            origin=self._provenance(cache, parting, trainee),
            fixed=self._fixed(cache),
            said=self._said,
            preview=PreviewRecipe(self.sample.steps, self.sample.guidance, self.sample.seed),
            name_pictures=lambda ids: picture_names(self.layout, ids),
        )
        progress = train(job, state, phase, tick)
        log.info("LoRA: %s", run / "lora.safetensors")
        epochs = steps.epoch_of(progress.step - 1) + 1
        num_samples, num_held_out = len(parting.trained), len(parting.held_out)
        return TrainResult(run, progress, epochs, num_samples, num_held_out, cache.digest)

    def _cache(self) -> MappedCache:
        return open_cache(self.layout, self.sources, self.encoding, self.recipe)

    def _stop(self, steps: StepPlan) -> int:
        return steps.total_steps(self.settings.epochs, self.settings.steps)

    def _parting(self, cache: MappedCache, run: Path | None) -> Parting:
        """What is held out: of a resumed run the samples that its folder names."""
        settings = self.settings
        wanted = settings.holdout if run is None else read_held_out(run)
        unique = unique_ids(read_manifest(self.layout.manifest)) if wanted else frozenset[str]()
        return part_samples(cache.samples, wanted, unique, settings.seed)

    def _steps(self, parting: Parting, order: StepOrder | None = None) -> StepPlan:
        """The steps of a run that began with `order`, divided into batches as the settings say."""
        settings = self.settings
        order = order or self._order
        sizes = order.batch_size, order.accumulation
        return StepPlan(parting.trained, *sizes, settings.seed, settings.batch_size)

    @property
    def _order(self) -> StepOrder:
        num_processes = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, and accelerate's
        settings = self.settings
        return StepOrder(settings.batch_size, settings.gradient_accumulation * num_processes)

    @property
    def _said(self) -> dict[str, Any]:
        """What a resume may change, by the names of the settings."""
        values = self.settings.model_dump(exclude=set(FIXED))
        return {f"train.{name}": value for name, value in values.items()} | {
            "model.id": self.model.id,
            "model.revision": self.model.revision,
        }

    def _state_of(self, unit: TrainUnit, hardware: Hardware) -> State | None:
        if unit.run is None:
            return None
        state = latest_state(unit.run)
        if not hardware.is_leader:
            return state
        remove_unfinished(unit.run)
        log.info("resuming %s after step %d", unit.run.name, state.progress.step)
        say_changes(state, self._said)
        renew_config(unit.run, self.config_text, state.progress.step)
        return state

    def _new_run(self) -> Path:
        run = create_run(self.layout, self._slug)
        write_snapshot(run, self.layout, self.config_text)
        return run

    @property
    def _next_step(self) -> NextStep:
        if holds_all_parts(self.model.id):
            return step("see what it does", Command("sample"))
        whole = Command("sample", ("--model", "ID-or-PATH"))
        return step("see what it does, with the whole model", whole)

    @property
    def _slug(self) -> str:
        return slug(self.settings.name or Path(self.sources[0].path).expanduser().resolve().name)

    def _fixed(self, cache: MappedCache) -> dict[str, Any]:
        values = self.settings.model_dump(include=set(FIXED))
        files = resolve(self.model.id, self.model.revision)
        return {
            **{f"train.{name}": value for name, value in values.items()},
            "samples a step": self._order.batch_size * self._order.accumulation,
            "the UNet": unet_hash(files, self.layout.stage(self.name) / "weights.json"),
            "the data": tensors_digest(cache.index),
        }

    def _provenance(self, cache: MappedCache, parting: Parting, trainee: Any) -> Provenance:
        return Provenance(
            name=self._slug,
            model=Path(self.model.id).name,
            text_width=trainee.text_width,
            prediction=trainee.schedule.prediction,
            cache_digest=cache.digest,
            num_samples=len(parting.trained),
            draft_captions=sum(sample.caption_by == "draft" for sample in parting.trained),
            buckets=tuple(sorted({sample.bucket for sample in cache.samples})),
        )
