"""A folder -> every file below it, in a fixed order, with what was passed over."""

import difflib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

from latentmill.datasets.errors import UsageError
from latentmill.datasets.filekinds import (
    PICTURE_SUFFIXES,
    special_kind,
    suffix_of,
    system_file_kind,
    system_folder_kind,
)

_MOST_COUNTED = 100_000  # Files in one hidden folder; a version control's can hold millions.


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its path relative to the root, with `/`.

    `changed_ns` is when the system last changed anything of it: no program can set that back.
    """

    path: str
    bytes: int
    modified_ns: int
    changed_ns: int


@dataclass(slots=True)
class Walk:
    """The state of one walk: files found, what was passed over, folders already seen.

    `ignored` counts files and folders by reason, `hidden` pictures by the hidden file or folder.
    """

    root: Path
    excluded: frozenset[tuple[int, int]]
    files: list[Entry]
    ignored: Counter[str]
    hidden: Counter[str]
    unreadable: list[str]
    seen: set[tuple[int, int]]


def walk_folder(folder: Path, excluded: Sequence[Path]) -> Walk:
    """Walk into all folders but hidden ones, system's, `excluded` ones and work folders of ours.

    Links are followed once; no folder is walked twice. Raise UsageError when `folder` is missing,
    is no folder or cannot be read.
    """
    identities = frozenset(one for path in excluded if (one := _identity(path)) is not None)
    walk = Walk(folder, identities, [], Counter(), Counter(), [], set())
    try:
        links = _take_folder(walk, "")
    except FileNotFoundError as error:
        near = difflib.get_close_matches(folder.name, _names(folder.parent), n=3)
        fix = f"Did you mean {' or '.join(near)}?" if near else "Check the path."
        raise UsageError("The data folder does not exist", where=str(folder), fix=fix) from error
    except NotADirectoryError as error:
        raise UsageError(
            "The data folder is a file, not a folder",
            where=str(folder),
            fix="Name the folder that holds the pictures; unpack an archive first.",
        ) from error
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


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _enter(walk: Walk, prefix: str) -> list[str]:
    try:
        return _take_folder(walk, prefix)
    except OSError:
        walk.unreadable.append(prefix.rstrip("/"))
        return []


def _take_folder(walk: Walk, prefix: str) -> list[str]:
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


def _take(walk: Walk, entry: os.DirEntry[str], path: str) -> bool:
    """Take in one entry unless it is a folder to walk into: then return True."""
    try:
        status = _status(entry)
    except FileNotFoundError:  # Deleted since the folder was listed.
        return False
    if S_ISDIR(status.st_mode):
        return _is_for_pictures(walk, entry, path)
    kind = system_file_kind(entry.name)
    if kind == "hidden file" and suffix_of(entry.name) in PICTURE_SUFFIXES:
        walk.hidden[path] += 1
    if not kind and suffix_of(entry.name) not in PICTURE_SUFFIXES:
        kind = special_kind(status.st_mode)  # With a picture's name, the loader rejects it.
    if kind:
        walk.ignored[kind] += 1
    else:
        times = status.st_mtime_ns, status.st_ctime_ns
        walk.files.append(Entry(path, status.st_size, *times))
    return False


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # A link to nothing: the loader says so if it has a picture's name.
        return entry.stat(follow_symlinks=False)


def _is_for_pictures(walk: Walk, entry: os.DirEntry[str], path: str) -> bool:
    """Tell whether to walk into a folder; of others, count the files below it."""
    kind = system_folder_kind(entry.name)
    if not kind:
        return True
    names = [name for _, _, below in os.walk(walk.root / path) for name in below][:_MOST_COUNTED]
    walk.ignored[f"in a {kind}"] += len(names)
    pictures = [
        name for name in names if suffix_of(name) in PICTURE_SUFFIXES and not name.startswith(".")
    ]
    if kind == "hidden folder" and pictures:
        walk.hidden[path] += len(pictures)
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
