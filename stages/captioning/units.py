"""The units of work of `caption`: pictures to draft, and pairs to compare."""

from collections.abc import Sequence
from dataclasses import dataclass

from latentmill.datasets.records import Record
from latentmill.datasets.review import printable
from latentmill.datasets.review_mismatch import Pair

BATCHES_PER_UNIT = 4


@dataclass(frozen=True, slots=True)
class DraftUnit:
    """A few batches of pictures to draft."""

    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """First picture and number of the others."""
        return _label(self.records)

    @property
    def size(self) -> int:
        """Pictures in it."""
        return len(self.records)


@dataclass(frozen=True, slots=True)
class ScoreUnit:
    """A few batches of pictures to compare with their captions."""

    records: tuple[Record, ...]
    captions: tuple[str, ...]

    @property
    def label(self) -> str:
        """First picture and number of the others."""
        return f"agreement of {_label(self.records)}"

    @property
    def size(self) -> int:
        """Pictures in it."""
        return len(self.records)


def score_units(pairs: Sequence[Pair], batch_size: int) -> list[ScoreUnit]:
    """The pairs in units of a few batches."""
    size = batch_size * BATCHES_PER_UNIT
    chunks = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [
        ScoreUnit(tuple(pair.record for pair in chunk), tuple(pair.caption for pair in chunk))
        for chunk in chunks
    ]


def _label(records: Sequence[Record]) -> str:
    first, others = printable(records[0].path), len(records) - 1
    return f"{first} and {others} more" if others else first
