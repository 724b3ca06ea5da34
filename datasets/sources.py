"""A folder -> its pictures, each with an id and the files that may hold its caption."""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from latentmill.datasets.errors import UsageError
from latentmill.datasets.filekinds import (
    HEAD_BYTES,
    PICTURE_SUFFIXES,
    is_picture_content,
    is_system_file,
    is_system_folder,
    stem_key,
    suffix_of,
)
from latentmill.datasets.pairing import Pairing, pair_captions, sidecar_suffixes

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

    `tables` are CSV and JSON-lines files that may hold captions. `ignored` counts what is neither
    picture nor caption, by reason; `suffixes` counts those files by ending. `unreadable` are
    folders that could not be opened.
    """

    source: int
    folder: Path
    pictures: tuple[FoundPicture, ...]
    pairing: Pairing
    tables: tuple[str, ...]
    ignored: Mapping[str, int]
    suffixes: Mapping[str, int]
    unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    bytes: int
    modified_ns: int


@dataclass(slots=True)
class _Walk:
    """The state of one walk: files found, what was passed over, folders already seen."""

    root: Path
    excluded: frozenset[tuple[int, int]]
    files: list[_Entry]
    ignored: Counter[str]
    unreadable: list[str]
    seen: set[tuple[int, int]]


def scan(
    folder: Path, source: int, caption_extension: str = "auto", excluded: Sequence[Path] = ()
) -> Scan:
    """List a source. Folders in `excluded`, and work folders of ours, are passed over.

    Raise UsageError when `folder` is missing, is no folder or cannot be read.
    """
    walk = _walk(folder, excluded)
    suffixes = sidecar_suffixes(caption_extension)
    pictures, sidecars, tables = [], [], []
    others: Counter[str] = Counter()
    for entry in walk.files:
        name = entry.path.rpartition("/")[2]
        suffix = suffix_of(name)
        if suffix in suffixes:
            sidecars.append(entry.path)
        elif suffix in PICTURE_SUFFIXES or _looks_like_picture(folder / entry.path, suffix):
            file = os.fspath((folder / entry.path).absolute())
            pictures.append(FoundPicture(source, entry.path, file, entry.bytes, entry.modified_ns))
        elif suffix in _TABLE_SUFFIXES:
            tables.append(entry.path)
        else:
            others[suffix or "(no ending)"] += 1
    pairing = pair_captions([picture.path for picture in pictures], sidecars, suffixes)
    ignored = walk.ignored + Counter({"other": others.total()})
    return Scan(
        source,
        folder,
        tuple(pictures),
        pairing,
        tuple(tables),
        dict(ignored),
        dict(others),
        tuple(walk.unreadable),
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


def _hashed(data: bytes) -> str:
    return "p" + hashlib.sha256(data).hexdigest()[:15]


def _walk(folder: Path, excluded: Sequence[Path]) -> _Walk:
    identities = frozenset(one for path in excluded if (one := _identity(path)) is not None)
    walk = _Walk(folder, identities, [], Counter(), [], set())
    try:
        links = _walk_folder(walk, "")
    except NotADirectoryError as error:
        fix = "Name the folder that holds the pictures."
        raise UsageError(f"{folder} is a file, not a folder", fix=fix) from error
    except OSError as error:
        raise UsageError(
            f"The data folder cannot be read: {error.strerror or error}",
            where=str(folder),
            fix="Check the path and its permissions.",
        ) from error
    while links:  # After the real folders, so that these keep their own paths.
        links = [deeper for link in links for deeper in _enter(walk, link)]
    walk.files.sort(key=lambda entry: entry.path)
    return walk


def _enter(walk: _Walk, prefix: str) -> list[str]:
    try:
        return _walk_folder(walk, prefix)
    except OSError:
        walk.unreadable.append(prefix.rstrip("/"))
        return []


def _walk_folder(walk: _Walk, prefix: str) -> list[str]:
    """Take in a folder and the real ones below it; return links to folders, to be walked later."""
    folder = walk.root / prefix
    identity = _identity(folder)
    if identity in walk.seen:
        walk.ignored["folder seen before"] += 1
        return []
    if identity in walk.excluded or (prefix and _is_work_folder(folder)):
        walk.ignored["work folder"] += 1
        return []
    links: list[str] = []
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    walk.seen.add(identity or (0, 0))
    for entry in entries:
        path = prefix + entry.name
        folder_below = _take(walk, entry, path)
        if folder_below and entry.is_symlink():
            links.append(f"{path}/")
        elif folder_below:
            links += _enter(walk, f"{path}/")
    return links


def _take(walk: _Walk, entry: os.DirEntry[str], path: str) -> bool:
    """Take in one entry unless it is a folder to walk into: then return True."""
    try:
        status = entry.stat()
    except OSError:  # A link to nothing: the loader says so if it has a picture's name.
        status = entry.stat(follow_symlinks=False)
        walk.files.append(_Entry(path, status.st_size, status.st_mtime_ns))
        return False
    if S_ISDIR(status.st_mode):
        if not is_system_folder(entry.name):
            return True
        walk.ignored["system"] += 1
    elif is_system_file(entry.name):
        walk.ignored["system"] += 1
    elif not S_ISREG(status.st_mode):
        walk.ignored["no regular file"] += 1
    else:
        walk.files.append(_Entry(path, status.st_size, status.st_mtime_ns))
    return False


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_work_folder(folder: Path) -> bool:
    own = folder / "validate"
    return (own / "manifest.jsonl").is_file() and (own / "report.json").is_file()


def _looks_like_picture(file: Path, suffix: str) -> bool:
    if suffix in _TEXT_SUFFIXES:
        return False
    try:
        with file.open("rb") as stream:
            return is_picture_content(stream.read(HEAD_BYTES))
    except OSError:
        return False
