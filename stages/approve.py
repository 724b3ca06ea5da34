"""Drafts and captions in doubt to `ok`, many at once, on a person's word."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Problem, Report
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_change import approve_row, remembered
from latentmill.datasets.review_memory import Reading, read_against, read_memory
from latentmill.stages.captioning.review_file import save_review


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be approved: rows by id, every draft, or drafts with at least this CLIP score."""

    ids: tuple[str, ...] = ()
    all_drafts: bool = False
    min_clip_score: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was named."""
        return not (self.ids or self.all_drafts or self.min_clip_score is not None)

    def names(self, row: ReviewRow) -> bool:
        """Whether the row was asked for, be it allowed or not."""
        return row.id in self.ids or (row.status == "draft" and self._names_draft(row))

    def _names_draft(self, row: ReviewRow) -> bool:
        if self.min_clip_score is None:
            return self.all_drafts
        return row.clip_score is None or row.clip_score >= self.min_clip_score

    def chooses(self, row: ReviewRow) -> bool:
        """Whether the row is approved: it waits, has a text, and a score where one is asked for."""
        if row.status not in ("draft", "check") or not row.caption.strip():
            return False
        has_score = self.min_clip_score is None or row.clip_score is not None
        return row.id in self.ids or (has_score and self.names(row))


def approve(
    layout: Layout,
    ids: tuple[str, ...],
    all_drafts: bool,
    encoding: str = "auto",
    min_clip_score: float | None = None,
) -> Report:
    """Set the rows `ids`, every draft that has text, or those scored high enough, to `ok`.

    Empty rows are named, not approved; rows in `check` need their id. A row that is `ok` already
    or set aside stays so, and is named when its id was given.
    Raises UsageError when there is no review or an id is in no row: then nothing is approved.
    """
    wanted = Wanted(ids, all_drafts, min_clip_score)
    memory = read_memory(layout)
    reading = read_against(layout, memory, encoding)
    if reading is None or wanted.is_empty:
        raise _nothing_to_approve(layout, reading)
    rows = {row.id: row for row in reading.rows}
    unknown = sorted(set(wanted.ids) - set(rows))
    if unknown:
        raise UsageError(
            f"no row of review.csv has the id {', '.join(unknown)}",
            where=str(layout.review),
            expected="ids as they stand in the first column",
            fix="correct the id; nothing was approved",
        )
    chosen = {row.id for row in reading.rows if wanted.chooses(row)}
    approved = {
        row.id: approve_row(row, memory.rows.get(row.id))
        for row in reading.rows
        if row.id in chosen
    }
    after = remembered(memory, reading.rows, approved)
    rows = {key: after.rows[key].row for key in rows}
    save_review(layout, list(rows.values()), after, reading)
    asked = [row for row in reading.rows if wanted.names(row)]
    return _report(layout, rows, chosen, [row for row in asked if row.id not in chosen])


def _report(
    layout: Layout, rows: Mapping[str, ReviewRow], chosen: set[str], refused: Sequence[ReviewRow]
) -> Report:
    states = Counter(row.status for row in rows.values())
    waiting = states["draft"] + states["check"]
    counts = {"approved": len(chosen), "waiting": waiting, "ok": states["ok"]}
    counts["set_aside"] = states["skip"]
    way_on = f"{layout.review}: write the missing captions, look at what is in doubt, or set `skip`"
    steps = (
        step(f"open {way_on}")
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
    if row.caption.strip():
        message = "it has no CLIP score, so it was not approved"
        fix = "run `latentmill caption` with caption.score_model, or look at it in review.csv"
        return Problem(row.id, row.image, "not-scored", message, fix)
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
        expected="--all-drafts, --id or --min-clip-score",
        fix="name what to approve",
        run=(Command("approve", ("--all-drafts",)), Command("approve", ("--id", "ID"))),
    )
