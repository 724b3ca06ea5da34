"""Pictures without a caption get drafts; all captions go to `review.csv`."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from latentmill.cache.files import remove_leftovers
from latentmill.cache.fingerprints import digest
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Problem, Record, Report
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_memory import Memory, Reading, Written, read_against, read_memory
from latentmill.datasets.review_merge import TOO_LONG, Draft, Inputs, merge_rows, needs_draft
from latentmill.datasets.selection import with_trigger
from latentmill.stages.captioning.contact_sheet import keep_thumbnail, write_contact_sheet
from latentmill.stages.captioning.draft_flags import DRAFT_EMPTY, draft_flags
from latentmill.stages.captioning.draft_parts import DraftPart, read_parts, remove_parts, write_part
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.captioning.summary import caption_report, explanations
from latentmill.stages.encoding.survey import load_rules, read_records
from latentmill.stages.settings import CaptionSettings, Source, ValidateSettings

_log = logging.getLogger(__name__)

BATCHES_PER_UNIT = 4


@dataclass(frozen=True, slots=True)
class CaptionUnit:
    """A few batches of pictures to draft."""

    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """First picture and number of the others."""
        first, others = printable(self.records[0].path), len(self.records) - 1
        return f"{first} and {others} more" if others else first

    @property
    def size(self) -> int:
        """Pictures in it."""
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Caption:
    """Drafts what has no caption, and merges drafts, caption files and a person's edits."""

    layout: Layout
    sources: tuple[Source, ...]
    settings: CaptionSettings
    validate: ValidateSettings
    name: ClassVar[str] = "caption"

    def plan(self) -> Sequence[CaptionUnit]:
        """Pictures that need a draft, in units; those drafted before an interruption left out.

        Raises UsageError before `validate` ran, DataError when `review.csv` cannot be read.
        """
        for folder in (self._folder, self._parts):
            remove_leftovers(folder)
        records, memory = self._records(), read_memory(self.layout)
        rows = _by_id(self._reading(memory))
        made = {
            (draft.id, draft.pixels)
            for part in read_parts(self._parts, self.recipe)
            for draft in part.drafts
        }
        pending = [
            record
            for record in records
            if needs_draft(record, rows.get(record.id), memory.rows.get(record.id))
            and (record.id, record.pixels) not in made
        ]
        size = self.settings.batch_size * BATCHES_PER_UNIT
        return [
            CaptionUnit(tuple(pending[start : start + size]))
            for start in range(0, len(pending), size)
        ]

    def work(self, unit: CaptionUnit, tick: Callable[[int], None]) -> DraftPart:
        """Draft one unit and commit its part; a picture that fails becomes a problem.

        Raises ModelError when there is no captioner, OutOfMemoryError when it does not fit.
        """
        drafts: list[Draft] = []
        problems: list[Problem] = []
        size = self.settings.batch_size
        for start in range(0, unit.size, size):
            records = unit.records[start : start + size]
            drafts += self._drafts(records, problems)
            tick(len(records))
        part = DraftPart(self.recipe, tuple(drafts), tuple(problems))
        name = digest("draft part", [[record.id, record.pixels] for record in unit.records])
        write_part(self._parts, name[:24], part)
        _log.info("%s: %d drafts, %d problems", unit.label, len(drafts), len(problems))
        return part

    def finish(self, results: Sequence[DraftPart]) -> Report:
        """Merge all drafts, files and edits into `review.csv`; write the contact sheet."""
        records, memory = self._records(), read_memory(self.layout)
        reading = self._reading(memory)
        parts = [*results, *read_parts(self._parts, self.recipe)]
        drafts = {draft.id: draft for part in parts for draft in part.drafts}
        merged = merge_rows(
            Inputs(records, reading, memory, drafts, explanations(self.layout.report("validate")))
        )
        counted = self._counted(merged.memory, memory, records)
        rows = [counted.rows[row.id].row for row in merged.rows]
        if rows or reading is not None:
            save_review(self.layout, rows, counted, reading)
        by_id = {record.id: record for record in records}
        write_contact_sheet(self._folder / "contact-sheet.html", rows, by_id, self._rules)
        remove_parts(self._parts)
        failed = {problem.id: problem for part in parts for problem in part.problems}
        problems = (*merged.problems, *(failed[key] for key in failed if key not in drafts))
        drafted = sum(key in by_id for key in drafts)
        report = caption_report(self.layout.review, rows, len(records), drafted, problems)
        return replace(report, fingerprint=self.recipe)

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
    def _rules(self) -> LoadRules:
        return load_rules(self.validate)

    def _records(self) -> list[Record]:
        return read_records(self.layout, len(self.sources))

    def _reading(self, memory: Memory) -> Reading | None:
        return read_against(self.layout, memory, self.settings.review_encoding)

    def _drafts(self, records: Sequence[Record], problems: list[Problem]) -> Iterator[Draft]:
        from latentmill.stages.captioning.blip import Search, describe, load_captioner

        settings = self.settings
        pictures = []
        for record in records:
            try:
                image = load_picture(Path(record.file), self._rules).image
            except PictureError as error:
                problems.append(_unreadable(record, error))
                continue
            if pixel_hash(image) != record.pixels:
                problems.append(_not_validated(record))
                continue
            keep_thumbnail(self._folder, record, image)
            pictures.append((record, image))
        if not pictures:
            return
        captioner = load_captioner(settings.model, settings.revision, settings.device)
        search = Search(settings.prefix, settings.num_beams, settings.max_tokens)
        texts = describe(captioner, [image for _, image in pictures], search)
        for (record, _), text in zip(pictures, texts, strict=True):
            flags = draft_flags(text, settings.prefix, settings.min_words)
            kept = "" if DRAFT_EMPTY in flags else text
            yield Draft(record.id, record.pixels, kept, flags)

    def _counted(self, memory: Memory, before: Memory, records: Sequence[Record]) -> Memory:
        """The memory with the CLIP tokens of each caption; only new texts are counted."""
        triggers = {record.id: self.sources[record.source].trigger for record in records}
        texts = {
            key: with_trigger(written.row.caption, triggers[key])
            for key, written in memory.rows.items()
            if key in triggers
        }
        known = {
            key: written.row.tokens
            for key, written in before.rows.items()
            if key in texts and written.counted == texts[key] and written.row.tokens is not None
        }
        new = [key for key in texts if key not in known]
        tokens = {**known, **dict(zip(new, _count([texts[key] for key in new]), strict=True))}
        rows = {
            key: _with_tokens(written, tokens[key], texts[key]) if key in texts else written
            for key, written in memory.rows.items()
        }
        return Memory(rows)


def _count(texts: Sequence[str]) -> list[int]:
    from latentmill.stages.captioning.clip_tokens import count_tokens

    return count_tokens(texts)


def _with_tokens(written: Written, tokens: int | None, text: str) -> Written:
    from latentmill.stages.captioning.clip_tokens import LONGEST

    flags = tuple(flag for flag in written.row.flags if flag != TOO_LONG)
    if tokens is not None and tokens > LONGEST:
        flags = (*flags, TOO_LONG)
    return replace(written, row=replace(written.row, tokens=tokens, flags=flags), counted=text)


def _by_id(reading: Reading | None) -> Mapping[str, ReviewRow]:
    return {row.id: row for row in (reading.rows if reading is not None else ())}


def _unreadable(record: Record, error: PictureError) -> Problem:
    return Problem(
        record.id,
        record.path,
        "draft-failed",
        f"no draft: {error.message} ({error.code})",
        "run `latentmill validate` again, then `latentmill caption`",
    )


def _not_validated(record: Record) -> Problem:
    return Problem(
        record.id,
        record.path,
        "draft-failed",
        "no draft: the picture, or how it is loaded, changed since it was validated",
        "run `latentmill validate` again, then `latentmill caption`",
    )
