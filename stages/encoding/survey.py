"""What the cache must hold for a work, and what of it is there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from latentmill.cache.fingerprints import SampleKeys, TextRecipe, latent_key, text_key
from latentmill.cache.library import Library, Origin, read_library
from latentmill.cache.models.weight_hashes import EncoderHashes
from latentmill.cache.shards import shard_name
from latentmill.datasets.buckets import BucketRules, Placement, place
from latentmill.datasets.caption_variants import VariantRules, caption_variants
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.images import LoadRules
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, read_manifest
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.selection import Sample, require_reviewed, select_samples
from latentmill.stages.encoding.imported import Imported
from latentmill.stages.settings import BucketSettings, CacheSettings, Source, ValidateSettings

_LATER_CACHE: Final = ("text_chunks", "flip", "variants", "keep_tags", "tag_dropout", "separator")
_LATER_BUCKET: Final = ("shape", "fit", "without")
"""Settings that older indexes do not know."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides tensors, the pictures and captions aside."""

    rules: BucketRules
    hashes: EncoderHashes
    settings: CacheSettings

    @property
    def text(self) -> TextRecipe:
        """The part of it that concerns captions."""
        return TextRecipe(
            self.hashes.tokenizer,
            self.hashes.text_encoder,
            self.settings.clip_skip,
            self.settings.dtype,
            self.settings.text_chunks,
        )

    @property
    def variants(self) -> VariantRules:
        """Which texts a caption becomes."""
        one = self.settings
        return VariantRules(one.variants, one.keep_tags, one.tag_dropout, one.separator)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sample as it must stand in a shard; `text_keys` are those of its texts, one each."""

    sample: Sample
    placement: Placement
    keys: SampleKeys
    texts: tuple[str, ...]
    text_keys: tuple[str, ...]
    imported: Imported | None = None

    @property
    def bucket(self) -> str:
        """The bucket's label."""
        return self.placement.bucket.label


@dataclass(frozen=True, slots=True)
class Task:
    """One sample to write: each latent and text is copied from its origin, or encoded if None."""

    wanted: Wanted
    latents_from: tuple[Origin | None, ...]
    texts_from: tuple[Origin | None, ...]


@dataclass(frozen=True, slots=True)
class ShardUnit:
    """One shard to write."""

    name: str
    bucket: str
    tasks: tuple[Task, ...]

    @property
    def label(self) -> str:
        """The shard's name."""
        return self.name

    @property
    def size(self) -> int:
        """The number of its samples."""
        return len(self.tasks)


def read_samples(
    layout: Layout, sources: Sequence[Source], encoding: str, accept_drafts: bool
) -> tuple[Sample, ...]:
    """Return the samples to train on; raises DataError while captions wait for a person."""
    records = read_records(layout, len(sources))
    rows = read_review(layout, encoding)
    selection = select_samples(records, rows, sources, accept_drafts)
    require_reviewed(selection)
    return selection.samples


def read_records(layout: Layout, num_sources: int) -> list[Record]:
    """Return the usable pictures that `validate` found, for the sources of this run."""
    if not layout.manifest.is_file():
        raise UsageError(
            "the pictures were not validated yet",
            where=str(layout.manifest),
            fix="validate them first",
            run=(Command("validate"),),
        )
    try:
        records = read_manifest(layout.manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "the manifest is damaged, or of another version",
            where=str(layout.manifest),
            fix="validate again",
            run=(Command("validate"),),
        ) from error
    if any(record.source >= num_sources for record in records):
        raise UsageError(
            "there are fewer data sources now than when the pictures were validated",
            where=str(layout.manifest),
            fix="validate again",
            run=(Command("validate"),),
        )
    return records


def recipe_settings(bucket: BucketSettings, cache: CacheSettings) -> dict[str, object]:
    """The settings that decide tensors, as the set's index keeps them.

    Those that came later stand there only where they are not at their default: the index of a set
    that they do not touch stays as it was.
    """
    later = {name: getattr(cache, name) for name in _LATER_CACHE if _is_set(cache, name)}
    buckets = {
        name: value
        for name, value in bucket.model_dump(mode="json").items()
        if name not in _LATER_BUCKET or _is_set(bucket, name)
    }
    return {"bucket": buckets, "clip_skip": cache.clip_skip, "dtype": cache.dtype, **later}


