"""CLIP vectors to the rows whose picture and caption do not belong together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from latentmill.datasets.agreement import fits, is_readable, verdicts
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_fresh import VAGUE
from latentmill.datasets.review_memory import Memory, Written

if TYPE_CHECKING:
    from latentmill.datasets.agreement import Vectors

MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Pair:
    """A picture and the caption of its row."""

    record: Record
    caption: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a pair does not fit; `is_strong`: enough to ask a person about the caption."""

    reason: str
    is_strong: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cosine similarities by row id, and the rows that do not fit."""

    scores: Mapping[str, float] = field(default_factory=dict)
    doubts: Mapping[str, Doubt] = field(default_factory=dict)


def pairs_of(rows: Iterable[ReviewRow], records: Mapping[str, Record]) -> list[Pair]:
    """The rows that are compared: with a text, not set aside, their picture in the set."""
    return [
        Pair(records[row.id], row.caption)
        for row in rows
        if row.id in records and row.status != "skip" and row.caption.strip()
    ]


def agreement_of(
    pairs: Sequence[Pair], pictures: "Mapping[str, Vectors]", texts: "Mapping[str, Vectors]"
) -> Agreement:
    """Scores of all pairs that have vectors; only captions that CLIP can read are judged."""
    import numpy

    known = [p for p in pairs if p.record.pixels in pictures and p.caption in texts]
    scores = {
        pair.record.id: round(float(pictures[pair.record.pixels] @ texts[pair.caption]), 3)
        for pair in known
    }
    judged = [pair for pair in known if is_readable(pair.caption)]
    if not judged:
        return Agreement(scores)
    found = verdicts(
        fits(
            numpy.stack([pictures[pair.record.pixels] for pair in judged]),
            numpy.stack([texts[pair.caption] for pair in judged]),
            [pair.caption for pair in judged],
        )
    )
    doubts = {
        judged[place].record.id: Doubt(
            f"picture and caption hardly fit (CLIP score {scores[judged[place].record.id]:.3f}); "
            f"compare with {printable(judged[verdict.rival].record.path)}",
            verdict.is_strong,
        )
        for place, verdict in found.items()
    }
    return Agreement(scores, doubts)


def apply_agreement(memory: Memory, before: Memory, agreement: Agreement) -> Memory:
    """The memory with scores and `mismatch` flags; strong doubts about a person's text wait.

    A row that a person confirmed is left alone until its picture or caption changes.
    """
    rows = {
        key: _judged(written, before.rows.get(key), agreement) if written.present else written
        for key, written in memory.rows.items()
    }
    return replace(memory, rows=rows)


def _judged(written: Written, before: Written | None, agreement: Agreement) -> Written:
    row = replace(written.row, clip_score=agreement.scores.get(written.row.id))
    same_picture = before is not None and before.pixels == written.pixels
    doubted = before.doubted if before is not None and same_picture else ""
    written = replace(written, row=row, doubted=doubted)
    if row.status == "check" and written.settled:
        return written  # It waits for its answer, whatever became of the other rows.
    flags = tuple(flag for flag in row.flags if flag != MISMATCH)
    written = replace(written, row=replace(row, flags=flags))
    doubt = agreement.doubts.get(row.id)
    if doubt is None or (written.settled and doubted == row.caption):
        return written
    is_of_person = row.source != "blip" and row.status in ("ok", "check")
    if doubt.is_strong and is_of_person and VAGUE not in flags:
        return _to_check(written, doubt.reason)
    flagged = replace(written.row, flags=(*flags, MISMATCH))
    asked = row.caption if row.status == "draft" else doubted
    return replace(written, row=flagged, doubted=asked)


def _to_check(written: Written, reason: str) -> Written:
    row = written.row
    waiting = replace(
        row,
        status="check",
        flags=(*row.flags, MISMATCH) if row.status == "check" else (MISMATCH, *row.flags),
        draft=row.caption,
        note=" | ".join(part for part in (row.note, reason) if part),
    )
    reasons = " | ".join(part for part in (written.reason, reason) if part)
    return replace(written, row=waiting, reason=reasons, doubted=row.caption)
