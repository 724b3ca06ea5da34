"""A folder -> its pictures, each with an id and the files that may hold its caption."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmill.datasets.filekinds import (
    HEAD_BYTES,
    PICTURE_SUFFIXES,
    is_picture_content,
    stem_key,
    suffix_of,
)
from latentmill.datasets.pairing import Pairing, pair_captions, sidecar_suffixes
from latentmill.datasets.walk import Entry, walk_folder

_TEXT_SUFFIXES = frozenset({".txt", ".caption", ".json", ".jsonl", ".csv", ".md", ".npz", ".html"})
_TABLE_SUFFIXES = frozenset({".csv", ".jsonl"})


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """A file that is or should be a picture. `path` is relative to the source, with `/`."""

    source: int
    path: str
    file: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in one source, in the order of the paths.

    `tables` are CSV and JSON-lines files that may hold captions, `others` files of no known use.
    `ignored` counts what is neither picture nor caption, by reason. `unreadable` are folders that
    could not be opened. `hidden` counts pictures passed over by the hidden file or folder.
    `fingerprint` changes with the name, size or time of any file. `stamp` changes also when one was
    written with its size and time put back, and with what was passed over; `changed_ns` is when any
    file was last changed.
    """

    source: int
    folder: Path
    pictures: tuple[FoundPicture, ...]
    pairing: Pairing
    tables: tuple[str, ...]
    ignored: Mapping[str, int]
    others: tuple[str, ...]
    unreadable: tuple[str, ...]
    hidden: Mapping[str, int]
    fingerprint: str
    stamp: str
    changed_ns: int

    @property
    def suffixes(self) -> dict[str, int]:
        """How many `others` have which ending, most frequent first."""
        names = (path.rpartition("/")[2] for path in self.others)
        return dict(Counter(suffix_of(name) or "(no ending)" for name in names).most_common())


def scan(
    folder: Path, source: int, caption_extension: str = "auto", excluded: Sequence[Path] = ()
) -> Scan:
    """List a source. Folders in `excluded`, and work folders of ours, are passed over.

    Raise UsageError when `folder` is missing, is no folder or cannot be read.
    """
    walk = walk_folder(folder, excluded)
    root = folder.absolute().as_posix().rstrip("/")
    suffixes = sidecar_suffixes(caption_extension)
    pictures, sidecars, tables, others = [], [], [], []
    for entry in walk.files:
        name = entry.path.rpartition("/")[2]
        suffix = suffix_of(name)
        if suffix in suffixes:
            sidecars.append(entry.path)
        elif suffix in PICTURE_SUFFIXES or _looks_like_picture(folder / entry.path, suffix):
            file = f"{root}/{entry.path}"
            pictures.append(FoundPicture(source, entry.path, file, entry.bytes, entry.modified_ns))
        elif suffix in _TABLE_SUFFIXES:
            tables.append(entry.path)
        else:
            others.append(entry.path)
    pairing = pair_captions([picture.path for picture in pictures], sidecars, suffixes)
    ignored = walk.ignored + Counter({"other": len(others)})
    passed = [sorted(ignored.items()), sorted(walk.hidden.items()), walk.unreadable]
    return Scan(
        source,
        folder,
        tuple(pictures),
        pairing,
        tuple(tables),
        dict(ignored),
        tuple(others),
        tuple(walk.unreadable),
        dict(walk.hidden),
        _fingerprint(walk.files),
        _stamp(walk.files, json.dumps(passed)),
        max((entry.changed_ns for entry in walk.files), default=0),
    )


def record_id(path: str) -> str:
    """Return the id of a picture from its path relative to its source."""
    normal = unicodedata.normalize("NFC", path)
    return _hashed(normal.encode("utf-8", "surrogateescape"))


def assign_ids(pictures: Iterable[FoundPicture]) -> dict[tuple[int, str], str]:
    """Give each (source, path) its id.

    Where two paths would share one (the same path in two sources, or its NFC and NFD forms), the
    first in (source, path) order keeps it and the others hash their source and raw bytes as well.
    """
    ids: dict[tuple[int, str], str] = {}
    taken: set[str] = set()
    for picture in sorted(pictures, key=lambda one: (one.source, one.path)):
        name = record_id(picture.path)
        if name in taken:
            raw = picture.path.encode("utf-8", "surrogateescape")
            name = _hashed(b"%b\0%d" % (raw, picture.source))
        taken.add(name)
        ids[picture.source, picture.path] = name
    return ids


def name_twins(paths: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of paths that differ only in letter case or in Unicode form."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        key = unicodedata.normalize("NFC", path).casefold()
        groups.setdefault(key, []).append(path)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def stem_twins(paths: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of pictures that share folder and stem, such as `a.png` and `a.jpg`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        parent, _, name = path.rpartition("/")
        groups.setdefault((parent, stem_key(name)), []).append(path)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _fingerprint(files: Sequence[Entry]) -> str:
    lines = (f"{one.path}\0{one.bytes}\0{one.modified_ns}\n" for one in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(files: Sequence[Entry], passed: str) -> str:
    lines = (f"{one.path}\0{one.bytes}\0{one.modified_ns}\0{one.changed_ns}\n" for one in files)
    listed = "".join((passed, "\n", *lines)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(listed).hexdigest()


def _hashed(data: bytes) -> str:
    return "p" + hashlib.sha256(data).hexdigest()[:15]


def _looks_like_picture(file: Path, suffix: str) -> bool:
    if suffix in _TEXT_SUFFIXES:
        return False
    try:
        with file.open("rb") as stream:
            return is_picture_content(stream.read(HEAD_BYTES))
    except OSError:
        return False
