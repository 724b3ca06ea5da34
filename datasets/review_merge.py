"""Records, a person's rows and new drafts to the next `review.csv`: no decision is overwritten."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from latentmill.datasets.records import Problem, Record
from latentmill.datasets.review import ReviewRow, printable, same_text
from latentmill.datasets.review_fresh import Draft, earlier_draft, from_draft, from_file
from latentmill.datasets.review_memory import NOT_DRAFTED, Memory, Reading, Written
from latentmill.datasets.review_rules import Rule, rewrite

PICTURE_CHANGED = "picture-changed"
FILE_CHANGED = "caption-file-changed"
FILE_GONE = "caption-file-gone"

REASONS = {
    PICTURE_CHANGED: "the picture changed since this caption was reviewed",
    FILE_CHANGED: "the caption file changed after this caption was reviewed; it now says: {text}",
    FILE_GONE: "the caption file is gone; `ok` keeps its text",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is merged.

    `explanations` says per id why its caption is in doubt. `rules` rewrite drafts and captions of
    files that nobody edited.
    """

    records: Sequence[Record]
    reading: Reading | None
    memory: Memory
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    explanations: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[Rule] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows in the order of the records, the memory that goes with them, and findings."""

    rows: tuple[ReviewRow, ...]
    memory: Memory
    problems: tuple[Problem, ...]


def merge_rows(inputs: Inputs) -> Merged:
    """One row for each record that has a caption, a draft or a row already.

    Merging twice gives the same rows. Rows of pictures that left the set stay in memory.
    """
    saved = {row.id: row for row in (inputs.reading.rows if inputs.reading else ())}
    rows: dict[str, Written] = {}
    for record in inputs.records:
        before = inputs.memory.rows.get(record.id)
        row = saved.get(record.id) or (before.row if before else None)
        after = _merge(record, row, before, inputs)
        if after is not None:
            rows[record.id] = after
    kept = _absent(rows, saved, inputs.memory)
    return Merged(
        tuple(written.row for written in rows.values()),
        Memory({**kept, **rows}),
        tuple(_problems(inputs, rows, saved)),
    )


def needs_draft(record: Record, row: ReviewRow | None, before: Written | None) -> bool:
    """Whether the captioner must look: no caption, no row, no draft yet, or one of other pixels.

    `row` is what `review.csv` says now, `before` what was last written.
    """
    if record.caption is not None:
        return False
    if row is None:
        row = before.row if before else None
    if row is None:
        return True
    if not is_untouched_draft(row, before):
        return False
    is_empty = NOT_DRAFTED in row.flags and not row.caption.strip()
    return is_empty or (before is not None and not before.describes(record.pixels))


def is_untouched_draft(row: ReviewRow, before: Written | None) -> bool:
    """Whether a row is the captioner's and no person decided about it."""
    return row.source == "blip" and row.status != "ok" and not is_settled(row, before)


def note_of_person(row: ReviewRow, before: Written | None) -> str:
    """The note without the part that latentmill wrote."""
    if before is None or not before.reason:
        return row.note
    return row.note.replace(before.reason, "").strip(" |")


def _merge(
    record: Record, row: ReviewRow | None, before: Written | None, inputs: Inputs
) -> Written | None:
    explanation = inputs.explanations.get(record.id, "")
    draft = inputs.drafts.get(record.id)
    if draft is not None and draft.pixels != record.pixels:
        draft = None
    if row is None:
        if record.caption is not None:
            return from_file(record, explanation, inputs.rules)
        return from_draft(record, draft, inputs.rules) if draft is not None else None
    row = replace(_credited(record, row, before, inputs.rules), image=printable(record.path))
    if is_settled(row, before):
        return _keep_decision(record, row, before)
    if draft is None and row.status == "draft" and before is not None:
        draft = earlier_draft(record, row, before)
    fresh = _renew(record, row, draft, explanation, inputs.rules)
    if fresh is None:
        return _keep_waiting(record, row, before)
    return _carry_over(fresh, row, before, record)


def _credited(
    record: Record, row: ReviewRow, before: Written | None, rules: Sequence[Rule]
) -> ReviewRow:
    """Without memory, a caption that differs from its file is a person's."""
    if before is not None or row.source != "file" or record.caption is None:
        return row
    text = printable(record.caption)
    same = same_text(row.caption, text) or same_text(row.caption, rewrite(text, rules))
    return row if same else replace(row, source="person")


def is_settled(row: ReviewRow, before: Written | None) -> bool:
    """Whether a person decided about this row, now or earlier."""
    if before is not None:
        then = before.row
        return before.settled or (row.caption, row.status) != (then.caption, then.status)
    return (
        row.source == "person" or row.status == "skip" or (row.status == "ok" and bool(row.draft))
    )


def _renew(
    record: Record,
    row: ReviewRow,
    draft: Draft | None,
    explanation: str,
    rules: Sequence[Rule],
) -> Written | None:
    """A row nobody touched, written anew from the caption file or a new draft, if there is one."""
    if record.caption is not None:
        return from_file(record, explanation, rules)
    if draft is not None and row.source == "blip":
        return from_draft(record, draft, rules)
    return None


