"""Rows of a saved `review.csv` against what stood in them -> what the saving program destroyed."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from latentmill.datasets.errors import DataError
from latentmill.datasets.next_steps import Command
from latentmill.datasets.review import ReviewRow

_SHOWN = 40
_LOST = re.compile(r"(?:[^\x00-\x7f]|\?)+")
_NO_CELL_VALUE = re.compile(r"#[^\W\d_]{2,8}(?:/0)?[!?]|#N/A|#NV|Err:\d{3}|#{3,}")
_WRONG_READINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman"),
    *("gb18030", "big5hkscs", "cp932", "cp949"),
)
_UNDECODED = re.compile("[\x80-\x9f\xad\ufffd]")
"""What programs put for a byte without a meaning: each its own."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """A way in which programs destroy text; `shows` takes the text before and after."""

    shows: Callable[[str, str], bool]
    what: str
    expected: str
    fix: str


def refuse_losses(rows: Iterable[ReviewRow], before: Mapping[str, str], where: str) -> None:
    """Raise DataError, naming the rows, when a program saved captions destroyed.

    `before` are the captions as they were, by id.
    """
    pairs = [(row, before[row.id]) for row in rows if row.id in before]
    for loss in _LOSSES:
        lost = [
            f"  {row.id}: {row.caption[:_SHOWN]!r} was {text[:_SHOWN]!r}"
            for row, text in pairs
            if row.caption != text and loss.shows(text, row.caption)
        ]
        if lost:
            raise DataError(
                f"review.csv was saved {loss.what}:\n" + "\n".join(lost),
                where=where,
                expected=f"{loss.expected}; nothing was taken over",
                fix=f"{loss.fix}; if it is closed already, move review.csv away, and it is written "
                "as it was",
                run=(Command("caption"),),
            )


def _has_question_marks(before: str, after: str) -> bool:
    if before.isascii() or after.count("?") <= before.count("?"):
        return False
    return _LOST.sub("?", before) == _LOST.sub("?", after)


def _was_misread(before: str, after: str) -> bool:
    """Whether `after` is `before` in UTF-8, opened as something else."""
    if before.isascii() or after.isascii():
        return False
    data, seen = before.encode("utf-8", "replace"), _UNDECODED.sub("", after)
    readings = (data.decode(name, "replace") for name in _WRONG_READINGS)
    return any(_UNDECODED.sub("", reading) == seen for reading in readings)


def _is_no_cell_value(before: str, after: str) -> bool:
    return bool(before) and bool(_NO_CELL_VALUE.fullmatch(after.strip()))


_LOSSES = (
    _Loss(
        _has_question_marks,
        "in an encoding that lacks characters of its captions",
        "the characters, not question marks",
        "in the spreadsheet save as `CSV UTF-8`",
    ),
    _Loss(
        _was_misread,
        "after a program had opened it in a wrong encoding",
        "the characters as they were",
        "open it as UTF-8 (by the import of text files, code page 65001), edit and save again",
    ),
    _Loss(
        _is_no_cell_value,
        "with error values in place of captions",
        "text, not a formula's error",
        "write these captions as text, without = + - @ at the beginning",
    ),
)
