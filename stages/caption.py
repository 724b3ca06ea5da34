"""Pictures without a caption get drafts; all captions go to `review.csv`."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from latentmill.cache.files import remove_leftovers
from latentmill.cache.fingerprints import digest
from latentmill.datasets.errors import ModelError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Problem, Record, Report
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_fresh import Draft
from latentmill.datasets.review_memory import Memory, Reading, read_against, read_memory
from latentmill.datasets.review_merge import Inputs, merge_rows, needs_draft
from latentmill.datasets.review_mismatch import Pair, apply_agreement, pairs_of
from latentmill.datasets.review_rules import rewrite
from latentmill.datasets.words import counted
from latentmill.stages.captioning.contact_sheet import keep_thumbnail, write_contact_sheet
from latentmill.stages.captioning.draft_flags import DRAFT_EMPTY, draft_flags
from latentmill.stages.captioning.draft_parts import DraftPart, read_parts, remove_parts, write_part
from latentmill.stages.captioning.redo import require_no_redo, rows_to_redo
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.captioning.scoring import Scoring
from latentmill.stages.captioning.summary import caption_report, explanations
from latentmill.stages.captioning.text_flags import flag_texts
from latentmill.stages.captioning.undrafted import (
    empty_draft,
    not_validated,
    unreadable,
    without_captioner,
)
from latentmill.stages.captioning.units import BATCHES_PER_UNIT, DraftUnit, ScoreUnit, score_units
from latentmill.stages.encoding.survey import load_rules, read_records
from latentmill.stages.settings import NO_CAPTIONER, CaptionSettings, Source, ValidateSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caption:
    """Drafts what has no caption, and merges drafts, caption files and a person's edits.

    `negative` is the negative prompt, whose words no caption should hold. `redo` are ids of rows,
    or `drafts`, that are drafted again.
    """

    layout: Layout
    sources: tuple[Source, ...]
    settings: CaptionSettings
    validate: ValidateSettings
    negative: str = ""
    redo: tuple[str, ...] = ()
    name: ClassVar[str] = "caption"

    def plan(self) -> Sequence[DraftUnit | ScoreUnit]:
        """Pictures to draft and captions to compare, in units; what was done before left out.

        Raises UsageError before `validate` ran, DataError when `review.csv` cannot be read.
        """
        for folder in (self._folder, self._parts):
            remove_leftovers(folder)
        records, memory = self._records(), read_memory(self.layout)
        rows = _by_id(self._reading(memory))
        if self.settings.model == NO_CAPTIONER:
            require_no_redo(self.redo)
            return self._score_units(records, memory)
        wanted = rows_to_redo(self.redo, rows, memory, self.layout.review)
        wanted |= {record.id for record in _undrafted(records, memory, rows)}
        made = {
            (draft.id, draft.pixels)
            for part in read_parts(self._parts, self.recipe)
            for draft in part.drafts
        }
        pending = [
            record
            for record in records
            if record.id in wanted and (record.id, record.pixels) not in made
        ]
        size = self.settings.batch_size * BATCHES_PER_UNIT
        drafts = [
            DraftUnit(tuple(pending[start : start + size]))
            for start in range(0, len(pending), size)
        ]
        return [*drafts, *self._score_units(records, memory)]

    def prepare(self) -> Sequence[DraftUnit | ScoreUnit]:
        """The plan, with the model that compares pictures and captions fetched before."""
        records, memory = self._records(), read_memory(self.layout)
        self._scoring.fetch(self._pairs(records, memory))
        return self.plan()

    def work(self, unit: DraftUnit | ScoreUnit, tick: Callable[[int], None]) -> DraftPart:
        """Draft or compare one unit and commit its part; a picture that fails becomes a problem.

        Raises ModelError when there is no captioner (`review.csv` is written then with empty
        rows), OutOfMemoryError when it does not fit.
        """
        if isinstance(unit, ScoreUnit):
            self._scoring.work(unit)
            tick(unit.size)
            return DraftPart(self.recipe, ())
        try:
            part = self._draft(unit, tick)
        except ModelError as error:
            self._finish([], leave_empty=True)
            raise without_captioner(error, self.layout) from error
        name = digest("draft part", [[record.id, record.pixels] for record in unit.records])
        write_part(self._parts, name[:24], part)
        drafts, problems = len(part.drafts), len(part.problems)
        _log.info("%s: %s, %s", unit.label, counted(drafts, "draft"), counted(problems, "problem"))
        return part

    def finish(self, results: Sequence[DraftPart]) -> Report:
        """Merge all drafts, files and edits into `review.csv`; write the contact sheet.

        Without a captioner (`none`) the exit code is 3 while rows wait.
        """
        alone = self.settings.model == NO_CAPTIONER
        report = self._finish(results, leave_empty=alone)
        if alone and report.counts["waiting"]:
            return replace(report, exit_code=3)
        return report

    def _draft(self, unit: DraftUnit, tick: Callable[[int], None]) -> DraftPart:
        drafts: list[Draft] = []
        problems: list[Problem] = []
        size = self.settings.batch_size
        for start in range(0, unit.size, size):
            records = unit.records[start : start + size]
            drafts += self._drafts(records, problems)
            tick(len(records))
        return DraftPart(self.recipe, tuple(drafts), tuple(problems))

    def _finish(self, results: Sequence[DraftPart], leave_empty: bool) -> Report:
        """`leave_empty`: pictures without a draft get a row in which a person can write."""
        records, memory = self._records(), read_memory(self.layout)
        reading = self._reading(memory)
        parts = [*results, *read_parts(self._parts, self.recipe)]
        drafts = {draft.id: draft for part in parts for draft in part.drafts}
        empty = {}
        if leave_empty:
            missing = _undrafted(records, memory, _by_id(reading))
            empty = {record.id: empty_draft(record) for record in missing}
        reasons = explanations(self.layout.report("validate"))
        drafted = {**empty, **drafts}
        rules = self.settings.replace
        merged = merge_rows(Inputs(records, reading, memory, drafted, reasons, rules))
        counted = self._flagged(merged.memory, memory, records)
        by_id = {record.id: record for record in records}
        scored = self._scoring.settle(pairs_of(merged.rows, by_id))
        judged = apply_agreement(counted, memory, scored.agreement)
        rows = [judged.rows[row.id].row for row in merged.rows]
        if rows or reading is not None:
            save_review(self.layout, rows, judged, reading)
        write_contact_sheet(self._folder / "contact-sheet.html", rows, by_id, self._rules)
        remove_parts(self._parts)
        failed = {problem.id: problem for part in parts for problem in part.problems}
        problems = [problem for key, problem in failed.items() if key not in drafts]
        problems = [*merged.problems, *problems, *scored.problems]
        made = sum(key in by_id for key in drafts)
        report = caption_report(self.layout.review, rows, len(records), made, problems)
        return replace(report, fingerprint=self.recipe)

    def preview(self) -> list[str]:
        """What `caption.replace` changes, as `picture: before -> after`; nothing is written."""
        records, memory = self._records(), read_memory(self.layout)
        reading = self._reading(memory)
        now = {record.id: printable(record.caption or "") for record in records}
        now |= {key: row.caption for key, row in _by_id(reading).items()}
        merged = merge_rows(Inputs(records, reading, memory, rules=self.settings.replace))
        changed = [row for row in merged.rows if row.caption != now.get(row.id)]
        return [f"{row.image}: {now.get(row.id)!r} -> {row.caption!r}" for row in changed]

    @property
    def recipe(self) -> str:
        """The hash of all that decides a draft, the picture aside."""
        settings = self.settings.model_dump(
            include={"model", "revision", "prefix", "num_beams", "max_tokens", "min_words"}
        )
        return digest("draft", [settings, self._rules.fingerprint])

    @property
    def _folder(self) -> Path:
        return self.layout.stage(self.name)

    @property
    def _parts(self) -> Path:
        return self._folder / "parts"

    @property
    def _scoring(self) -> Scoring:
        return Scoring(self._folder, self.settings, self._rules)

    @property
    def _rules(self) -> LoadRules:
        return load_rules(self.validate)

    def _records(self) -> list[Record]:
        return read_records(self.layout, len(self.sources))

    def _reading(self, memory: Memory) -> Reading | None:
        return read_against(self.layout, memory, self.settings.review_encoding)

    def _score_units(self, records: Sequence[Record], memory: Memory) -> list[ScoreUnit]:
        pending = self._scoring.pending(self._pairs(records, memory))
        return score_units(pending, self.settings.batch_size)

    def _pairs(self, records: Sequence[Record], memory: Memory) -> list[Pair]:
        reading = self._reading(memory)
        merged = merge_rows(Inputs(records, reading, memory, rules=self.settings.replace))
        return pairs_of(merged.rows, {record.id: record for record in records})

    def _drafts(self, records: Sequence[Record], problems: list[Problem]) -> Iterator[Draft]:
        from latentmill.stages.captioning.captioner import describe, load_captioner
        from latentmill.stages.captioning.generation import Search

        settings = self.settings
        pictures = []
        for record in records:
            try:
                image = load_picture(Path(record.file), self._rules).image
            except PictureError as error:
                problems.append(unreadable(record, error))
                continue
            if pixel_hash(image) != record.pixels:
                problems.append(not_validated(record))
                continue
            keep_thumbnail(self._folder, record, image)
            pictures.append((record, image))
        if not pictures:
            return
        captioner = load_captioner(settings.model, settings.revision, settings.device)
        search = Search(settings.prefix, settings.num_beams, settings.max_tokens)
        texts = describe(captioner, [image for _, image in pictures], search)
        captions = [rewrite(printable(text), settings.replace) for text in texts]
        self._scoring.keep(pictures, captions)
        for (record, _), text in zip(pictures, texts, strict=True):
            flags = draft_flags(text, settings.prefix, settings.min_words)
            kept = "" if DRAFT_EMPTY in flags else text
            yield Draft(record.id, record.pixels, kept, flags)

    def _flagged(self, memory: Memory, before: Memory, records: Sequence[Record]) -> Memory:
        triggers = {record.id: self.sources[record.source].trigger for record in records}
        return flag_texts(memory, before, triggers, self.negative)


def _by_id(reading: Reading | None) -> Mapping[str, ReviewRow]:
    return {row.id: row for row in (reading.rows if reading is not None else ())}


def _undrafted(
    records: Sequence[Record], memory: Memory, rows: Mapping[str, ReviewRow]
) -> list[Record]:
    return [
        record
        for record in records
        if needs_draft(record, rows.get(record.id), memory.rows.get(record.id))
    ]