def _carry_over(fresh: Written, row: ReviewRow, before: Written | None, record: Record) -> Written:
    """Keep of the row before what is a person's: the note, added columns; say a new picture."""
    changed = before is not None and not before.describes(record.pixels)
    sticky = changed or (PICTURE_CHANGED in row.flags and row.caption == fresh.row.caption)
    flags = fresh.row.flags
    if fresh.row.source == "file" and sticky and PICTURE_CHANGED not in flags:
        flags = (*flags, PICTURE_CHANGED)
    note = _join_notes(note_of_person(row, before), fresh.reason)
    return replace(fresh, row=replace(fresh.row, flags=flags, note=note, extra=row.extra))


def _keep_waiting(record: Record, row: ReviewRow, before: Written | None) -> Written:
    """A row nobody touched and nothing can renew: its file is gone, or its draft stands."""
    if row.source == "file" and FILE_GONE not in row.flags:
        return _to_check(record, row, before, (FILE_GONE,), settled=False)
    changed = before is not None and not before.describes(record.pixels)
    if changed and PICTURE_CHANGED not in row.flags:
        return _to_check(record, row, before, (PICTURE_CHANGED,), settled=False)
    return _as_it_is(record, row, before, settled=False)


def _keep_decision(record: Record, row: ReviewRow, before: Written | None) -> Written:
    """A row that a person decided: it stands, unless picture or file changed under it."""
    text = None if record.caption is None else printable(record.caption)
    codes = []
    if before is not None and not before.describes(record.pixels):
        codes.append(PICTURE_CHANGED)
    seen = before if before is not None and before.pixels else None
    if seen is not None and text not in (None, seen.file_caption, row.caption):
        codes.append(FILE_CHANGED)
    if codes and row.status != "skip":
        return _to_check(record, row, before, tuple(codes), settled=True)
    return _as_it_is(record, row, before, settled=True)


def _to_check(
    record: Record, row: ReviewRow, before: Written | None, codes: tuple[str, ...], settled: bool
) -> Written:
    reason = "; ".join(REASONS[code].format(text=printable(record.caption or "")) for code in codes)
    checked = replace(
        row,
        status="check",
        flags=tuple(dict.fromkeys((*row.flags, *codes))),
        draft=row.caption,
        note=_join_notes(note_of_person(row, before), reason),
    )
    return _written(record, checked, before, settled, reason)


def _as_it_is(record: Record, row: ReviewRow, before: Written | None, settled: bool) -> Written:
    reason = before.reason if before is not None else ""
    if row.status in ("ok", "skip"):
        note = note_of_person(row, before) if reason else row.note
        flags = row.flags if row.status == "skip" or not settled else ()
        return _written(record, replace(row, flags=flags, note=note), before, settled, "")
    return _written(record, row, before, settled, reason)


def _written(
    record: Record, row: ReviewRow, before: Written | None, settled: bool, reason: str
) -> Written:
    text = before.file_caption if before is not None else None
    text = text if record.caption is None else printable(record.caption)
    counted = before.counted if before is not None else ""
    drafted = before.drafted if before is not None else ""
    return Written(row, record.pixels, text, settled, reason, counted, drafted=drafted)


def _join_notes(note: str, reason: str) -> str:
    return " | ".join(part for part in (note, reason) if part)


def _absent(
    rows: Mapping[str, Written], saved: Mapping[str, ReviewRow], memory: Memory
) -> dict[str, Written]:
    """Rows of pictures that are not in the set now, with what a person last said about them."""
    kept = {}
    for identity in dict.fromkeys((*memory.rows, *saved)):
        if identity in rows:
            continue
        before = memory.rows.get(identity)
        row = saved.get(identity) or (before.row if before else None)
        if row is not None:
            known = before or Written(row, pixels="")
            settled = is_settled(row, before)
            kept[identity] = replace(known, row=row, settled=settled, present=False)
    return kept


def _problems(
    inputs: Inputs, rows: Mapping[str, Written], saved: Mapping[str, ReviewRow]
) -> Iterable[Problem]:
    deleted = inputs.reading.deleted if inputs.reading else ()
    if inputs.reading and deleted and not inputs.reading.digest:
        yield Problem(
            "",
            "review.csv",
            "review-deleted",
            "review.csv was gone; it was written again as it last was",
            "to begin anew, move caption/review-written.json away too",
        )
        deleted = ()
    for identity in deleted:
        if identity in rows:
            yield Problem(
                identity,
                rows[identity].row.image,
                "row-deleted",
                "its row was deleted from review.csv; it was put back as it was",
                "to leave the picture out of training give it the status `skip`",
            )
    for identity in inputs.reading.cleaned if inputs.reading else ():
        yield Problem(
            identity,
            saved[identity].image,
            "caption-control-characters",
            "its row in review.csv held NUL; that was taken out",
            "look whether its texts are whole",
        )
    for identity, row in saved.items():
        if identity not in inputs.memory.rows and identity not in rows:
            yield Problem(
                identity,
                row.image,
                "row-unknown",
                "review.csv has a row for a picture that is not in the set",
                "nothing to do if the picture was removed; else correct its id",
            )
