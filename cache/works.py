"""Which works use a cache folder: each records itself there, so that what nobody uses is known.

A work has an id of its own, so that it stays the same when its folder is moved.
"""

import os
import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from latentmill.cache.files import write_json, write_text
from latentmill.cache.index import SetIndex, read_set_index, sealed, unsealed
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout

_FOLDER = "works"
_ID_FILE = "work-id"
_ID_LETTERS = 16


@dataclass(frozen=True, slots=True)
class WorkRecord:
    """What a cache folder knows of a work: `shards` are in use, `planned` are being written.

    `work` is a path, relative to the cache folder when that lies in the work: a copy of such a
    work names itself. `planned` keeps the order of the whole plan, also of what is done by now.
    """

    id: str
    work: str
    shards: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """A work and the shards that it needs; `index` is None when its index cannot be read.

    `record` is its file in the cache folder, if it left one.
    """

    work: Path
    shards: frozenset[str]
    index: SetIndex | None
    record: Path | None


@dataclass(frozen=True, slots=True)
class Users:
    """The works that use a cache folder; of those with a damaged record nothing is known."""

    works: tuple[User, ...]
    damaged: tuple[Path, ...]


def record_work(layout: Layout, shards: Collection[str], planned: Iterable[str]) -> None:
    """Write what this work uses and is about to write; the caller holds the folder's lock.

    An older record of another work in the same place is dropped: that work is gone.
    """
    work = _path_to(layout)
    record = WorkRecord(_own_id(layout), work, tuple(sorted(shards)), tuple(planned))
    path = _record_file(layout, record.id)
    if own_record(layout) != record:
        write_json(path, sealed(asdict(record)))
    for other in _record_files(layout.cache_folder):
        known = _read_if_sound(other)
        if other != path and known is not None and known.work == work:
            other.unlink(missing_ok=True)  # Another part may be here too.


def own_record(layout: Layout) -> WorkRecord | None:
    """Return what this work recorded last; None when it never did, or the record is damaged."""
    name = _read_id(layout.work)
    return _read_if_sound(_record_file(layout, name)) if name else None


def users_of(layout: Layout) -> Users:
    """Find every work that uses the cache folder of `layout`, this one first.

    A work that cannot be reached counts by its record.
    """
    records = {path: _read_if_sound(path) for path in _record_files(layout.cache_folder)}
    found = [_user(record, path) for path, record in records.items() if record is not None]
    known = {user.work.absolute() for user in found}
    # A cache folder that lies in a work; and this work, if an older version wrote its index.
    for work in (layout.cache_folder.parent, layout.work):
        index = _index_in(work)
        if index is not None and work.absolute() not in known:
            known.add(work.absolute())
            found.append(User(work, frozenset(_names(index)), index, None))
    own = layout.work.absolute()
    return Users(
        works=tuple(sorted(found, key=lambda one: (one.work.absolute() != own, one.work))),
        damaged=tuple(path for path, record in records.items() if record is None),
    )


def _path_to(layout: Layout) -> str:
    work = layout.work.absolute()
    return ".." if layout.cache_folder.absolute() == work / "cache" else str(work)


def _work_of(record: WorkRecord, record_file: Path) -> Path:
    return Path(os.path.normpath(record_file.absolute().parent.parent / record.work))


def _user(record: WorkRecord, path: Path) -> User:
    work = _work_of(record, path)
    index = _index_in(work) if _read_id(work) == record.id else None
    used = record.shards if index is None else _names(index)
    return User(work, frozenset([*used, *record.planned]), index, path)


def _index_in(work: Path) -> SetIndex | None:
    try:
        return read_set_index(Layout(work).cache_index)
    except (UsageError, DataError, OSError):
        return None


def _names(index: SetIndex) -> list[str]:
    return [stamp.name for stamp in index.shards]


def _own_id(layout: Layout) -> str:
    """Read the work's id; make one for a new work, and for a copy of one that still exists."""
    name = _read_id(layout.work)
    known = own_record(layout)
    place = _work_of(known, _record_file(layout, name)) if known is not None else layout.work
    if name and not _is_a_copy(layout.work, place, name):
        return name
    name = uuid.uuid4().hex[:_ID_LETTERS]
    write_text(_id_file(layout.work), name)
    return name


def _is_a_copy(work: Path, recorded: Path, name: str) -> bool:
    """Whether the work that was recorded stands elsewhere, with the id of this one."""
    return _read_id(recorded) == name and not _id_file(recorded).samefile(_id_file(work))


def _id_file(work: Path) -> Path:
    return Layout(work).stage("cache") / _ID_FILE


def _read_id(work: Path) -> str:
    try:
        name = _id_file(work).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return name if re.fullmatch(r"[0-9a-f]+", name) else ""


def _record_file(layout: Layout, name: str) -> Path:
    return layout.cache_folder / _FOLDER / f"{name}.json"


def _record_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / _FOLDER).glob("*.json") if path.is_file())


def _read_if_sound(path: Path) -> WorkRecord | None:
    """Read a record; None when it is damaged, or of another version."""
    try:
        values = unsealed(path)
        if values is None:
            return None
        values["shards"], values["planned"] = tuple(values["shards"]), tuple(values["planned"])
        return WorkRecord(**values)
    except (DataError, KeyError, TypeError):
        return None
