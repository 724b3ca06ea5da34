"""The cache as the trainer may use it: whole, fitting the work as it stands, and named."""

import logging
from collections.abc import Mapping, Sequence

from latentmill.cache.fingerprints import data_digest, digest
from latentmill.cache.index import SetIndex
from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import read_manifest
from latentmill.datasets.words import counted
from latentmill.stages.encoding.survey import read_samples
from latentmill.stages.settings import Source

log = logging.getLogger(__name__)


def open_cache(
    layout: Layout, sources: Sequence[Source], encoding: str, recipe: Mapping[str, object]
) -> MappedCache:
    """Open the work's cache; no picture is read. An empty `recipe` takes any.

    Raises UsageError when there is none, DataError when a shard is damaged, when captions wait, or
    when pictures, captions, sources or the recipe changed since.
    """
    cache = MappedCache.open(layout.cache_index, layout.shards)
    samples = read_samples(layout, sources, encoding, cache.index.accept_drafts)
    if data_digest(samples, sources) != cache.data_digest:
        raise DataError(
            "pictures, captions or sources changed since they were cached",
            where=str(layout.cache_index),
            expected=f"the cached set: {counted(len(cache.samples), 'sample')}",
            fix="encode what is new or changed; nothing else is encoded",
            run=(Command("cache"),),
        )
    before = cache.index.recipe
    names = sorted({*recipe, *before}) if recipe else []
    changed = [name for name in names if recipe.get(name) != before.get(name)]
    if changed:
        raise DataError(
            f"the cache was made with other settings: {', '.join(changed)}",
            where=str(layout.cache_index),
            expected=", ".join(f"{name} = {recipe.get(name, 'default')}" for name in changed),
            fix="encode with these settings, or train with those of the cache: "
            + ", ".join(f"{name} = {before.get(name, 'default')}" for name in changed),
            run=(Command("cache"),),
        )
    if not cache.samples:
        raise UsageError("the cache holds no sample", where=str(layout.cache_index))
    return cache


def tensors_digest(index: SetIndex) -> str:
    """Name what is trained on, however it is packed: samples, encoders, recipe, scaling."""
    hashes = {key: at for key, at in index.model.items() if key not in ("id", "revision")}
    scaling = [index.scaling_factor, index.shift_factor]
    return digest("trained", [index.data_digest, hashes, dict(index.recipe), scaling])


def picture_names(layout: Layout, ids: Sequence[str]) -> list[str]:
    """Name pictures for a message: path and id."""
    paths = {record.id: record.path for record in read_manifest(layout.manifest)}
    return [f"{paths.get(name, '?')} ({name})" for name in ids]
