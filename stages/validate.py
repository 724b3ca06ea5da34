"""Folders of pictures and captions -> a manifest of what is usable, and a reason for the rest."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmill.cache.files import remove_leftovers, write_text
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.images import LoadRules
from latentmill.datasets.isolation import Limits
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report, record_to_json
from latentmill.datasets.sources import FoundPicture, Scan, assign_ids, scan
from latentmill.stages.checking.apart import decode_alone, decode_apart, is_suspect
from latentmill.stages.checking.decoded import (
    Decoded,
    part_name,
    read_decoded,
    write_decoded,
)
from latentmill.stages.checking.page import MAX_PICTURES, THUMBNAILS, render
from latentmill.stages.checking.verdict import Verdict, judge
from latentmill.stages.settings import Source, ValidateSettings

UNIT_SIZE = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Item:
    """A picture to decode, and whether to keep a small copy for the report."""

    id: str
    found: FoundPicture
    thumbnail: bool


@dataclass(frozen=True, slots=True)
class Pictures:
    """A unit: pictures to decode. Without any, only captions or settings changed."""

    label: str
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """Pictures to decode; 1 for the rereading of captions."""
        return len(self.items) or 1


@dataclass(frozen=True, slots=True)
class Validate:
    """The stage. What decoding tells is kept, so that an unchanged file is decoded once."""

    layout: Layout
    sources: tuple[Source, ...]
    settings: ValidateSettings

    @property
    def name(self) -> str:
        """The command and folder."""
        return "validate"

    def plan(self) -> Sequence[Pictures]:
        """Units of pictures that are new or changed; one without pictures if anything else is."""
        self._check_settings()
        scans = self._scan()
        items = list(self._undecoded(scans))
        units = [
            Pictures(f"{chunk[0].found.path} and {len(chunk) - 1} more", tuple(chunk))
            for chunk in (items[at : at + UNIT_SIZE] for at in range(0, len(items), UNIT_SIZE))
        ]
        if not units and _read_text(self._state) != self._fingerprint(scans):
            units = [Pictures("captions and settings", ())]
        return units

    def work(self, unit: Pictures, tick: Callable[[int], None]) -> int:
        """Decode the unit's pictures and write what they told as one part; return their number."""
        entries: list[Decoded] = []
        for item in unit.items:
            thumbnail = self._thumbnail(item.id) if item.thumbnail else None
            entries.append(decode_apart(item.found, self._rules, thumbnail, self._limits))
            tick(1)
        if entries:
            write_decoded(self._parts / part_name(entry.file for entry in entries), entries)
        else:
            tick(1)
        return len(entries)

    def finish(self, results: Sequence[int]) -> Report:
        """Write manifest, rejects and report from all that was decoded, now or before."""
        scans = self._scan()
        parts = sorted(self._parts.glob("*.jsonl"))
        known = read_decoded([self._memory, *parts])
        known |= self._tried_again(read_decoded(parts), scans)
        current = {picture.file for one in scans for picture in one.pictures}
        if parts or current != known.keys():
            kept = (known[file] for file in sorted(current & known.keys()))
            write_decoded(self._memory, kept)
        verdict = judge(scans, known, self._rules, self.settings, self._shown_folders())
        manifest = "".join(f"{record_to_json(record)}\n" for record in verdict.records)
        write_text(self.layout.manifest, manifest)
        write_text(self.layout.rejects, _reject_lines(verdict))
        report = self._report(verdict, manifest, sum(results))
        page = render(report, verdict.records, self._folder / THUMBNAILS)
        write_text(self._folder / "report.html", page)
        for part in parts:
            part.unlink()
        for folder in (self._folder, self._parts, self._folder / THUMBNAILS):
            remove_leftovers(folder)
        write_text(self._state, self._fingerprint(scans))
        return report

    def _report(self, verdict: Verdict, manifest: str, num_decoded: int) -> Report:
        settings = self.settings.model_dump_json()
        digest = hashlib.sha256((manifest + settings).encode()).hexdigest()
        rejected, allowed = verdict.counts["rejected"], self.settings.max_rejects
        stops = rejected > allowed or not verdict.records
        steps = [f"open {self._folder / 'report.html'}"]
        if stops:
            steps.append("fix or remove the rejected pictures, then run `latentmill validate`")
            steps.append(f"or go on without them: --set validate.max_rejects={rejected}")
        if stops and not verdict.records:
            steps[2:] = []  # There is nothing to go on with.
        if not stops:
            steps.append("run `latentmill caption` to draft and review captions")
        return Report(
            self.name,
            not stops,
            {**verdict.counts, "decoded": num_decoded},
            verdict.problems,
            digest,
            next_steps=tuple(steps),
            exit_code=DataError.exit_code if stops else 0,
        )

    def _scan(self) -> list[Scan]:
        """List all sources; raise UsageError or DataError for one that holds no picture."""
        work = self.layout.work
        scans = []
        for position, source in enumerate(self.sources):
            folder = Path(source.path).expanduser()
            found = scan(folder, position, source.caption_extension, (work,))
            if not found.pictures:
                raise _no_pictures(found, source)
            scans.append(found)
        return scans

    def _undecoded(self, scans: Sequence[Scan]) -> Iterator[Item]:
        known = read_decoded([self._memory, *sorted(self._parts.glob("*.jsonl"))])
        rules = self._rules
        for item in _items(scans):
            entry = known.get(item.found.file)
            fresh = entry is not None and entry.holds_for(item.found, rules)
            whole = (entry and entry.code) or self._thumbnail(item.id).is_file()
            if not (fresh and (whole or not item.thumbnail)):
                yield item

    def _tried_again(
        self, fresh: Mapping[str, Decoded], scans: Sequence[Scan]
    ) -> dict[str, Decoded]:
        """Decode once more, with no other picture at work, what may have failed by chance."""
        suspects = {file for file, entry in fresh.items() if is_suspect(entry)}
        if suspects:
            _log.info("%d pictures broke their decoder; each is tried alone", len(suspects))
        tried = {}
        for item in _items(scans) if suspects else ():
            if item.found.file in suspects:
                thumbnail = self._thumbnail(item.id) if item.thumbnail else None
                entry = decode_alone(item.found, self._rules, thumbnail, self._limits)
                tried[item.found.file] = entry
        return tried

    def _check_settings(self) -> None:
        from PIL import ImageColor

        try:
            ImageColor.getrgb(self.settings.background)
        except ValueError as error:
            raise UsageError(
                f'"{self.settings.background}" is no colour',
                where="validate.background",
                expected="such as #ffffff, white, rgb(255, 255, 255)",
            ) from error
        if self.settings.encoding == "auto":
            return
        try:
            b"a ".decode(self.settings.encoding, "replace")  # Without bytes no codec is looked up.
        except (LookupError, UnicodeError) as error:
            raise UsageError(
                f'"{self.settings.encoding}" is no text encoding',
                where="validate.encoding",
                expected="auto, gb18030, big5hkscs, cp932, cp949, cp1252, cp1251 or another one",
            ) from error

    def _fingerprint(self, scans: Sequence[Scan]) -> str:
        values = [
            self._rules.fingerprint,
            self.settings.model_dump(mode="json"),
            [[source.path, source.caption_extension] for source in self.sources],
            [one.fingerprint for one in scans],
        ]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def _shown_folders(self) -> tuple[str, ...]:
        """What to put before a path in a message: needed only with several sources."""
        several = len(self.sources) > 1
        return tuple(f"{source.path.rstrip('/')}/" if several else "" for source in self.sources)

    @property
    def _rules(self) -> LoadRules:
        settings = self.settings
        return LoadRules(settings.background, settings.max_megapixels, settings.animated)

    @property
    def _limits(self) -> Limits:
        return Limits(self.settings.max_seconds, int(self.settings.max_gigabytes * 2**30))

    @property
    def _folder(self) -> Path:
        return self.layout.stage(self.name)

    @property
    def _memory(self) -> Path:
        return self._folder / "decoded.jsonl"

    @property
    def _parts(self) -> Path:
        return self._folder / "parts"

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _thumbnail(self, name: str) -> Path:
        return self._folder / THUMBNAILS / f"{name}.jpg"


