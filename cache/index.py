"""What lies in a shard, and which shards and samples a work trains on: JSON beside the data.

Each index carries the digest of its own content, so that no flipped byte passes for a value.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from latentmill.cache.files import json_bytes, write_json
from latentmill.cache.fingerprints import FORMAT, SampleKeys, digest
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.next_steps import Command

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TextVariant:
    """One text of a sample: its key, and the end of it that the encoder has no room for."""

    key: str
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample in a shard: its keys and where its two members begin in the tar, in bytes.

    `cut` is the end of the caption that the text encoder has no room for. `variants` are listed
    only where there are several.
    """

    id: str
    latent_key: str
    text_key: str
    tensors_offset: int
    tensors_bytes: int
    details_offset: int
    details_bytes: int
    cut: str = ""
    flipped_key: str = ""
    variants: tuple[TextVariant, ...] = ()

    @property
    def keys(self) -> SampleKeys:
        """The sample and what its tensors depend on."""
        return SampleKeys(self.id, self.latent_key, self.text_key, self.flipped_key)

    @property
    def texts(self) -> tuple[TextVariant, ...]:
        """Its texts, in the order of the stored embeddings."""
        return self.variants or (TextVariant(self.text_key, self.cut),)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """A finished shard: `NAME.tar` has exactly these bytes, this hash and these samples."""

    name: str
    bucket: str
    bytes: int
    sha256: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class CachedSample:
    """A sample as it is trained on."""

    id: str
    shard: str
    bucket: str
    repeats: int
    weight: float
    is_regularisation: bool
    caption_by: str


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file that an index vouches for."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SetIndex:
    """All that a work trains on.

    Latents are stored unscaled: the UNet sees `(latent - shift_factor) * scaling_factor`.
    `data_digest` covers the pictures, captions and sources; `accept_drafts` is how they were
    chosen. `recipe` holds the other settings that the tensors depend on.
    """

    data_digest: str
    accept_drafts: bool
    scaling_factor: float
    shift_factor: float
    model: Mapping[str, str]
    recipe: Mapping[str, Any]
    prompts: tuple[str, ...]
    negative: str
    extras: FileStamp
    shards: tuple[FileStamp, ...]
    samples: tuple[CachedSample, ...]

    @property
    def digest(self) -> str:
        """Name the whole content: equal digests train on equal bytes."""
        return digest("set", asdict(self))


def write_shard_index(folder: Path, index: ShardIndex) -> None:
    """Write `NAME.json`; only when the shard itself is in place."""
    values = asdict(index)
    values["entries"] = [_entry_values(entry) for entry in index.entries]
    write_json(folder / f"{index.name}.json", sealed(values))


def read_shard_index(path: Path) -> ShardIndex | None:
    """Read a shard's index; None for one of another format version.

    Raises DataError when the file is not what was written.
    """
    values = unsealed(path)
    if values is None:
        return None
    entries = tuple(entry_from(entry) for entry in values.pop("entries"))
    return ShardIndex(**values, entries=entries)


def entry_from(values: Mapping[str, Any]) -> Entry:
    """Make an entry of its JSON object."""
    variants = tuple(TextVariant(**variant) for variant in values.get("variants", ()))
    return Entry(**{**values, "variants": variants})


def _entry_values(entry: Entry) -> dict[str, Any]:
    """The JSON object of an entry; what came later is left out where it says nothing."""
    values = asdict(entry)
    return {
        name: value
        for name, value in values.items()
        if value or name not in ("flipped_key", "variants")
    }


def read_shard_indexes(folder: Path) -> Iterator[ShardIndex]:
    """Yield the index of every sound shard by name; damaged and foreign ones are passed over."""
    for path in sorted(folder.glob("*.json")):
        try:
            index = read_shard_index(path)
        except DataError as error:
            _log.warning("%s: its samples are encoded again if needed", error.what)
            continue
        if index is not None and index.name == path.stem:
            yield index


def is_intact(folder: Path, index: ShardIndex) -> bool:
    """Whether the shard's bytes are those that were written: size first, then SHA-256."""
    path = folder / f"{index.name}.tar"
    try:
        stat = path.stat()
        if stat.st_size == index.bytes and _sha256(path, stat.st_mtime_ns) == index.sha256:
            return True
    except OSError as error:
        _log.warning("%s cannot be read (%s): encoded again if needed", path.name, error.strerror)
        return False
    _log.warning("%s is damaged: its samples are encoded again if needed", path.name)
    return False


def file_sha256(path: Path) -> str:
    """Hash a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def _sha256(path: Path, _modified_ns: int) -> str:
    """Hash a file once per process and time of change: the end of a run asks again."""
    return file_sha256(path)


def write_set_index(path: Path, index: SetIndex) -> None:
    """Write a work's index: the last file of a `cache` run."""
    write_json(path, sealed(asdict(index)))


def read_set_index(path: Path) -> SetIndex:
    """Read a work's index; UsageError when there is none, DataError when it is damaged."""
    if not path.is_file():
        raise UsageError(
            "nothing is cached yet", where=str(path), fix="encode first", run=(Command("cache"),)
        )
    values = unsealed(path)
    if values is None:
        raise DataError(
            "the cache was written by another version of latentmill",
            where=str(path),
            fix="encode again: a new one is written beside it",
            run=(Command("cache"),),
        )
    values["extras"] = FileStamp(**values["extras"])
    values["shards"] = tuple(FileStamp(**shard) for shard in values["shards"])
    values["samples"] = tuple(CachedSample(**sample) for sample in values["samples"])
    values["prompts"] = tuple(values["prompts"])
    return SetIndex(**values)


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The object to write: the values, the format and the digest of the values."""
    return {"format": FORMAT, "seal": digest("seal", dict(values)), **values}


def unsealed(path: Path) -> dict[str, Any] | None:
    """Return what was sealed into a JSON file; None when the format is another.

    Raises DataError when a byte is not as it was written, were it a blank.
    """
    try:
        content = path.read_bytes()
        values = json.loads(content)
        found, seal = values.pop("format"), values.pop("seal")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(path) from error
    if found != FORMAT and isinstance(found, int):
        return None
    is_whole = seal == digest("seal", values) and content == json_bytes(sealed(values))
    if found != FORMAT or not is_whole:
        raise _damaged(path)
    return dict(values)


def _damaged(path: Path) -> DataError:
    return DataError(
        f"{path.name} is damaged",
        where=str(path),
        expected="the file as `cache` wrote it",
        fix="encode again what is damaged; nothing else is encoded",
        run=(Command("cache"),),
    )
