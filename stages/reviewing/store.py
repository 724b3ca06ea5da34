"""The rows as `review.csv` has them now, changed one step at a time, each step saved at once."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from latentmill.cache.disk import explained_failures
from latentmill.cache.fingerprints import digest
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_change import Change, change_row, remembered
from latentmill.datasets.review_memory import (
    Memory,
    Reading,
    Written,
    memory_file,
    read_against,
    read_memory,
)
from latentmill.datasets.review_merge import is_settled
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.captioning.text_flags import flag_texts

MOST_STEPS = 1000
"""Steps that can be undone; older ones are forgotten."""
_TRIES = 3
"""A save of another program may fall between reading and writing: then both are merged again."""

CHANGED_OUTSIDE = "this row was changed in review.csv meanwhile"
EMPTY = "it has no caption: write one, or set it aside"
UNKNOWN = "review.csv has no such row any more"


@dataclass(frozen=True, slots=True)
class Setting:
    """What rows are about: the pictures by id, the trigger of each, the negative prompt."""

    layout: Layout
    records: Mapping[str, Record]
    triggers: Mapping[str, str]
    negative: str = ""
    encoding: str = "auto"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows in the order of the file and what is remembered; `stamp` differs when either does."""

    reading: Reading
    memory: Memory
    stamp: str

    @property
    def rows(self) -> dict[str, ReviewRow]:
        """The rows by id."""
        return {row.id: row for row in self.reading.rows}


@dataclass(frozen=True, slots=True)
class Wish:
    """A change of the row whose text and status the person saw as `version`.

    `goes_on`: it continues the change before, as typing does, and is undone together with it.
    """

    change: Change
    version: str
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The snapshots before and after a step, and by id why rows were not changed."""

    before: Snapshot
    after: Snapshot
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step changed: each row as it was, and the version it has now."""

    before: Mapping[str, Written]
    after: Mapping[str, str]


def version_of(row: ReviewRow) -> str:
    """A short word for what a person sees and decides of a row."""
    return digest("review row", [row.caption, row.status])[:16]