def _items(scans: Sequence[Scan]) -> Iterator[Item]:
    pictures = [picture for one in scans for picture in one.pictures]
    ids = assign_ids(pictures)
    shown = set(sorted(ids.values())[:MAX_PICTURES])  # Ids are hashes: a steady random draw.
    for picture in pictures:
        name = ids[picture.source, picture.path]
        yield Item(name, picture, name in shown)


def _no_pictures(found: Scan, source: Source) -> DataError:
    num_files = len(found.others) + len(found.tables) + len(found.pairing.orphans)
    if not num_files:
        passed = ", ".join(f"{count} {why}" for why, count in sorted(found.ignored.items()))
        what = "The data folder is empty" + (f" (passed over: {passed})" if passed else "")
    else:
        endings = ", ".join(list(found.suffixes)[:8]) or "captions only"
        what = f"{num_files} files, none of them a picture: {endings}"
    return DataError(
        what,
        where=source.path,
        expected="pictures such as .jpg, .png or .webp, in the folder or in folders below it",
        fix="Check the path, or copy the pictures there.",
    )


def _reject_lines(verdict: Verdict) -> str:
    lines = [
        json.dumps(
            {
                "id": one.id,
                "path": one.path,
                "code": one.code,
                "message": one.message,
                "fix": one.fix,
            },
            sort_keys=True,
        )
        for one in verdict.problems
        if one.level == "reject"
    ]
    return "".join(f"{line}\n" for line in lines)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
