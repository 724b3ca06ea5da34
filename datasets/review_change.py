"""What a person decides about single rows, to what is remembered of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from latentmill.datasets.review import ReviewRow, printable, same_text
from latentmill.datasets.review_fresh import TEXT_FLAGS
from latentmill.datasets.review_memory import Memory, Written, settle
from latentmill.datasets.review_merge import is_settled, note_of_person


@dataclass(frozen=True, slots=True)
class Change:
    """What a person wants of the row `id`: another caption, another status, or both.

    `reword`: many captions are changed at once, so that nobody looked: a row that waits waits on.
    """

    id: str
    caption: str | None = None
    status: Literal["ok", "skip"] | None = None
    reword: bool = False


def change_row(row: ReviewRow, known: Written, change: Change) -> Written:
    """The row after a change; an edited `draft` or `check` row is approved, as in a spreadsheet."""
    text = row.caption if change.caption is None else _cell_text(change.caption)
    after = replace(known, row=row)
    if not same_text(text, row.caption):
        unscored = replace(row, clip_score=None)  # The score is of the text before.
        after = (_reword if change.reword else _edit)(unscored, known, text)
    if change.status == "ok":
        return approve_row(after.row, after)
    return _set_aside(after.row, after) if change.status == "skip" else after


def approve_row(row: ReviewRow, before: Written | None) -> Written:
    """The row as a person's decision: `ok`, without the reasons for which it waited."""
    flags = tuple(flag for flag in row.flags if flag in TEXT_FLAGS)
    approved = replace(row, status="ok", flags=flags, note=note_of_person(row, before))
    known = before or Written(row, pixels="")
    return replace(known, row=approved, settled=True, reason="", present=True)


def remembered(memory: Memory, rows: Sequence[ReviewRow], changed: Mapping[str, Written]) -> Memory:
    """The memory with the rows as they are now; what a person edited meanwhile is noted too."""
    after = dict(memory.rows)
    for row in rows:
        if row.id in changed:
            after[row.id] = changed[row.id]
        else:
            before = memory.rows.get(row.id)
            known = before or Written(row, pixels="")
            settled = is_settled(row, before)
            after[row.id] = replace(known, row=row, settled=settled, present=True)
    return Memory(after)


def _cell_text(text: str) -> str:
    """What a cell gives back as it was: no NUL, no lone surrogates, line ends of one kind."""
    return printable(text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n"))


def _edit(row: ReviewRow, known: Written, text: str) -> Written:
    meant = settle(replace(row, caption=text), (row.caption,))
    if meant.status in ("ok", "skip"):
        meant = replace(meant, source="person")
    if meant.status == "ok":
        return approve_row(meant, known)
    return replace(known, row=meant, settled=True, present=True)


def _reword(row: ReviewRow, known: Written, text: str) -> Written:
    """The row with other words and the status it has; a draft stays one that can be drawn anew."""
    if row.status == "draft":
        draft = replace(row, caption=text, draft=text)
        return replace(known, row=draft, drafted=text, present=True)
    if row.status == "check":
        doubtful = replace(row, caption=text, draft=text, source="person")
        return replace(known, row=doubtful, settled=True, present=True)
    return _edit(row, known, text)


def _set_aside(row: ReviewRow, known: Written) -> Written:
    aside = replace(row, status="skip", note=note_of_person(row, known))
    return replace(known, row=aside, settled=True, reason="", present=True)