class Store:
    """The review of one work folder. Threads take turns; the caller holds the folder's lock."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._turn = threading.Lock()
        self._known: Snapshot | None = None
        self._steps: list[Step] = []
        self._saved = ""

    @property
    def num_steps(self) -> int:
        """How many steps can be undone."""
        return len(self._steps)

    def load(self) -> Snapshot:
        """What `review.csv` says now. Raises UsageError without it, DataError when it is broken."""
        with self._turn:
            return self._load()

    def apply(self, wishes: Sequence[Wish]) -> Outcome:
        """Change rows as one step; a row that is not as the person saw it is refused, alone.

        What another program saved meanwhile is taken over. Raises DataError when `review.csv`
        cannot be read or a caption is too long: then nothing is changed.
        """
        with self._turn:
            return self._saved_step(lambda now: self._plan(now, wishes), _goes_on(wishes))

    def undo(self) -> Outcome:
        """Take back the last step; rows that were changed outside since stay, and are named."""
        with self._turn:
            if not self._steps:
                now = self._load()
                return Outcome(now, now)
            step = self._steps[-1]
            outcome = self._saved_step(lambda now: _plan_undo(now, step), None)
            self._steps.pop()
            return outcome

    def _load(self) -> Snapshot:
        layout = self._setting.layout
        stamp = _stamp(layout)
        if self._known is None or self._known.stamp != stamp:
            memory = read_memory(layout)
            reading = read_against(layout, memory, self._setting.encoding)
            if reading is None:
                raise _no_review(layout)
            self._known = Snapshot(reading, memory, stamp)
        return self._known

    def _saved_step(self, plan: "Callable[[Snapshot], _Planned]", goes_on: bool | None) -> Outcome:
        """Plan against what the file says now, and save; `goes_on` None is no step to undo."""
        for left in reversed(range(_TRIES)):
            before = self._load()
            planned = plan(before)
            if not planned.rows:
                return Outcome(before, before, planned.refused)
            try:
                after = self._save(before, planned.rows)
            except DataError:
                if not left or _stamp(self._setting.layout) == before.stamp:
                    raise
                continue
            if goes_on is not None:
                self._note_step(before, after, planned, goes_on)
            return Outcome(before, after, planned.refused)
        raise AssertionError("the last try returns or raises")

    def _save(self, before: Snapshot, changed: Mapping[str, Written]) -> Snapshot:
        setting = self._setting
        memory = remembered(before.memory, before.reading.rows, changed)
        memory = flag_texts(memory, before.memory, setting.triggers, setting.negative)
        rows = tuple(memory.rows[row.id].row for row in before.reading.rows)
        is_ours = bool(self._saved) and before.reading.digest == self._saved
        try:
            with explained_failures(setting.layout.work):
                save_review(setting.layout, rows, memory, before.reading, keep=not is_ours)
        finally:
            self._known = None
        after = self._load()
        self._saved = after.reading.digest
        return after

    def _plan(self, now: Snapshot, wishes: Sequence[Wish]) -> "_Planned":
        rows, changed, refused = now.rows, {}, {}
        for wish in wishes:
            change = wish.change
            row = rows.get(change.id)
            if row is None or version_of(row) != wish.version:
                refused[change.id] = CHANGED_OUTSIDE if row else UNKNOWN
                continue
            after = change_row(row, self._seen(row, now.memory), change)
            if change.status == "ok" and not after.row.caption.strip():
                refused[change.id] = EMPTY
            elif after.row != row or change.status == "ok":
                changed[change.id] = after
        return _Planned(changed, refused)

    def _seen(self, row: ReviewRow, memory: Memory) -> Written:
        """What is remembered of a row, with the picture that the person looks at."""
        known, record = _known(row, memory), self._setting.records.get(row.id)
        if record is None:
            return known
        text = None if record.caption is None else printable(record.caption)
        file_caption = known.file_caption if row.id in memory.rows else text
        return replace(known, pixels=record.pixels, file_caption=file_caption)

    def _note_step(
        self, before: Snapshot, after: Snapshot, planned: "_Planned", goes_on: bool
    ) -> None:
        rows, last = before.rows, self._steps[-1] if self._steps else None
        then = {key: _known(rows[key], before.memory) for key in planned.rows}
        if goes_on and last is not None and last.before.keys() == then.keys():
            then = dict(self._steps.pop().before)
        now = after.rows
        self._steps.append(Step(then, {key: version_of(now[key]) for key in then}))
        del self._steps[:-MOST_STEPS]


@dataclass(frozen=True, slots=True)
class _Planned:
    rows: Mapping[str, Written]
    refused: Mapping[str, str]


def _plan_undo(now: Snapshot, step: Step) -> _Planned:
    rows = now.rows
    refused = {
        key: CHANGED_OUTSIDE if key in rows else UNKNOWN
        for key, version in step.after.items()
        if key not in rows or version_of(rows[key]) != version
    }
    back = {key: one for key, one in step.before.items() if key not in refused}
    return _Planned(back, refused)


def _known(row: ReviewRow, memory: Memory) -> Written:
    before = memory.rows.get(row.id)
    known = before or Written(row, pixels="")
    return replace(known, row=row, settled=is_settled(row, before), present=True)


def _goes_on(wishes: Sequence[Wish]) -> bool:
    return len(wishes) == 1 and wishes[0].goes_on


def _stamp(layout: Layout) -> str:
    """The hash of both files: what stands in them was read if it is that of the snapshot."""
    found = hashlib.sha256()
    for path in (layout.review, memory_file(layout)):
        data = path.read_bytes() if path.is_file() else b"none"
        found.update(hashlib.sha256(data).digest())
    return found.hexdigest()[:16]


def _no_review(layout: Layout) -> UsageError:
    return UsageError(
        "there is no review.csv yet",
        where=str(layout.review),
        expected="captions to review",
        fix="draft what is missing and gather the captions first",
        run=(Command("caption"),),
    )
