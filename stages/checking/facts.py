"""The records of a set -> how its sizes, shapes and captions are spread."""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latentmill.datasets.records import Record

SIDES_PX = (256, 512, 768, 1024, 1536, 2048, 4096)
CHARACTERS = (1, 21, 41, 81, 161, 321)
SHAPES = (
    ("1:3 and taller", 1 / 3),
    ("1:2", 1 / 2),
    ("9:16", 9 / 16),
    ("2:3", 2 / 3),
    ("3:4", 3 / 4),
    ("1:1", 1.0),
    ("4:3", 4 / 3),
    ("3:2", 3 / 2),
    ("16:9", 16 / 9),
    ("2:1", 2.0),
    ("3:1 and wider", 3.0),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One class of a histogram and how many pictures are in it."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """All classes of one property, in order, empty ones too."""

    title: str
    bars: tuple[Bar, ...]


def histograms(records: Sequence[Record]) -> tuple[Histogram, ...]:
    """Sizes by the shorter side, shapes by the nearest usual ratio, captions by characters."""
    sides = (min(record.width, record.height) for record in records)
    shapes = (_shape(record.width / record.height) for record in records)
    lengths = (len(record.caption or "") for record in records)
    return (
        Histogram("Shorter side, px", _bars(_ranges(0, SIDES_PX), _classes(sides, SIDES_PX))),
        Histogram("Shape, width to height", _bars([label for label, _ in SHAPES], shapes)),
        Histogram(
            "Caption, characters",
            _bars(["none", *_ranges(*_rest(CHARACTERS))], _classes(lengths, CHARACTERS)),
        ),
    )


def _rest(limits: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return limits[0], limits[1:]


def _ranges(first: int, limits: Sequence[int]) -> list[str]:
    inner = [f"{low} to {high - 1}" for low, high in pairwise((first, *limits))]
    return [*inner, f"{limits[-1]} and more"]


def _classes(values: Iterable[int], limits: Sequence[int]) -> Iterable[int]:
    return (bisect.bisect_right(limits, value) for value in values)


def _shape(ratio: float) -> int:
    distances = [abs(math.log(ratio / other)) for _, other in SHAPES]
    return distances.index(min(distances))


def _bars(labels: Sequence[str], classes: Iterable[int]) -> tuple[Bar, ...]:
    counts = [0] * len(labels)
    for position in classes:
        counts[position] += 1
    return tuple(Bar(label, count) for label, count in zip(labels, counts, strict=True))
