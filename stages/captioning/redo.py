"""What a person wants drafted again to the rows for which that is allowed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from latentmill.datasets.errors import UsageError
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import Memory
from latentmill.datasets.review_merge import is_untouched_draft

ALL_DRAFTS = "drafts"


def rows_to_redo(
    wanted: Sequence[str], rows: Mapping[str, ReviewRow], memory: Memory, review: Path
) -> frozenset[str]:
    """The ids among `wanted`; `drafts` stands for every draft that nobody touched.

    Raises UsageError when an id is in no row, or its row is not an untouched draft: a person's
    text is never replaced.
    """
    drafts = {
        identity
        for identity, row in rows.items()
        if is_untouched_draft(row, memory.rows.get(identity))
    }
    ids = {identity for identity in wanted if identity != ALL_DRAFTS}
    wrong = [f"  {identity}: {_state(rows.get(identity))}" for identity in sorted(ids - drafts)]
    if wrong:
        raise UsageError(
            "these rows cannot be drafted again:\n" + "\n".join(wrong),
            where=str(review),
            expected="`drafts`, or ids of rows that a captioner wrote and nobody touched",
            fix="leave these ids out; nothing was drafted",
        )
    return frozenset(drafts if ALL_DRAFTS in wanted else ids)


def require_no_redo(wanted: Sequence[str]) -> None:
    """Raise UsageError when rows are to be drafted again and there is no captioner."""
    if wanted:
        raise UsageError(
            "nothing can be drafted again without a captioner",
            where="--redo with caption.model = none",
            expected="a captioner",
            fix="leave --redo out, or name a captioner with --set caption.model=...",
        )


def _state(row: ReviewRow | None) -> str:
    if row is None:
        return "no row has this id"
    if row.status == "skip":
        return "it is set aside"
    if row.source == "file":
        return "its caption comes from a file"
    return "a person wrote or approved its caption"
