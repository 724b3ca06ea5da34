"""Folders of pictures and captions -> a manifest of what is usable, and a reason for the rest."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from latentmill.cache.files import write_json, write_text
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report, record_to_json
from latentmill.datasets.review_memory import backup, memory_file
from latentmill.datasets.sources import Scan
from latentmill.stages.checking.decoding import Decoding, Item
from latentmill.stages.checking.duplicates import DUPLICATES, groups_to_json
from latentmill.stages.checking.facts import histograms
from latentmill.stages.checking.findings import worst_first
from latentmill.stages.checking.groups import shown_groups
from latentmill.stages.checking.last_run import Basis, LastRun, basis_of, now_ns
from latentmill.stages.checking.outcome import (
    conclude,
    next_steps,
    unanswered,
)
from latentmill.stages.checking.page import render
from latentmill.stages.checking.page_sections import Found
from latentmill.stages.checking.repair import Repaired, repair_set
from latentmill.stages.checking.scanning import scan_sources
from latentmill.stages.checking.set_advice import DEFAULT_PLAN, Plan, set_advice
from latentmill.stages.checking.settings_check import require_encoding, require_usable
from latentmill.stages.checking.thumbnails import sample_ids
from latentmill.stages.checking.verdict import Verdict, judge
from latentmill.stages.settings import Source, ValidateSettings

UNIT_SIZE = 16


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
        seen_ns = now_ns()
        scans = scan_sources(self.sources, self.layout.work)
        if self._last_run.rests_on(self._basis(scans, seen_ns)):
            return []
        items = list(self._decoding.undecoded(scans))
        units = [
            Pictures(f"{chunk[0].found.path} and {len(chunk) - 1} more", tuple(chunk))
            for chunk in (items[at : at + UNIT_SIZE] for at in range(0, len(items), UNIT_SIZE))
        ]
        if not units and _read_text(self._state) != self._fingerprint(scans):
            units = [Pictures("captions and settings", ())]
        return units

    def work(self, unit: Pictures, tick: Callable[[int], None]) -> int:
        """Decode the unit's pictures; return for how many their files' times did not suffice."""
        if unit.items:
            return self._decoding.decode(unit.items, tick)
        tick(1)
        return 0

    def finish(self, results: Sequence[int]) -> Report:
        """Write manifest, rejects and report from all that was decoded, now or before.

        Where nothing is new, the last report is the answer.
        """
        seen_ns = now_ns()
        scans = scan_sources(self.sources, self.layout.work)
        basis = self._basis(scans, seen_ns)
        if not results and (last := self._last_run.report(basis)) is not None:
            return last
        known = self._decoding.collect(scans)
        shown = self._shown_folders()
        verdict = judge(scans, known, self._decoding.rules, self.settings, shown, self.sources)
        advice = set_advice(verdict.records, self.sources, self.set_plan)
        verdict = replace(verdict, problems=worst_first((*verdict.problems, *advice)))
        folders = [one.folder for one in scans]
        repaired = repair_set(verdict.records, known, folders, self._folder, self.settings)
        manifest = "".join(f"{record_to_json(record)}\n" for record in repaired.records)
        write_text(self.layout.manifest, manifest)
        write_text(self.layout.rejects, _reject_lines(verdict))
        write_json(self._folder / DUPLICATES, groups_to_json(verdict.groups))
        report = self._report(verdict, repaired, manifest, sum(results))
        self._decoding.clear()
        write_text(self._state, self._fingerprint(scans))
        if next(self._decoding.left_of(known, scans), None) is None:
            self._last_run.keep(basis, report)
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
        write_text(self._folder / "report.html", render(report, found, self._decoding.thumbnails))
        return report

    def _basis(self, scans: Sequence[Scan], seen_ns: int) -> Basis:
        """Stamp all that the report rests on, the answers in `review.csv` included."""
        settings = [
            self._fingerprint(scans),
            [source.model_dump(mode="json") for source in self.sources],
            [self.review_encoding, str(self.layout.work)],
        ]
        answers = (self.layout.review, memory_file(self.layout), backup(self.layout, 1))
        return basis_of(settings, scans, answers, seen_ns)

    def _fingerprint(self, scans: Sequence[Scan]) -> str:
        values = [
            self._decoding.rules.fingerprint,
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
    def _decoding(self) -> Decoding:
        return Decoding(self._folder, self.settings)

    @property
    def _last_run(self) -> LastRun:
        return LastRun(self._folder)

    @property
    def _folder(self) -> Path:
        return self.layout.stage(self.name)

    @property
    def _state(self) -> Path:
        return self._folder / "state"


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
