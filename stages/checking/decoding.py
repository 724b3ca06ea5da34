"""The pictures of a set -> what decoding tells of each, every file decoded once.

What was told is kept in `decoded.jsonl`; a unit of work adds a part, which is taken in at the end.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmill.cache.disk import explained_failures
from latentmill.cache.files import remove_leftovers
from latentmill.datasets.images import LoadRules
from latentmill.datasets.isolation import Limits
from latentmill.datasets.sources import FoundPicture, Scan, assign_ids
from latentmill.stages.checking.apart import decode_alone, decode_apart, is_suspect
from latentmill.stages.checking.decoded import (
    Decoded,
    part_name,
    read_decoded,
    write_decoded,
)
from latentmill.stages.checking.repair import Copier, copy_order, has_its_copy
from latentmill.stages.checking.thumbnails import Thumbnails, sample_ids
from latentmill.stages.settings import ValidateSettings

Decode = Callable[[FoundPicture, Copier, Path | None, Limits], Decoded]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Item:
    """A picture to decode, and whether to keep a small copy for the report.

    `before` is what was told of a file of which only the time is another one since.
    """

    id: str
    found: FoundPicture
    thumbnail: bool
    before: Decoded | None = None


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decodes pictures and remembers what they told; `folder` is that of `validate`."""

    folder: Path
    settings: ValidateSettings

    @property
    def rules(self) -> LoadRules:
        """What files are decoded by."""
        settings = self.settings
        return LoadRules(settings.background, settings.max_megapixels, settings.animated)

    @property
    def thumbnails(self) -> Thumbnails:
        """The small copies for the report."""
        return Thumbnails(self.folder / "thumbnails", self.rules)

    def undecoded(self, scans: Sequence[Scan]) -> Iterator[Item]:
        """Yield the pictures that are new or changed, or whose copies are missing."""
        yield from self.left_of(read_decoded([self._memory, *self._parts()]), scans)

    def left_of(self, known: Mapping[str, Decoded], scans: Sequence[Scan]) -> Iterator[Item]:
        """Yield the pictures of which `known` does not tell all that is wanted."""
        for item in _items(scans):
            entry = known.get(item.found.file)
            if entry is None or not self._has_its_copies(item, entry):
                yield item
            elif not entry.holds_for(item.found, self.rules):
                may_hold = entry.may_hold_for(item.found, self.rules)
                yield Item(item.id, item.found, item.thumbnail, entry if may_hold else None)

    def decode(self, items: Iterable[Item], tick: Callable[[int], None]) -> int:
        """Write what the pictures tell as one part; return how many had to be decoded for it."""
        entries, num_decoded = list[Decoded](), 0
        for item in items:
            same = item.before.verified(item.found) if item.before else None
            entries.append(same or self._decoded(item, decode_apart))
            num_decoded += same is None
            tick(1)
        write_decoded(self._part_folder / part_name(entry.file for entry in entries), entries)
        return num_decoded

    def collect(self, scans: Sequence[Scan]) -> dict[str, Decoded]:
        """Take the parts into the memory; return by file what was told now or before."""
        parts = self._parts()
        known = read_decoded([self._memory, *parts])
        known |= self._tried_again(read_decoded(parts), scans)
        current = {picture.file for one in scans for picture in one.pictures}
        if parts or current != known.keys():
            kept = (known[file] for file in sorted(current & known.keys()))
            write_decoded(self._memory, kept)
        return known

    def clear(self) -> None:
        """Delete the parts, which were taken in, and what a killed run left."""
        for part in self._parts():
            part.unlink()
        for folder in (self.folder, self._part_folder):
            remove_leftovers(folder)

    def _has_its_copies(self, item: Item, entry: Decoded) -> bool:
        order = copy_order(self.folder, item.id, item.found.path, self.settings)
        if item.thumbnail and not entry.code and not self.thumbnails.file(item.id).is_file():
            return False
        return has_its_copy(entry, order, self.settings)

    def _decoded(self, item: Item, decode: Decode) -> Decoded:
        order = copy_order(self.folder, item.id, item.found.path, self.settings)
        copier = Copier(order, self.settings, self.rules)
        thumbnail = self.thumbnails.file(item.id) if item.thumbnail else None
        limits = Limits(self.settings.max_seconds, int(self.settings.max_gigabytes * 2**30))
        with explained_failures(self.folder):
            return decode(item.found, copier, thumbnail, limits)

    def _tried_again(
        self, fresh: Mapping[str, Decoded], scans: Sequence[Scan]
    ) -> dict[str, Decoded]:
        """Decode once more, with no other picture at work, what may have failed by chance."""
        suspects = {file for file, entry in fresh.items() if is_suspect(entry)}
        if suspects:
            _log.info("%d pictures broke their decoder; each is tried alone", len(suspects))
        return {
            item.found.file: self._decoded(item, decode_alone)
            for item in (_items(scans) if suspects else ())
            if item.found.file in suspects
        }

    @property
    def _memory(self) -> Path:
        return self.folder / "decoded.jsonl"

    @property
    def _part_folder(self) -> Path:
        return self.folder / "parts"

    def _parts(self) -> list[Path]:
        return sorted(self._part_folder.glob("*.jsonl"))


def _items(scans: Sequence[Scan]) -> Iterator[Item]:
    pictures = [picture for one in scans for picture in one.pictures]
    ids = assign_ids(pictures)
    shown = sample_ids(ids.values())
    for picture in pictures:
        name = ids[picture.source, picture.path]
        yield Item(name, picture, name in shown)
