"""Names the files of a cache folder that no work refers to, and deletes them when told to."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latentmill.cache.files import TEMPORARY_SUFFIX
from latentmill.cache.index import SetIndex
from latentmill.cache.verification import SHARD_NAME, is_foreign

_EXTRAS_NAME: Final = re.compile(r"extras-[0-9a-f]{12}\.safetensors")


@dataclass(frozen=True, slots=True)
class Unused:
    """A file that nobody needs, and why."""

    path: Path
    bytes: int
    reason: str


def unused_shards(folder: Path, used: Collection[str]) -> Iterator[Unused]:
    """Yield the files of shards that are not in `used`, an index before its shard.

    Whole shards only: a shard of which one sample is used stays as it is. Shards of another
    format version and files that are no shards are passed over.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_shard = SHARD_NAME.fullmatch(path.stem) and path.suffix in (".json", ".tar")
        if is_shard and path.stem not in used and not is_foreign(path.with_suffix(".json")):
            is_finished = path.with_suffix(".json").is_file()
            reason = "no work uses it" if is_finished else "an interrupted run left it"
            yield Unused(path, path.stat().st_size, reason)
    yield from _leftovers(folder)


def unused_extras(folder: Path, index: SetIndex | None) -> Iterator[Unused]:
    """Yield the old extras of a work, and what killed runs left; nothing without a sound index."""
    if index is not None:
        for path in sorted(folder.glob("extras-*")):
            if _EXTRAS_NAME.fullmatch(path.name) and path.name != index.extras.name:
                yield Unused(path, path.stat().st_size, "replaced by newer extras")
    yield from _leftovers(folder)


def delete(files: Iterable[Unused]) -> None:
    """Delete the files, in their order; one that is gone already is no fault."""
    for one in files:
        one.path.unlink(missing_ok=True)


def _leftovers(folder: Path) -> Iterator[Unused]:
    for path in sorted(folder.glob(f".*{TEMPORARY_SUFFIX}")):
        yield Unused(path, path.stat().st_size, "an interrupted run left it")
