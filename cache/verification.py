"""Reads every byte of a cache folder and of the works that use it, and names what is damaged."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latentmill.cache.index import (
    FileStamp,
    SetIndex,
    ShardIndex,
    entry_from,
    file_sha256,
    read_set_index,
    read_shard_index,
)
from latentmill.cache.shards import shard_name
from latentmill.cache.works import Users
from latentmill.datasets.errors import DataError

SHARD_NAME: Final = re.compile(r"[0-9]+x[0-9]+-[0-9a-f]{12}")
"""How a shard is called; other files in the folder are foreign and left alone."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not as it was written. `shard` is empty for the files of a work."""

    path: Path
    message: str
    shard: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The shards of a folder: sound ones, and the faults of the others."""

    sound: tuple[ShardIndex, ...]
    faults: tuple[Fault, ...]
    foreign: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the sound shards."""
        return sum(index.bytes for index in self.sound)


def check_shards(folder: Path, tick: Callable[[int], None] = lambda _: None) -> Found:
    """Read every shard and index of `folder`; `tick` is told of each shard.

    `foreign` are the files that are no shards of this format version, never looked into. A shard
    without an index (of a run that was killed) is neither sound nor a fault.
    """
    sound: list[ShardIndex] = []
    faults: list[Fault] = []
    foreign = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not SHARD_NAME.fullmatch(path.stem) or path.suffix not in (".json", ".tar"):
            foreign.append(path.name)
        elif path.suffix == ".json":
            checked = _check_shard(path)
            if isinstance(checked, Fault):
                faults.append(checked)
            elif checked is None:
                foreign.append(path.name)
            else:
                sound.append(checked)
            tick(1)
    return Found(tuple(sound), tuple(faults), tuple(foreign))


def check_users(users: Users, folder: Path, found: Found) -> Iterator[Fault]:
    """Yield what works need and miss, and the damaged records of works."""
    for path in users.damaged:
        yield Fault(path, "not the bytes that were written, or of another version")
    sound = {index.name: index for index in found.sound}
    known = {fault.shard for fault in found.faults}
    for user in users.works:
        for stamp in user.index.shards if user.index is not None else ():
            if stamp.name not in known and not _is_as_stamped(sound.get(stamp.name), stamp):
                known.add(stamp.name)
                yield Fault(folder / f"{stamp.name}.json", _missing(folder, stamp), stamp.name)


def check_work(index_path: Path) -> Iterator[Fault]:
    """Yield the damaged files of one work: its index, and the extras that the index vouches for."""
    if not index_path.is_file():
        return
    try:
        index = read_set_index(index_path)
    except DataError as error:
        yield Fault(index_path, error.what)
        return
    yield from _check_extras(index_path.parent, index)


def is_foreign(index_path: Path) -> bool:
    """Whether a shard's index is of another format version; damaged and missing ones are not."""
    try:
        return read_shard_index(index_path) is None and not _would_be_ours(index_path)
    except (DataError, TypeError):
        return False


def _check_extras(folder: Path, index: SetIndex) -> Iterator[Fault]:
    path = folder / index.extras.name
    message = _fault_in_bytes(path, index.extras)
    if message:
        yield Fault(path, message)


def _check_shard(path: Path) -> ShardIndex | Fault | None:
    """Return the index of a sound shard, its fault, or None for one of another version."""
    try:
        index = read_shard_index(path)
    except (DataError, TypeError):
        return Fault(path, "not the bytes that were written", path.stem)
    if index is None:
        is_ours = _would_be_ours(path)
        return Fault(path, "its version number is damaged", path.stem) if is_ours else None
    if index.name != path.stem:
        return Fault(path, f"this is the index of {index.name}", path.stem)
    tar = path.with_suffix(".tar")
    message = _fault_in_bytes(tar, FileStamp(index.name, index.bytes, index.sha256))
    return Fault(tar, message, index.name) if message else index


def _would_be_ours(path: Path) -> bool:
    """Whether the name vouches for this format version, whatever number stands in the index."""
    try:
        values = json.loads(path.read_bytes())
        keys = [entry_from(entry).keys for entry in values["entries"]]
        return path.stem == shard_name(values["bucket"], keys)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _fault_in_bytes(path: Path, stamp: FileStamp) -> str:
    """Say what is wrong with a file; empty when it has the bytes that were written."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes != stamp.bytes:
            return f"{size_bytes:,} bytes; {stamp.bytes:,} were written"
        return "" if file_sha256(path) == stamp.sha256 else "not the bytes that were written"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _is_as_stamped(index: ShardIndex | None, stamp: FileStamp) -> bool:
    return index is not None and (index.bytes, index.sha256) == (stamp.bytes, stamp.sha256)


def _missing(folder: Path, stamp: FileStamp) -> str:
    if not (folder / f"{stamp.name}.json").is_file():
        return "missing"
    return "another shard than the one that the work's index names"
