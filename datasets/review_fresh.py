"""Caption files and drafts to rows that no person has seen yet."""

from collections.abc import Sequence
from dataclasses import dataclass

from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_memory import Written
from latentmill.datasets.review_rules import Rule, rewrite

TOO_LONG = "long"
REPEATED = "repeated"
VAGUE = "vague"
QUALITY_WORDS = "quality-words"
REWRITTEN = "rewritten"
"""A rule of `caption.replace` changed the text of the file or of the captioner."""
TEXT_FLAGS = frozenset({TOO_LONG, REPEATED, VAGUE, QUALITY_WORDS})
"""Flags of a text, whoever wrote it; on an `ok` row they block nothing."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A captioner's text for the picture whose pixels have the hash `pixels`."""

    id: str
    pixels: str
    text: str
    flags: tuple[str, ...] = ()


def from_file(record: Record, explanation: str, rules: Sequence[Rule]) -> Written:
    """The row of a caption file: `ok`, or `check` when its reading is in doubt."""
    original = printable(record.caption or "")
    text = rewrite(original, rules)
    rewritten = (REWRITTEN,) if text != original else ()
    doubtful = bool(record.checks)
    reason = (explanation or ", ".join(record.checks)) if doubtful else ""
    row = ReviewRow(
        id=record.id,
        image=printable(record.path),
        caption=text,
        status="check" if doubtful else "ok",
        source="file",
        flags=(
            *record.checks,
            *(code for code in record.codes if code.startswith("caption-")),
            *rewritten,
        ),
        draft=text if doubtful else "",
        note=reason,
    )
    return Written(row, record.pixels, original, reason=reason)


def from_draft(record: Record, draft: Draft, rules: Sequence[Rule]) -> Written:
    """The row of a draft, which waits for a person."""
    original = printable(draft.text)
    text = rewrite(original, rules)
    kept = tuple(flag for flag in draft.flags if flag != REWRITTEN)
    row = ReviewRow(
        id=record.id,
        image=printable(record.path),
        caption=text,
        status="draft",
        source="blip",
        flags=(*kept, REWRITTEN) if text != original else kept,
        draft=text,
    )
    return Written(row, record.pixels, drafted=original)


def earlier_draft(record: Record, row: ReviewRow, before: Written) -> Draft | None:
    """The captioner's words for the same pixels, for rules that changed since."""
    original = before.drafted or before.row.draft
    if not original or before.pixels != record.pixels:
        return None
    flags = tuple(flag for flag in row.flags if flag not in TEXT_FLAGS)
    return Draft(record.id, record.pixels, original, flags)
