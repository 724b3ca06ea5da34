"""Drafts and captions in doubt to `ok`, many at once, on a person's word."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Problem, Report
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import Memory, Reading, Written, read_against, read_memory
from latentmill.datasets.review_merge import approve_row, is_settled
from latentmill.stages.captioning.review_file import save_review


def approve(
    layout: Layout, ids: tuple[str, ...], all_drafts: bool, encoding: str = "auto"
) -> Report:
    """Set the rows `ids`, and with `all_drafts` every draft that has text, to `ok`.

    Empty drafts are named, not approved, unless their id is given; rows in `check` need their id.
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
    return _report(rows, chosen, all_drafts)


def _is_chosen(row: ReviewRow, ids: tuple[str, ...], all_drafts: bool) -> bool:
    if row.id in ids:
        return row.status in ("draft", "check")
    return all_drafts and row.status == "draft" and bool(row.caption.strip())


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


def _report(rows: Mapping[str, ReviewRow], chosen: set[str], all_drafts: bool) -> Report:
    states = Counter(row.status for row in rows.values())
    waiting = states["draft"] + states["check"]
    empty = [row for row in rows.values() if row.status == "draft" and not row.caption.strip()]
    problems = tuple(
        Problem(
            row.id,
            row.image,
            "draft-empty",
            "the draft is empty, so it was not approved",
            "write a caption into review.csv, or set the row to `skip`",
        )
        for row in (empty if all_drafts else ())
    )
    counts = {"approved": len(chosen), "waiting": waiting, "ok": states["ok"]}
    counts["set_aside"] = states["skip"]
    steps = ("look at the others in review.csv",) if waiting else ("run `latentmill cache`",)
    return Report("approve", True, counts, problems, next_steps=steps)


def _nothing_to_approve(layout: Layout, reading: Reading | None) -> UsageError:
    if reading is None:
        return UsageError(
            "there is no review.csv yet",
            where=str(layout.review),
            expected="drafts to approve",
            fix="run `latentmill caption` first",
        )
    return UsageError(
        "nothing was named to approve",
        where="latentmill approve",
        expected="--all-drafts or --id",
        fix="name what to approve",
    )
