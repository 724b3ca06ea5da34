"""Folders of pictures and captions -> a manifest of what is usable, and a reason for the rest."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from latentmill.cache.disk import explained_failures
from latentmill.cache.files import remove_leftovers, write_json, write_text
from latentmill.datasets.images import LoadRules
from latentmill.datasets.isolation import Limits
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report, record_to_json
from latentmill.datasets.sources import FoundPicture, Scan, assign_ids
from latentmill.stages.checking.apart import decode_alone, decode_apart, is_suspect
from latentmill.stages.checking.decoded import (
    Decoded,
    part_name,
    read_decoded,
    write_decoded,
)
from latentmill.stages.checking.duplicates import DUPLICATES, groups_to_json
from latentmill.stages.checking.facts import histograms
from latentmill.stages.checking.findings import worst_first
from latentmill.stages.checking.groups import shown_groups
from latentmill.stages.checking.outcome import (
    conclude,
    next_steps,
    unanswered,
)
from latentmill.stages.checking.page import render
from latentmill.stages.checking.page_sections import Found
from latentmill.stages.checking.repair import (
    Copier,
    Repaired,
    copy_order,
    has_its_copy,
    repair_set,
)
from latentmill.stages.checking.scanning import scan_sources
from latentmill.stages.checking.set_advice import DEFAULT_PLAN, Plan, set_advice
from latentmill.stages.checking.settings_check import require_encoding, require_usable
from latentmill.stages.checking.thumbnails import Thumbnails, sample_ids
from latentmill.stages.checking.verdict import Verdict, judge
from latentmill.stages.settings import Source, ValidateSettings

UNIT_SIZE = 16
Decode = Callable[[FoundPicture, Copier, Path | None, Limits], Decoded]

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
    review_encoding: str = "auto"
    set_plan: Plan = DEFAULT_PLAN

    @property
    def name(self) -> str:
        """The command and folder."""
        return "validate"

    def plan(self) -> Sequence[Pictures]:
        """Units of pictures that are new or changed; one without pictures if anything else is."""
        require_usable(self.settings)
        for position, source in enumerate(self.sources):
            require_encoding(source.encoding, f"data.{position}.encoding")
        scans = scan_sources(self.sources, self.layout.work)
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
            entries.append(self._decoded(item, decode_apart))
            tick(1)
        if entries:
            write_decoded(self._parts / part_name(entry.file for entry in entries), entries)
        else:
            tick(1)
        return len(entries)

    def finish(self, results: Sequence[int]) -> Report:
        """Write manifest, rejects and report from all that was decoded, now or before."""
        scans = scan_sources(self.sources, self.layout.work)
        parts = sorted(self._parts.glob("*.jsonl"))
        known = read_decoded([self._memory, *parts])
        known |= self._tried_again(read_decoded(parts), scans)
        current = {picture.file for one in scans for picture in one.pictures}
        if parts or current != known.keys():
            kept = (known[file] for file in sorted(current & known.keys()))
            write_decoded(self._memory, kept)
        shown = self._shown_folders()
        verdict = judge(scans, known, self._rules, self.settings, shown, self.sources)
        advice = set_advice(verdict.records, self.sources, self.set_plan)
        verdict = replace(verdict, problems=worst_first((*verdict.problems, *advice)))
        folders = [one.folder for one in scans]
        repaired = repair_set(verdict.records, known, folders, self._folder, self.settings)
        manifest = "".join(f"{record_to_json(record)}\n" for record in repaired.records)
        write_text(self.layout.manifest, manifest)
        write_text(self.layout.rejects, _reject_lines(verdict))
        write_json(self._folder / DUPLICATES, groups_to_json(verdict.groups))
        report = self._report(verdict, repaired, manifest, sum(results))
        for part in parts:
            part.unlink()
        for folder in (self._folder, self._parts):
            remove_leftovers(folder)
        write_text(self._state, self._fingerprint(scans))
        return report

    def _report(
        self, verdict: Verdict, repaired: Repaired, manifest: str, num_decoded: int
    ) -> Report:
        """Conclude, and write the page that shows it."""
        records = repaired.records
        waiting = unanswered(self.layout, records, self.review_encoding)
        outcome = conclude(verdict.problems, records, waiting, self.settings)
        steps = next_steps(outcome, len(records), self._folder, self.settings.max_rejects)
        counts = {"repaired": repaired.num_pictures, "unsure": len(outcome.unsure)}
        found = Found(
            records,
            outcome.unsure,
            tuple(shown_groups(verdict.groups, records)),
            repaired.repairs,
            {one.id: Path(one.file) for one in verdict.records},
            sample_ids([*(one.id for one in records), *(one.id for one in verdict.rejects)]),
            histograms(records),
        )
        settings = self.settings.model_dump_json()
        report = Report(
            self.name,
            not outcome.exit_code,
            {**verdict.counts, **counts, "decoded": num_decoded},
            outcome.problems,
            hashlib.sha256((manifest + settings).encode()).hexdigest(),
            next_steps=tuple(steps),
            exit_code=outcome.exit_code,
            facts=found.facts(),
        )
        write_text(self._folder / "report.html", render(report, found, self._thumbnails))
        return report

    def _undecoded(self, scans: Sequence[Scan]) -> Iterator[Item]:
        known = read_decoded([self._memory, *sorted(self._parts.glob("*.jsonl"))])
        for item in _items(scans):
            entry = known.get(item.found.file)
            if entry is None or not self._is_done(item, entry):
                yield item

    def _is_done(self, item: Item, entry: Decoded) -> bool:
        order = copy_order(self._folder, item.id, item.found.path, self.settings)
        pictured = bool(entry.code) or self._thumbnails.file(item.id).is_file()
        return (
            entry.holds_for(item.found, self._rules)
            and (pictured or not item.thumbnail)
            and has_its_copy(entry, order, self.settings)
        )

    def _decoded(self, item: Item, decode: Decode) -> Decoded:
        order = copy_order(self._folder, item.id, item.found.path, self.settings)
        copier = Copier(order, self.settings, self._rules)
        thumbnail = self._thumbnails.file(item.id) if item.thumbnail else None
        with explained_failures(self._folder):
            return decode(item.found, copier, thumbnail, self._limits)

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

    def _fingerprint(self, scans: Sequence[Scan]) -> str:
        values = [
            self._rules.fingerprint,
            self.settings.model_dump(mode="json"),
            [
                [
                    str(Path(source.path).expanduser().absolute()),
                    *(source.caption_extension, source.encoding, source.trigger),
                ]
                for source in self.sources
            ],
            asdict(self.set_plan),
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

    @property
    def _thumbnails(self) -> Thumbnails:
        return Thumbnails(self._folder / "thumbnails", self._rules)


def _items(scans: Sequence[Scan]) -> Iterator[Item]:
    pictures = [picture for one in scans for picture in one.pictures]
    ids = assign_ids(pictures)
    shown = sample_ids(ids.values())
    for picture in pictures:
        name = ids[picture.source, picture.path]
        yield Item(name, picture, name in shown)


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
        for one in verdict.rejects
    ]
    return "".join(f"{line}\n" for line in lines)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
