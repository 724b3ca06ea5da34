"""Records and reviewed rows to what is trained on, and the gate before that."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from latentmill.datasets.errors import DataError
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable, same_text
from latentmill.datasets.review_fresh import REWRITTEN
from latentmill.datasets.review_memory import settle
from latentmill.datasets.words import counted

CaptionBy = Literal["file", "person", "draft"]


class Triggered(Protocol):
    """A source as far as captions are concerned."""

    @property
    def trigger(self) -> str:
        """The word in front of each caption; empty is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture to train on. `caption` has the trigger in front.

    `caption_by` says who answers for the text: its `file`, a `person` who wrote or approved it,
    or nobody (`draft`: accepted unseen).
    """

    record: Record
    caption: str
    caption_by: CaptionBy


@dataclass(frozen=True, slots=True)
class Selection:
    """Every record stands in exactly one of the four."""

    samples: tuple[Sample, ...]
    set_aside: tuple[str, ...]
    waiting: tuple[ReviewRow, ...]
    uncaptioned: tuple[Record, ...]


def select_samples(
    records: Sequence[Record],
    rows: Sequence[ReviewRow] | None,
    sources: Sequence[Triggered],
    accept_drafts: bool,
) -> Selection:
    """Sort records by what their row says; `rows` None means that there is no `review.csv` yet.

    Samples are in the order of their ids. `accept_drafts` lets drafts through, never rows in
    doubt nor empty drafts. A record without a row counts by its caption file.
    """
    by_id = {row.id: settle(row) for row in rows or ()}
    samples: list[Sample] = []
    set_aside: list[str] = []
    waiting: list[ReviewRow] = []
    uncaptioned: list[Record] = []
    for record in sorted(records, key=lambda record: record.id):
        row = by_id.get(record.id) or _row_of_file(record)
        if row is None:
            uncaptioned.append(record)
        elif row.status == "skip":
            set_aside.append(record.id)
        elif row.status == "ok" or (
            accept_drafts and row.status == "draft" and row.caption.strip()
        ):
            caption = with_trigger(row.caption, sources[record.source].trigger)
            samples.append(Sample(record, caption, _caption_by(record, row)))
        else:
            waiting.append(row)
    return Selection(tuple(samples), tuple(set_aside), tuple(waiting), tuple(uncaptioned))


def require_reviewed(selection: Selection) -> None:
    """Let through a set whose captions all stand.

    Raises DataError that says how many wait, what share they are, and the ways on; also when
    nothing is left to train on.
    """
    waiting, uncaptioned = selection.waiting, selection.uncaptioned
    total = len(selection.samples) + len(selection.set_aside) + len(waiting) + len(uncaptioned)
    if not waiting and not uncaptioned:
        _require_any(selection, total)
        return
    held = len(waiting) + len(uncaptioned)
    parts, ways = _counted(waiting, uncaptioned), _ways_on(waiting, uncaptioned)
    raise DataError(
        f"{held} of {counted(total, 'picture')} ({held / total:.0%}) waiting for a caption: "
        + ", ".join(parts),
        where=_examples(waiting, uncaptioned),
        expected="every caption written, approved (`ok`) or set aside (`skip`)",
        fix="; or ".join(way.text for way in ways),
        run=tuple(command for way in ways for command in way.commands),
    )


def with_trigger(caption: str, trigger: str) -> str:
    """The caption with the trigger in front, once.

    A tag that is the trigger is moved there; a sentence that names it already stays as it is.
    """
    caption, trigger = caption.strip(), trigger.strip()
    if not trigger:
        return caption
    if not caption:
        return trigger
    found = _find_words(trigger, caption)
    if found is not None and found.start() == 0:
        return caption
    tags = [tag.strip() for tag in caption.split(",")]
    others = [tag for tag in tags if tag.casefold() != trigger.casefold()]
    if len(others) < len(tags):
        return ", ".join([trigger, *others])
    return caption if found is not None else f"{trigger}, {caption}"


def _find_words(words: str, text: str) -> re.Match[str] | None:
    """Where words stand in a text, not as a part of other words."""
    before = r"(?<!\w)" if _is_spaced(words[0]) else ""
    after = r"(?!\w)" if _is_spaced(words[-1]) else ""
    return re.search(f"{before}{re.escape(words)}{after}", text, re.IGNORECASE)


def _is_spaced(letter: str) -> bool:
    """Whether blanks part the words of its script: not so in Chinese, Japanese and Thai."""
    return letter.isalnum() and not "\u0e00" <= letter <= "\u0e7f" and letter < "\u2e80"


def _row_of_file(record: Record) -> ReviewRow | None:
    if record.caption is None:
        return None
    status: Literal["check", "ok"] = "check" if record.checks else "ok"
    return ReviewRow(record.id, record.path, record.caption, status, flags=record.checks)


def _caption_by(record: Record, row: ReviewRow) -> CaptionBy:
    if row.status == "draft":
        return "draft"
    text = record.caption
    if row.source == "file" and text is not None:
        by_rule = REWRITTEN in row.flags
        return "file" if by_rule or same_text(row.caption, printable(text)) else "person"
    return "person"


def _require_any(selection: Selection, total: int) -> None:
    if selection.samples:
        return
    raise DataError(
        "no picture is left to train on",
        where=f"{len(selection.set_aside)} of {counted(total, 'picture')} set aside",
        expected="at least one picture with a caption",
        fix="give rows of review.csv the status `ok`, or check the data folder",
        run=(Command("validate"),),
    )


def _counted(waiting: Sequence[ReviewRow], uncaptioned: Sequence[Record]) -> list[str]:
    empty = sum(_is_empty_draft(row) for row in waiting)
    drafts = sum(row.status == "draft" for row in waiting) - empty
    in_doubt = len(waiting) - drafts - empty
    counts = (
        (drafts, counted(drafts, "draft") + " nobody looked at"),
        (in_doubt, counted(in_doubt, "caption") + " in doubt (check)"),
        (empty, counted(empty, "empty row") + " of review.csv"),
        (len(uncaptioned), f"{len(uncaptioned)} without any caption"),
    )
    return [text for count, text in counts if count]


def _examples(waiting: Sequence[ReviewRow], uncaptioned: Sequence[Record]) -> str:
    names = [row.image for row in waiting] + [record.path for record in uncaptioned]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name) for name in names[:3]) + more


def _ways_on(waiting: Sequence[ReviewRow], uncaptioned: Sequence[Record]) -> list[NextStep]:
    ways = []
    if uncaptioned:
        ways.append(step("draft what is missing", Command("caption")))
    empty = [row for row in waiting if _is_empty_draft(row)]
    if empty:
        ways.append(step("write the missing captions into review.csv (or set the rows to `skip`)"))
    if len(empty) < len(waiting):
        edit = "edit review.csv (or give the rows the status `ok` or `skip`)"
        ways.append(step(edit))
    if any(row.status == "draft" for row in waiting if row not in empty):
        ways.append(step("approve all drafts at once", Command("approve", ("--all-drafts",))))
        unseen = Command("cache", settings=("caption.accept_drafts=true",))
        ways.append(step("train on drafts nobody looked at (the LoRA records it)", unseen))
    return ways


def _is_empty_draft(row: ReviewRow) -> bool:
    """Whether there is nothing to approve: a caption has to be written first."""
    return row.status == "draft" and not row.caption.strip()
