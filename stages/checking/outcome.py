"""What was found, and what a person answered -> exit code and next steps."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmill.datasets.errors import DataError, LatentmillError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Level, Problem, Record
from latentmill.datasets.review_memory import read_against, read_memory
from latentmill.datasets.review_merge import Inputs, merge_rows
from latentmill.stages.settings import ValidateSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of the problems, who waits, and whether that ends with exit 3."""

    problems: tuple[Problem, ...]
    unsure: tuple[Record, ...]
    stopping: tuple[str, ...]
    exit_code: int


def unanswered(layout: Layout, records: Sequence[Record], encoding: str) -> frozenset[str]:
    """Return the ids of records whose caption `review.csv` does not settle, or not yet.

    They are found as `caption` finds them: an answer holds while picture and file are what they
    were. Where `review.csv` cannot be read nothing counts as answered; `caption` says why.
    """
    doubtful = {record.id for record in records if record.checks}
    if not doubtful:
        return frozenset()
    try:
        memory = read_memory(layout)
        reading = read_against(layout, memory, encoding)
    except LatentmillError as error:
        _log.warning("review.csv cannot be read (%s): its answers do not count", error.what)
        return frozenset(doubtful)
    rows = merge_rows(Inputs(records, reading, memory)).rows
    return frozenset(row.id for row in rows if row.status == "check" and row.id in doubtful)


def conclude(
    problems: Sequence[Problem],
    records: Sequence[Record],
    waiting: Collection[str],
    settings: ValidateSettings,
) -> Outcome:
    """Leave out what a person has answered; find what of the rest stops."""
    doubtful = {record.id for record in records if record.checks}
    left = tuple(
        one
        for one in problems
        if one.level != "check" or one.id in waiting or one.id not in doubtful
    )
    named = set(settings.fail_on)
    stopping = dict.fromkeys(one.code for one in left if {one.code, one.level} & named)
    rejected = sum(one.level == "reject" for one in left)
    stops = rejected > settings.max_rejects or not records or bool(stopping)
    unsure = tuple(record for record in records if record.id in waiting)
    return Outcome(left, unsure, tuple(stopping), DataError.exit_code if stops else 0)


def next_steps(outcome: Outcome, records: int, folder: Path, allowed: int) -> Iterator[NextStep]:
    """Name the ways on, the nearest first. `allowed` are the rejects that do not stop."""
    yield step(f"open {folder / 'report.html'}")
    rejected = sum(one.level == "reject" for one in outcome.problems)
    if not records or rejected > allowed:
        again = Command("validate")
        yield step("mend or remove the rejected pictures, then validate again", again)
    if records and rejected > allowed:
        without = Command("validate", settings=(f"validate.max_rejects={rejected}",))
        yield step("or go on without them", without)
    levels: dict[str, Level] = {one.code: one.level for one in outcome.problems}
    checks = [code for code in outcome.stopping if levels[code] == "check"]
    others = [code for code in outcome.stopping if levels[code] not in ("check", "reject")]
    if records and checks:
        yield from _ways_to_settle(outcome.unsure)
    if others:
        yield step(f"mend what `fail_on` names ({', '.join(others)}), or take it from the list")
    if not outcome.exit_code:
        yield step("draft and review captions", Command("caption"))


def _ways_to_settle(unsure: Sequence[Record]) -> Iterator[NextStep]:
    num = "1 caption is" if len(unsure) == 1 else f"{len(unsure)} captions are"
    yield step(f"{num} unsure: confirm or correct in the review", Command("caption"))
    by_encoding = [
        one for one in unsure if any(code.startswith("encoding-") for code in one.checks)
    ]
    encodings = {one.caption_encoding for one in by_encoding} - {"utf-8", "unknown", ""}
    if len(by_encoding) == len(unsure) and len(encodings) == 1:
        named = Command("validate", settings=(f"validate.encoding={min(encodings)}",))
        yield step(f"or, if all are in {min(encodings)}", named)
    later = Command("validate", settings=("validate.fail_on=",))
    yield step("or do not stop here for them, only before `cache`", later)
