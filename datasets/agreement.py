"""Similarities of pictures and captions to the pairs that do not belong together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]

FEWEST_TO_FLAG = 8
FEWEST_TO_CHECK = 12
"""Pairs in the set: with fewer, its median and spread say nothing."""
FLAG_MARGIN = 0.02
CHECK_MARGIN = 0.05
"""By so much (cosine) another caption or picture must fit better."""
FLAG_DEVIATIONS = 2.0
CHECK_DEVIATIONS = 3.5
"""Robust standard deviations from the set's median."""
_SMALLEST_SPREAD = 0.01  # A set of near twins has almost none, and every pair would stand out.
_MAD_TO_DEVIATION = 1.4826
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Fit:
    """Cosine similarities of a picture to its caption, and of the best strange match.

    `other` is the most by which a row of another caption matches: its caption with this picture,
    or its picture with this caption. `rival` is the place of that row.
    """

    own: float
    other: float
    rival: int

    @property
    def gap(self) -> float:
        """How much better the strange match is."""
        return self.other - self.own


@dataclass(frozen=True, slots=True)
class Verdict:
    """A pair that stands out; `is_strong`: enough to ask a person about a caption."""

    is_strong: bool
    rival: int


def fits(pictures: "Vectors", texts: "Vectors", captions: Sequence[str]) -> list[Fit]:
    """The fit of each row of unit vectors `[n, width]`; rows of equal captions are no rivals.

    `other` is -1 where all captions are equal.
    """
    import numpy

    groups = numpy.unique([caption.casefold() for caption in captions], return_inverse=True)[1]
    own = (pictures * texts).sum(axis=1)
    best, rival = numpy.full(len(own), -1.0), numpy.full(len(own), -1)
    for start in range(0, len(own), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        strange = groups[rows, None] != groups[None, :]
        for one, other in ((pictures, texts), (texts, pictures)):
            found = numpy.where(strange, one[rows] @ other.T, -1.0)
            at = found.argmax(axis=1)
            most = found[numpy.arange(len(found)), at]
            better = most > best[rows]
            best[rows] = numpy.where(better, most, best[rows])
            rival[rows] = numpy.where(better, at, rival[rows])
    return [
        Fit(float(fit), float(other), int(at))
        for fit, other, at in zip(own, best, rival, strict=True)
    ]


def verdicts(all_fits: Sequence[Fit]) -> Mapping[int, Verdict]:
    """The places of pairs that fit badly, by the set's own measure.

    A pair is named when its similarity lies FLAG_DEVIATIONS below the set's median, another row
    matches better by FLAG_MARGIN, and that lead lies as many deviations above the set's median
    lead. It is strong where the same holds with CHECK_DEVIATIONS and CHECK_MARGIN. Median and
    median absolute deviation bear up to half of the set being wrong.
    """
    if len(all_fits) < FEWEST_TO_FLAG:
        return {}
    low = [-value for value in _deviations([fit.own for fit in all_fits])]
    led = _deviations([fit.gap for fit in all_fits])
    may_check = len(all_fits) >= FEWEST_TO_CHECK
    found = {}
    for place, fit in enumerate(all_fits):
        least = min(low[place], led[place])
        if least >= FLAG_DEVIATIONS and fit.gap >= FLAG_MARGIN:
            strong = may_check and least >= CHECK_DEVIATIONS and fit.gap >= CHECK_MARGIN
            found[place] = Verdict(strong, fit.rival)
    return found


def is_readable(caption: str) -> bool:
    """Whether most letters are Latin: CLIP models of English text score others by chance."""
    letters = [letter for letter in caption if letter.isalpha()]
    return sum(letter < "\u0250" for letter in letters) * 2 > len(letters)


def _deviations(values: Sequence[float]) -> list[float]:
    """Signed distances from the median, in robust standard deviations."""
    from statistics import median

    middle = median(values)
    spread = _MAD_TO_DEVIATION * median(abs(value - middle) for value in values)
    return [(value - middle) / max(spread, _SMALLEST_SPREAD) for value in values]
