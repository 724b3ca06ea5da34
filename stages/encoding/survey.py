"""What the cache must hold for a work, and what of it is there."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from latentmill.cache.fingerprints import SampleKeys, TextRecipe, latent_key, text_key
from latentmill.cache.library import Library, Origin, read_library
from latentmill.cache.models.weight_hashes import EncoderHashes
from latentmill.cache.shards import shard_name
from latentmill.datasets.buckets import BucketRules, Placement, place
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, read_manifest
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.selection import Sample, require_reviewed, select_samples
from latentmill.datasets.words import counted
from latentmill.stages.settings import BucketSettings, CacheSettings, Source, ValidateSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides tensors, the pictures and captions aside."""

    rules: BucketRules
    hashes: EncoderHashes
    clip_skip: int
    dtype: str

    @property
    def text(self) -> TextRecipe:
        """The part of it that concerns captions."""
        return TextRecipe(
            self.hashes.tokenizer, self.hashes.text_encoder, self.clip_skip, self.dtype
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sample as it must stand in a shard."""

    sample: Sample
    placement: Placement
    keys: SampleKeys

    @property
    def bucket(self) -> str:
        """The bucket's label."""
        return self.placement.bucket.label


@dataclass(frozen=True, slots=True)
class Task:
    """One sample to write: encoded anew, or copied from where it already is."""

    wanted: Wanted
    latent_from: Origin | None
    text_from: Origin | None


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
    """The settings that decide tensors, as the set's index keeps them."""
    return {
        "bucket": bucket.model_dump(),
        "clip_skip": cache.clip_skip,
        "dtype": cache.dtype,
    }


def bucket_rules(settings: BucketSettings) -> BucketRules:
    """The settings as the bucket functions take them."""
    return BucketRules(settings.area, settings.step, settings.min, settings.max, settings.upscale)


def load_rules(settings: ValidateSettings) -> LoadRules:
    """The settings as the picture loader takes them."""
    return LoadRules(settings.background, settings.max_megapixels, settings.animated)


def require_unchanged(samples: Sequence[Sample], rules: LoadRules) -> None:
    """Raise DataError naming every picture that is gone or differs from what was validated.

    A file with its old size and time is not read; one with a new time is decoded and compared.
    """
    touched = [sample.record for sample in samples if _is_touched(sample.record)]
    if touched:
        files = counted(len(touched), "file")
        _log.info("%s touched since validate: pixels are compared", files)
    with ThreadPoolExecutor(4) as pool:
        faults = list(pool.map(lambda record: _fault(record, rules), touched))
    named = [
        f"{record.path} ({fault})" for record, fault in zip(touched, faults, strict=True) if fault
    ]
    if named:
        raise changed(named)


def changed(named: Sequence[str]) -> DataError:
    """The error for pictures that are not what `validate` saw."""
    more = f" and {len(named) - 10} more" if len(named) > 10 else ""
    return DataError(
        f"{counted(len(named), 'picture')} changed since `validate`",
        where=", ".join(named[:10]) + more,
        expected="the pixels that `validate` saw, under the same settings",
        fix="validate again, then encode",
        run=(Command("validate"), Command("cache")),
    )


def wanted_samples(samples: Sequence[Sample], recipe: Recipe) -> list[Wanted]:
    """Place every sample and name its tensors, in the order of shards: bucket, then id."""
    wanted = []
    for sample in samples:
        record = sample.record
        placement = place(record.width, record.height, recipe.rules)
        keys = SampleKeys(
            id=record.id,
            latent_key=latent_key(record.pixels, placement, recipe.hashes.vae, recipe.dtype),
            text_key=text_key([sample.caption], recipe.text),
        )
        wanted.append(Wanted(sample, placement, keys))
    return sorted(wanted, key=lambda one: (one.placement.bucket, one.keys.id))


def library_for(folder: Path, wanted: Sequence[Wanted], texts: Sequence[str] = ()) -> Library:
    """Look up what of the wanted samples, and of further text keys, is already encoded."""
    return read_library(folder, [one.keys for one in wanted], texts)


def missing_units(wanted: Sequence[Wanted], library: Library, shard_size: int) -> list[ShardUnit]:
    """Divide what no shard holds into new shards of one bucket.

    Whole shards of an interrupted run fall out of the list whole: the rest divides as before.
    """
    missing = [one for one in wanted if one.keys not in library.samples]
    units = []
    for bucket, group in groupby(missing, key=lambda one: one.bucket):
        for chunk in _chunks(list(group), shard_size):
            tasks = tuple(
                Task(
                    one,
                    library.latents.get(one.keys.latent_key),
                    library.texts.get(one.keys.text_key),
                )
                for one in chunk
            )
            name = shard_name(bucket, [one.keys for one in chunk])
            units.append(ShardUnit(name, bucket, tasks))
    return units


def details(wanted: Wanted) -> dict[str, object]:
    """What `ID.json` says about a sample."""
    placement, record = wanted.placement, wanted.sample.record
    bucket = placement.bucket
    return {
        "id": wanted.keys.id,
        "captions": [wanted.sample.caption],
        "original_size": [record.width, record.height],
        "resized": [placement.resized_width, placement.resized_height],
        "crop": [placement.left, placement.top, bucket.width, bucket.height],
        "bucket": bucket.label,
        "latent_key": wanted.keys.latent_key,
        "text_key": wanted.keys.text_key,
    }


def _is_touched(record: Record) -> bool:
    try:
        stat = Path(record.file).stat()
    except OSError:
        return True
    return (stat.st_size, stat.st_mtime_ns) != (record.bytes, record.modified_ns)


def _fault(record: Record, rules: LoadRules) -> str:
    """Say what is wrong with a touched file; empty when its pixels are the same."""
    try:
        picture = load_picture(Path(record.file), rules)
    except PictureError as error:
        return "missing" if not Path(record.file).exists() else error.message
    return "" if pixel_hash(picture.image) == record.pixels else "other pixels"


def _chunks(items: list[Wanted], size: int) -> Iterator[list[Wanted]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
