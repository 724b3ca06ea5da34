"""Rows, tokens and copies as the page shows them: plain values for JSON."""

from collections.abc import Iterable, Sequence
from typing import Any, get_args

from latentmill.cache.clip_tokens import LONGEST, count_tokens, unread_part
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, Status, printable
from latentmill.datasets.selection import with_trigger
from latentmill.stages.checking.duplicates import Group
from latentmill.stages.reviewing.store import Outcome, Snapshot, version_of

STATUSES = get_args(Status)


def all_rows(snapshot: Snapshot) -> dict[str, Any]:
    """Every row, in the order of the file."""
    return {"stamp": snapshot.stamp, "rows": [row_values(row) for row in snapshot.reading.rows]}


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """The rows that a step or another program changed, and those that it could not change.

    `from` is the stamp of what the file said before the step.
    """
    before, after = outcome.before.rows, outcome.after.rows
    told = {key for key in after if after[key] != before.get(key)} | outcome.refused.keys()
    return {
        "from": outcome.before.stamp,
        "stamp": outcome.after.stamp,
        "rows": [row_values(row) for key, row in after.items() if key in told],
        "refused": dict(outcome.refused),
    }


def row_values(row: ReviewRow) -> dict[str, Any]:
    """One row; every text can be written as UTF-8."""
    return {
        "id": printable(row.id),
        "image": printable(row.image),
        "caption": printable(row.caption),
        "status": row.status,
        "source": row.source,
        "flags": [printable(flag) for flag in row.flags],
        "tokens": row.tokens,
        "clip_score": row.clip_score,
        "draft": printable(row.draft),
        "note": printable(row.note),
        "version": version_of(row),
    }


def picture_values(records: Iterable[Record]) -> dict[str, Any]:
    """By id what is known of each picture; `pixels` makes its address change when it does."""
    return {
        record.id: {"width": record.width, "height": record.height, "pixels": record.pixels[:16]}
        for record in records
    }


def group_values(groups: Sequence[Group]) -> list[list[dict[str, Any]]]:
    """The members of each group of copies, the best first."""
    return [
        [
            {"id": one.id, "relation": one.relation, "message": printable(one.message)}
            for one in group.members
        ]
        for group in groups
    ]


def token_values(caption: str, trigger: str) -> dict[str, Any]:
    """The text as it is trained on, its tokens, and the end of it that is cut off."""
    text = with_trigger(printable(caption), trigger)
    cut = unread_part(text)
    return {
        "tokens": count_tokens([text])[0],
        "most": LONGEST,
        "read": text[: len(text) - len(cut)],
        "cut": cut,
    }
