"""Pictures and captions that other programs read differently -> pairs of plain files in `fixed/`.

`fixed/ID-STEM.png` (or .jpg) and `fixed/ID-STEM.txt` lie side by side. The user's folder is never
written. A file that is no longer wanted is moved to `fixed-unused/`; nothing is deleted.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from latentmill.cache.disk import explained_failures, require_room
from latentmill.cache.files import remove_leftovers
from latentmill.datasets.filekinds import suffix_of
from latentmill.datasets.images import LoadRules, Picture
from latentmill.datasets.records import Record
from latentmill.stages.checking.copies import (
    Copy,
    CopyOrder,
    copy_reasons,
    copy_stem,
    replace_file,
    write_copy,
)
from latentmill.stages.checking.decoded import Decoded
from latentmill.stages.checking.findings import Subject
from latentmill.stages.checking.repairs import (
    Repair,
    caption_repair,
    picture_repair,
    sure_caption,
)
from latentmill.stages.checking.verdict import unfit
from latentmill.stages.settings import ValidateSettings

FIXED = "fixed"
UNUSED = "fixed-unused"
_OURS = re.compile(r"p[0-9a-f]{15}(-.*)?(\.\w+)?")


@dataclass(frozen=True, slots=True)
class Repaired:
    """The records as they stand after repair, and what was repaired."""

    records: tuple[Record, ...]
    repairs: tuple[Repair, ...] = ()

    @property
    def num_pictures(self) -> int:
        """Pictures of which the picture, the caption or both were repaired."""
        return len({repair.id for repair in self.repairs})


@dataclass(frozen=True, slots=True)
class Copier:
    """Writes the copy of one picture while its pixels are in memory."""

    order: CopyOrder
    settings: ValidateSettings
    rules: LoadRules

    def __call__(self, entry: Decoded, picture: Picture) -> Decoded:
        """Return the entry with its copy, when it needs one."""
        if not needs_copy(entry, self.settings):
            return entry
        return replace(entry, copy=write_copy(Path(entry.file), picture, self.order, self.rules))


def copy_order(folder: Path, record_id: str, path: str, settings: ValidateSettings) -> CopyOrder:
    """Say where the copy of a picture goes; `folder` is that of `validate`."""
    return CopyOrder(folder / FIXED, copy_stem(record_id, path), settings.fix_format)


def needs_copy(entry: Decoded, settings: ValidateSettings) -> bool:
    """Tell whether a decoded picture is usable, and other programs would read other pixels."""
    if settings.fix == "no" or entry.code or unfit(entry, Subject("", ""), settings):
        return False
    return bool(copy_reasons(Path(entry.file).name, entry.format, entry.stored, entry.notes))


def has_its_copy(entry: Decoded, order: CopyOrder, settings: ValidateSettings) -> bool:
    """Tell whether the copy that is needed stands as it was written, or none is needed."""
    if not needs_copy(entry, settings):
        return True
    copy = entry.copy
    if copy is None or (Path(copy.name).stem, copy.order) != (order.stem, order.format):
        return False
    return copy.is_there(order.folder)


def repair_set(
    records: Sequence[Record],
    known: Mapping[str, Decoded],
    sources: Sequence[Path],
    folder: Path,
    settings: ValidateSettings,
) -> Repaired:
    """Write captions and complete the pairs; the records of pairs point into `fixed/`.

    `folder` is that of `validate`. Pictures that needed a copy got it when they were decoded.
    Raise DiskFullError, before anything is copied when it does not fit.
    """
    if settings.fix == "no":
        return Repaired(tuple(records))
    fixed = folder / FIXED
    pairs = [
        _pair(record, known[record.file], sources[record.source], folder, settings)
        for record in records
    ]
    wanted = [pair for pair in pairs if pair.is_wanted]
    with explained_failures(fixed):
        gone = _copy_as_they_are([pair for pair in wanted if pair.copy is None], fixed)
        wanted = [pair for pair in wanted if pair.record.id not in gone]
        for pair in wanted:
            if pair.caption is not None:
                replace_file(fixed / pair.caption_name, pair.write_caption)
        _set_aside(folder, {name for pair in wanted for name in pair.file_names})
        remove_leftovers(fixed)
    return Repaired(
        tuple(
            pair.record_in(fixed) if pair.is_wanted and pair.record.id not in gone else pair.record
            for pair in pairs
        ),
        tuple(repair for pair in wanted for repair in pair.repairs),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A picture with its caption as they lie in `fixed/`; without `copy` the file as it is."""

    record: Record
    stem: str
    copy: Copy | None
    caption: str | None
    repairs: tuple[Repair, ...]
    is_wanted: bool

    @property
    def picture_name(self) -> str:
        """The name of the picture's file."""
        return self.copy.name if self.copy else self.stem + suffix_of(self.record.path)

    @property
    def caption_name(self) -> str:
        """The name of the caption's file."""
        return f"{self.stem}.txt"

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of the files of the pair."""
        return (self.picture_name,) + ((self.caption_name,) if self.caption is not None else ())

    def write_caption(self, file: Path) -> None:
        """Write the caption: UTF-8, one line."""
        file.write_bytes((self.caption or "").encode("utf-8"))

    def record_in(self, fixed: Path) -> Record:
        """Return the record, its pixels read from `fixed`."""
        record = replace(self.record, file=str((fixed / self.picture_name).absolute()))
        if self.copy is None:
            return record
        return replace(
            record,
            bytes=self.copy.bytes,
            modified_ns=self.copy.modified_ns,
            format=self.copy.format,
            pixels=self.copy.pixels,
        )


def _pair(
    record: Record, entry: Decoded, source: Path, folder: Path, settings: ValidateSettings
) -> _Pair:
    order = copy_order(folder, record.id, record.path, settings)
    if not has_its_copy(entry, order, settings):  # It went while this run went on: next time.
        return _Pair(record, order.stem, None, None, (), False)
    copy = entry.copy if needs_copy(entry, settings) else None
    repairs = [caption_repair(record, source, f"{FIXED}/{order.stem}.txt")]
    if copy is not None:
        repairs.insert(0, picture_repair(record, entry, copy, f"{FIXED}/{copy.name}"))
    done = tuple(repair for repair in repairs if repair is not None)
    is_wanted = bool(done) or settings.fix == "all"
    return _Pair(record, order.stem, copy, sure_caption(record), done, is_wanted)


def _copy_as_they_are(pairs: Sequence[_Pair], fixed: Path) -> set[str]:
    """Copy sound pictures to complete their pairs; return the ids of those that went meanwhile.

    A copy has the time of its original: so the next run knows it without reading.
    """
    missing = [pair for pair in pairs if not _is_copied(pair, fixed)]
    require_room(fixed, sum(pair.record.bytes for pair in missing))
    gone = set()
    for pair in missing:
        original, modified_ns = Path(pair.record.file), pair.record.modified_ns
        if not os.access(original, os.R_OK):
            gone.add(pair.record.id)
            continue
        target = fixed / pair.picture_name
        replace_file(target, partial(shutil.copyfile, original))
        os.utime(target, ns=(modified_ns, modified_ns))
    return gone


def _is_copied(pair: _Pair, fixed: Path) -> bool:
    try:
        status = (fixed / pair.picture_name).stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (pair.record.bytes, pair.record.modified_ns)


def _set_aside(folder: Path, wanted: set[str]) -> None:
    """Move our files of earlier runs out of the way, so that `fixed/` is the set and no more."""
    for name in _ours(folder / FIXED):
        if name not in wanted:
            (folder / UNUSED).mkdir(exist_ok=True)
            (folder / FIXED / name).replace(folder / UNUSED / name)


def _ours(fixed: Path) -> Iterator[str]:
    names = sorted(os.listdir(fixed)) if fixed.is_dir() else []  # noqa: PTH208 - names, not paths
    yield from (name for name in names if _OURS.fullmatch(name))
