"""Copies the samples of a work out of its shards: a .safetensors and a .json file each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latentmill.cache.disk import explained_failures, require_room
from latentmill.cache.files import json_bytes, write_bytes, write_json
from latentmill.cache.index import CachedSample
from latentmill.cache.mapped import MappedCache
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import step
from latentmill.datasets.records import Report, read_manifest

_MARK = "latentmill-export.json"
_EXTRAS = "extras.safetensors"
_SUFFIXES = (".json", ".safetensors")


def export_samples(
    layout: Layout, folder: Path, tick: Callable[[int], None] = lambda _: None
) -> Report:
    """Write each sample that the work trains on to `folder`, and what they share as `extras`.

    The folder must be new, empty, or an earlier export: files of that which are no longer in the
    set are deleted. Raises UsageError for any other, DataError for a damaged shard.
    """
    cache = MappedCache.open(layout.cache_index, layout.shards)
    written_before = _require_own(folder)
    require_room(folder, sum(stamp.bytes for stamp in cache.index.shards), elsewhere=())
    paths = {record.id: record.path for record in read_manifest(layout.manifest)}
    names = _names(cache)
    with explained_failures(folder, elsewhere=()):
        folder.mkdir(parents=True, exist_ok=True)
        _mark(folder, cache, sorted({*written_before, *names}))
        shutil.copyfile(layout.cache_index.parent / cache.index.extras.name, folder / _EXTRAS)
        for sample in cache.samples:
            _write(folder, cache, sample, paths.get(sample.id, ""))
            tick(1)
        for name in written_before - set(names):
            (folder / name).unlink(missing_ok=True)
        _mark(folder, cache, sorted(names))
    return Report(
        stage="cache export",
        ok=True,
        counts={"samples": len(cache.samples), "files": len(names)},
        fingerprint=cache.digest,
        next_steps=(step(f"read {folder} with safetensors; {_MARK} says how to scale latents"),),
    )


def _require_own(folder: Path) -> set[str]:
    """Return the names that an earlier export wrote; raises UsageError for a foreign folder."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return set()
    try:
        values = json.loads((folder / _MARK).read_bytes())
        return {name for name in values["files"] if Path(name).name == name}
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            "there are other files where the samples are to be written",
            where=str(folder),
            expected="a new or an empty folder, or an earlier export",
            fix="name another folder",
        ) from None


def _names(cache: MappedCache) -> list[str]:
    members = [f"{sample.id}{suffix}" for sample in cache.samples for suffix in _SUFFIXES]
    return [_EXTRAS, *members]


def _write(folder: Path, cache: MappedCache, sample: CachedSample, path: str) -> None:
    details = {
        **cache.details(sample.id),
        "path": path,
        "repeats": sample.repeats,
        "weight": sample.weight,
        "is_regularisation": sample.is_regularisation,
    }
    contents = (json_bytes(details), cache.tensor_file(sample.id))
    for suffix, content in zip(_SUFFIXES, contents, strict=True):
        write_bytes(folder / f"{sample.id}{suffix}", content)


def _mark(folder: Path, cache: MappedCache, files: list[str]) -> None:
    """Write what the tensors are, and which files are ours: first of all, and once more last."""
    values: dict[str, Any] = {
        "files": files,
        "scaling_factor": cache.scaling_factor,
        "shift_factor": cache.shift_factor,
        "model": dict(cache.index.model),
        "prompts": list(cache.index.prompts),
        "negative": cache.index.negative,
    }
    write_json(folder / _MARK, values)
