"""Drafts and captions in doubt to `ok`, many at once, on a person's word."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Problem, Report
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import Memory, Reading, Written, read_against, read_memory
from latentmill.datasets.review_merge import approve_row, is_settled
from latentmill.stages.captioning.review_file import save_review


def approve(
    layout: Layout, ids: tuple[str, ...], all_drafts: bool, encoding: str = "auto"
) -> Report:
    """Set the rows `ids`, and with `all_drafts` every draft that has text, to `ok`.

    Empty rows are named, not approved; rows in `check` need their id. A row that is `ok` already
    or set aside stays so, and is named when its id was given.
    Raises UsageError when there is no review or an id is in no row: then nothing is approved.
    """
    memory = read_memory(layout)
    reading = read_against(layout, memory, encoding)
    if reading is None or not (ids or all_drafts):
        raise _nothing_to_approve(layout, reading)
    rows = {row.id: row for row in reading.rows}
    unknown = sorted(set(ids) - set(rows))
    if unknown:
        raise UsageError(
            f"no row of review.csv has the id {', '.join(unknown)}",
            where=str(layout.review),
            expected="ids as they stand in the first column",
            fix="correct the id; nothing was approved",
        )
    chosen = {row.id for row in reading.rows if _is_chosen(row, ids, all_drafts)}
    after = _remembered(memory, reading.rows, chosen)
    rows = {key: after.rows[key].row for key in rows}
    save_review(layout, list(rows.values()), after, reading)
    asked = [row for row in reading.rows if row.id in ids or (all_drafts and _is_draft(row))]
    return _report(rows, chosen, [row for row in asked if row.id not in chosen])


def _is_chosen(row: ReviewRow, ids: tuple[str, ...], all_drafts: bool) -> bool:
    named = row.id in ids and row.status in ("draft", "check")
    return (named or (all_drafts and _is_draft(row))) and bool(row.caption.strip())


def _is_draft(row: ReviewRow) -> bool:
    return row.status == "draft"


def _remembered(memory: Memory, rows: Sequence[ReviewRow], chosen: Collection[str]) -> Memory:
    """The memory with the rows as they are now; what a person edited meanwhile is noted too."""
    after = dict(memory.rows)
    for row in rows:
        before = memory.rows.get(row.id)
        if row.id in chosen:
            after[row.id] = approve_row(row, before)
        else:
            known = before or Written(row, pixels="")
            settled = is_settled(row, before)
            after[row.id] = replace(known, row=row, settled=settled, present=True)
    return Memory(after)


def _report(
    rows: Mapping[str, ReviewRow], chosen: set[str], refused: Sequence[ReviewRow]
) -> Report:
    states = Counter(row.status for row in rows.values())
    waiting = states["draft"] + states["check"]
    counts = {"approved": len(chosen), "waiting": waiting, "ok": states["ok"]}
    counts["set_aside"] = states["skip"]
    steps = (
        step("look at the others in review.csv")
        if waiting
        else step("encode pictures and captions", Command("cache")),
    )
    return Report("approve", True, counts, tuple(map(_not_approved, refused)), next_steps=steps)


def _not_approved(row: ReviewRow) -> Problem:
    if row.status == "ok":
        return Problem(row.id, row.image, "approved-before", "it was `ok` already", "nothing")
    if row.status == "skip":
        message = "it is set aside, so it was not approved"
        fix = "give it the status `ok` in review.csv"
        return Problem(row.id, row.image, "set-aside", message, fix)
    return Problem(
        row.id,
        row.image,
        "draft-empty",
        "it has no caption, so it was not approved",
        "write a caption into review.csv, or set the row to `skip`",
    )


def _nothing_to_approve(layout: Layout, reading: Reading | None) -> UsageError:
    if reading is None:
        return UsageError(
            "there is no review.csv yet",
            where=str(layout.review),
            expected="drafts to approve",
            fix="draft them first",
            run=(Command("caption"),),
        )
    return UsageError(
        "nothing was named to approve",
        expected="--all-drafts or --id",
        fix="name what to approve",
        run=(Command("approve", ("--all-drafts",)), Command("approve", ("--id", "ID"))),
    )
