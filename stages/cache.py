"""Validated pictures and reviewed captions become shards: what is new or changed is encoded."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from latentmill.cache.disk import CACHE_ELSEWHERE, explained_failures, require_room
from latentmill.cache.files import remove_leftovers
from latentmill.cache.fingerprints import data_digest
from latentmill.cache.index import (
    CachedSample,
    FileStamp,
    SetIndex,
    read_set_index,
    write_set_index,
)
from latentmill.cache.models.part_configs import VaeConfig
from latentmill.cache.models.weight_hashes import encoder_hashes
from latentmill.cache.models.weights import (
    ModelFiles,
    read_part_config,
    require_one_text_encoder,
    resolve,
)
from latentmill.cache.part import Part
from latentmill.cache.shards import EncodedSample, write_shard
from latentmill.cache.works import own_record, record_work
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.images import LoadRules
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.datasets.words import counted
from latentmill.stages.encoding.cache_report import (
    ShardResult,
    Survey,
    caption_problems,
    counts,
    next_steps,
    part_report,
    require_complete,
    shard_result,
)
from latentmill.stages.encoding.encode_unit import Workbench, encode_unit
from latentmill.stages.encoding.encoders import Encoders, EncoderSettings, load_encoders, repeatable
from latentmill.stages.encoding.extras import Surroundings, plan_extras, write_extras
from latentmill.stages.encoding.geometry import estimated_bytes, require_fitting_step
from latentmill.stages.encoding.imported import read_imported
from latentmill.stages.encoding.survey import (
    Recipe,
    ShardUnit,
    bucket_rules,
    library_for,
    load_rules,
    missing_units,
    read_samples,
    recipe_settings,
    wanted_samples,
)
from latentmill.stages.encoding.unchanged import require_unchanged
from latentmill.stages.settings import (
    BucketSettings,
    CacheSettings,
    CaptionSettings,
    ModelSettings,
    SampleSettings,
    Source,
    ValidateSettings,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cache:
    """Encodes a set into shards that need no re-encoding until what they depend on changes."""

    layout: Layout
    sources: tuple[Source, ...]
    settings: CacheSettings
    bucket: BucketSettings
    validate: ValidateSettings
    caption: CaptionSettings
    model: ModelSettings
    sample: SampleSettings
    part: Part | None = None
    name: ClassVar[str] = "cache"

    def plan(self) -> Sequence[ShardUnit]:
        """Return the shards that must be written (of a part: its share); nothing is changed.

        Raises DataError for captions that wait and pictures that changed, DiskFullError when
        there is no room, ModelError and UsageError.
        """
        units = self._missing()
        return self._share(units, self._order(units))

    def prepare(self) -> Sequence[ShardUnit]:
        """Plan, record what is used and will be written, clear away what a killed run left.

        The caller holds the locks of both folders. Parts clear nothing: others are at work.
        """
        units = self._missing()
        order = self._order(units)
        with explained_failures(self.layout.cache_folder, CACHE_ELSEWHERE):
            if self.part is None:
                for folder in {self.layout.shards, self._folder}:
                    remove_leftovers(folder)
            record_work(self.layout, self._used(), order)
        return self._share(units, order)

    def work(self, unit: ShardUnit, tick: Callable[[int], None]) -> ShardResult:
        """Encode one shard and commit it."""
        shards = self.layout.shards
        with explained_failures(shards, CACHE_ELSEWHERE), repeatable() as num_threads:
            bench = Workbench(
                encoders=self._encoders(),
                shards=shards,
                rules=self._load_rules,
                batch_size=self.settings.batch_size,
                num_threads=num_threads,
            )
            samples = _ticked(encode_unit(unit, bench), tick)
            index = write_shard(shards, unit.name, unit.bucket, samples)
        _log.info("%s: %s, %.1f MiB", unit.name, counted(unit.size, "sample"), index.bytes / 2**20)
        return shard_result(unit)

    def finish(self, results: Sequence[ShardResult]) -> Report:
        """Write the set's extras and index; everything must be in shards by now.

        A part that others still work beside only reports: the last of them writes the index.
        """
        survey = self._survey()
        if self.part is not None and survey.missing:
            return part_report(self.part, survey, results)
        require_complete(survey)
        with explained_failures(self._folder, CACHE_ELSEWHERE):
            extras = self._write_extras(survey)
            index = self._set_index(survey, extras)
            used = [stamp.name for stamp in index.shards]
            record_work(self.layout, used, used)
            write_set_index(self.layout.cache_index, index)
            record_work(self.layout, used, ())
        load_encoders.cache_clear()
        return Report(
            stage=self.name,
            ok=True,
            counts=counts(index, survey, results),
            problems=tuple(caption_problems(survey)),
            fingerprint=index.digest,
            next_steps=next_steps(self.layout, index),
        )

    def _missing(self) -> list[ShardUnit]:
        """All shards that must be written, by whichever part."""
        survey = self._survey()
        require_unchanged([one.sample for one in survey.wanted], self._load_rules)
        units = missing_units(survey.wanted, survey.library, self.settings.shard_size)
        needed_bytes = estimated_bytes(units, self._files, self.settings)
        require_room(self.layout.shards, needed_bytes, CACHE_ELSEWHERE)
        return units

    def _order(self, units: Sequence[ShardUnit]) -> tuple[str, ...]:
        """The whole plan's shards: as the first part recorded them, also those that are done."""
        record = own_record(self.layout)  # Read last: a shard is there only after its record.
        names = [unit.name for unit in units]
        if record is not None and set(names) <= set(record.planned):
            return record.planned
        return tuple(names)

    def _share(self, units: Sequence[ShardUnit], order: Sequence[str]) -> Sequence[ShardUnit]:
        if self.part is None:
            return units
        places = {name: place for place, name in enumerate(order)}
        return [unit for unit in units if self.part.takes(places[unit.name])]

    def _used(self) -> list[str]:
        """Name the shards that the last finished run uses."""
        index = _previous(self.layout.cache_index)
        if index is not None:
            return [stamp.name for stamp in index.shards]
        record = own_record(self.layout)
        return list(record.shards) if record is not None else []

    @property
    def _folder(self) -> Path:
        return self.layout.stage(self.name)

    @property
    def _load_rules(self) -> LoadRules:
        return load_rules(self.validate)

    @property
    def _files(self) -> ModelFiles:
        return resolve(self.model.id, self.model.revision)

    def _encoders(self) -> Encoders:
        one = self.settings
        return load_encoders(
            EncoderSettings(self._files, one.device, one.dtype, one.clip_skip, one.text_chunks)
        )

    def _survey(self) -> Survey:
        samples = read_samples(
            self.layout, self.sources, self.caption.review_encoding, self.caption.accept_drafts
        )
        require_one_text_encoder(self._files)
        require_fitting_step(self.bucket.step, self._files)
        recipe = Recipe(
            rules=bucket_rules(self.bucket),
            hashes=encoder_hashes(self._files, self._folder / "weights.json"),
            settings=self.settings,
        )
        imported = read_imported(self.layout)
        wanted = tuple(wanted_samples(samples, self.sources, recipe, imported))
        extras = plan_extras(wanted, self.sample, recipe)
        library = library_for(self.layout.shards, wanted, extras.text_keys)
        return Survey(wanted, recipe, library, extras)

    def _write_extras(self, survey: Survey) -> FileStamp:
        around = Surroundings(
            folder=self._folder,
            shards=self.layout.shards,
            library=survey.library,
            rules=self._load_rules,
            previous=_previous(self.layout.cache_index),
        )
        return write_extras(survey.extras, around, self._encoders)

    def _set_index(self, survey: Survey, extras: FileStamp) -> SetIndex:
        vae = read_part_config(self._files, VaeConfig)
        samples = sorted((one.sample for one in survey.wanted), key=lambda one: one.record.id)
        cached = tuple(sorted(self._cached_samples(survey), key=lambda one: one.id))
        used = sorted({sample.shard for sample in cached})
        shards = [survey.library.shards[name] for name in used]
        return SetIndex(
            data_digest=data_digest(samples, self.sources),
            accept_drafts=self.caption.accept_drafts,
            scaling_factor=vae.scaling_factor,
            shift_factor=vae.shift_factor or 0.0,
            model={
                "id": self.model.id,
                "revision": self.model.revision,
                **asdict(survey.recipe.hashes),
            },
            recipe=recipe_settings(self.bucket, self.settings),
            prompts=survey.extras.texts[2:],
            negative=survey.extras.texts[1],
            extras=extras,
            shards=tuple(FileStamp(one.name, one.bytes, one.sha256) for one in shards),
            samples=cached,
        )

    def _cached_samples(self, survey: Survey) -> Iterator[CachedSample]:
        for one in survey.wanted:
            source = self.sources[one.sample.record.source]
            yield CachedSample(
                id=one.keys.id,
                shard=survey.library.samples[one.keys].shard,
                bucket=one.bucket,
                repeats=source.repeats,
                weight=source.weight,
                is_regularisation=source.is_regularisation,
                caption_by=one.sample.caption_by,
            )


def _ticked(
    samples: Iterable[EncodedSample], tick: Callable[[int], None]
) -> Iterator[EncodedSample]:
    for sample in samples:
        yield sample
        tick(1)


def _previous(path: Path) -> SetIndex | None:
    """The index of the last run; one that is missing or damaged is simply written anew."""
    try:
        return read_set_index(path)
    except (UsageError, DataError):
        return None