def _is_set(section: BaseModel, name: str) -> bool:
    return bool(getattr(section, name) != type(section).model_fields[name].default)


def bucket_rules(settings: BucketSettings) -> BucketRules:
    """The settings as the bucket functions take them."""
    return BucketRules(**settings.model_dump())


def load_rules(settings: ValidateSettings) -> LoadRules:
    """The settings as the picture loader takes them."""
    return LoadRules(settings.background, settings.max_megapixels, settings.animated)


def wanted_samples(
    samples: Sequence[Sample],
    sources: Sequence[Source],
    recipe: Recipe,
    imported: Mapping[str, Imported],
) -> list[Wanted]:
    """Place every sample and name its tensors, in the order of shards: bucket, then id."""
    wanted = [
        _wanted(sample, sources[sample.record.source], recipe, imported.get(sample.record.id))
        for sample in samples
    ]
    return sorted(wanted, key=lambda one: (one.placement.bucket, one.keys.id))


def _wanted(sample: Sample, source: Source, recipe: Recipe, imported: Imported | None) -> Wanted:
    record, settings = sample.record, recipe.settings
    placement = place(record.width, record.height, recipe.rules, source.crop_anchor)
    texts = caption_variants(sample.caption, source.trigger, recipe.variants)
    if imported is None or not imported.fits(record, placement, recipe.hashes.vae):
        imported = None
        latents = [
            latent_key(record.pixels, placement, recipe.hashes.vae, settings.dtype, is_flipped)
            for is_flipped in ((False, True) if settings.flip else (False,))
        ]
    else:
        latents = imported.keys(settings.dtype, settings.flip)
    keys = SampleKeys(record.id, latents[0], text_key(texts, recipe.text), "".join(latents[1:]))
    text_keys = tuple(text_key([text], recipe.text) for text in texts)
    return Wanted(sample, placement, keys, texts, text_keys, imported)


def library_for(folder: Path, wanted: Sequence[Wanted], texts: Sequence[str] = ()) -> Library:
    """Look up what of the wanted samples, and of further text keys, is already encoded."""
    variants = [key for one in wanted for key in one.text_keys]
    return read_library(folder, [one.keys for one in wanted], [*texts, *variants])


def missing_units(wanted: Sequence[Wanted], library: Library, shard_size: int) -> list[ShardUnit]:
    """Divide what no shard holds into new shards of one bucket.

    Whole shards of an interrupted run fall out of the list whole: the rest divides as before.
    """
    missing = [one for one in wanted if one.keys not in library.samples]
    units = []
    for bucket, group in groupby(missing, key=lambda one: one.bucket):
        for chunk in _chunks(list(group), shard_size):
            tasks = tuple(_task(one, library) for one in chunk)
            name = shard_name(bucket, [one.keys for one in chunk])
            units.append(ShardUnit(name, bucket, tasks))
    return units


def details(wanted: Wanted) -> dict[str, object]:
    """What `ID.json` says about a sample."""
    record, bucket = wanted.sample.record, wanted.placement.bucket
    values: dict[str, object] = {
        "id": wanted.keys.id,
        "captions": list(wanted.texts),
        "original_size": [record.width, record.height],
        **(_cut_out(wanted.placement) if wanted.imported is None else wanted.imported.details()),
        "bucket": bucket.label,
        "latent_key": wanted.keys.latent_key,
        "text_key": wanted.keys.text_key,
    }
    return values | ({"flipped_key": wanted.keys.flipped_key} if wanted.keys.flipped_key else {})


def _cut_out(placement: Placement) -> dict[str, object]:
    bucket, box = placement.bucket, placement.picture
    values: dict[str, object] = {
        "resized": [placement.resized_width, placement.resized_height],
        "crop": [placement.left, placement.top, bucket.width, bucket.height],
    }
    padding = {"picture": [box.left, box.top, box.right, box.bottom]}
    return values | (padding if placement.is_padded else {})


def _task(one: Wanted, library: Library) -> Task:
    return Task(
        wanted=one,
        latents_from=tuple(library.latents.get(key) for key in one.keys.latent_keys),
        texts_from=tuple(library.texts.get(key) for key in one.text_keys),
    )


def _chunks(items: list[Wanted], size: int) -> Iterator[list[Wanted]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
