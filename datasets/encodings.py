"""Bytes that are not UTF-8 -> which encoding the files of a folder were written in.

Detectors fail on short captions, so the evidence of all files of a folder is added up: each
candidate encoding is scored by how plausible its reading is, character by character.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CANDIDATES = (
    "gb18030",
    "big5hkscs",
    "cp932",
    "cp949",
    "euc_jp",
    "cp1252",
    "cp1251",
    "utf-16-le",
    "utf-16-be",
)
MULTIBYTE = frozenset({"gb18030", "gbk", "gb2312", "big5hkscs", "big5", "cp932", "cp949", "euc_jp"})
_FROM_CHARDET = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "hz-gb-2312": "gb18030",
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "shift_jis": "cp932",
    "cp932": "cp932",
    "euc-jp": "euc_jp",
    "euc-kr": "cp949",
    "cp949": "cp949",
    "iso-8859-1": "cp1252",
    "windows-1252": "cp1252",
    "windows-1251": "cp1251",
}
_DETECTOR_BONUS = 0.1  # Below any margin that counts: chardet breaks ties, it decides nothing.
_ENOUGH_FILES = 200  # Evenly spread; more change no decision and cost seconds.
_ENOUGH_BYTES = 12
_GOOD_SCORE = 0.6
_GOOD_MARGIN = 0.25


@dataclass(frozen=True, slots=True)
class Score:
    """How plausible a reading is, from about -3 to 1.2."""

    encoding: str
    value: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidates, best first, and whether the first is clear enough to be called likely."""

    scores: tuple[Score, ...]
    is_likely: bool

    @property
    def encoding(self) -> str:
        """The best candidate; empty when there was nothing to decide."""
        return self.scores[0].encoding if self.scores else ""


def decide(files: Sequence[bytes]) -> Decision:
    """Score every candidate over all undecided files of a folder."""
    if not files:
        return Decision((), False)
    files = files[:: -(-len(files) // _ENOUGH_FILES)]
    hint = _detected(files)
    scores = [
        Score(name, _score(files, name) + (_DETECTOR_BONUS if name == hint else 0))
        for name in CANDIDATES
    ]
    ranked = sorted(scores, key=lambda score: -score.value)
    margin = ranked[0].value - ranked[1].value
    enough = sum(map(_num_high, files)) >= _ENOUGH_BYTES
    likely = enough and ranked[0].value >= _GOOD_SCORE and margin >= _GOOD_MARGIN
    return Decision(tuple(ranked), likely)


def strictly(data: bytes, encoding: str) -> str | None:
    """Decode without replacement; None when the bytes do not fit."""
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def plausibility(text: str, encoding: str) -> float:
    """Return the mean of the points of all characters beyond ASCII; 0 without any."""
    padded = f" {text} "
    points = [
        _points(padded[at - 1], padded[at], padded[at + 1], encoding)
        for at in range(1, len(padded) - 1)
        if padded[at] > "\x7f" or padded[at] < "\t"
    ]
    return sum(points) / len(points) if points else 0.0


def is_lone_windows_punctuation(data: bytes) -> bool:
    """Tell whether all high bytes are Windows quotes, dashes or dots alone between ASCII ones."""
    high = [at for at, byte in enumerate(data) if byte > 0x7F]
    alone = all(at + 1 not in high for at in high)
    return bool(high) and alone and all(data[at] in b"\x85\x91\x92\x93\x94\x96\x97" for at in high)


def _detected(files: Sequence[bytes]) -> str:
    import chardet

    answer = chardet.detect(b"\n".join(files)[: 1 << 16])
    return _FROM_CHARDET.get((answer["encoding"] or "").casefold(), "")


def _num_high(data: bytes) -> int:
    return sum(byte > 0x7F for byte in data)


def _score(files: Sequence[bytes], encoding: str) -> float:
    weighted, total = 0.0, 0
    for data in files:
        weight = _num_high(data) or 1
        text = strictly(data, encoding)
        weighted += weight * (-1.0 if text is None else plausibility(text, encoding))
        total += weight
    return weighted / total


# One return per kind of neighbourhood reads better than one sum of conditions.
def _points(before: str, char: str, after: str, encoding: str) -> float:  # noqa: PLR0911
    """Return from -3 (never written by a person) to 1.2 (exactly what this encoding is for)."""
    code = ord(char)
    if 0x3400 <= code <= 0x9FFF:
        return _ideograph_points(char, encoding)
    if 0xAC00 <= code <= 0xD7A3:
        return 1.15 if encoding == "cp949" and _lead(char, "euc_kr") else -1.0
    if 0x3041 <= code <= 0x30FC:
        return 1.1 if encoding in {"cp932", "euc_jp"} else 0.0
    if 0x3000 <= code <= 0x303F or 0xFF00 <= code <= 0xFF5E:
        return 1.0
    if 0x0400 <= code <= 0x045F:
        return _cyrillic_points(before, char, after) if encoding == "cp1251" else -0.5
    if char.isalpha() and code < 0x0250:
        return _latin_points(before, after) if encoding == "cp1252" else -0.5
    if not char.isprintable() or 0xE000 <= code <= 0xF8FF:
        return -3.0
    return 0.3 if 0x2010 <= code <= 0x2027 and before.isascii() else -0.5


def _ideograph_points(char: str, encoding: str) -> float:
    """Common characters fill the first level of each national standard."""
    if encoding == "cp949":
        return -0.5
    if encoding in {"cp932", "euc_jp"}:
        return 1.0 if 0xB0 <= _lead(char, "euc_jp") <= 0xCF else -1.0
    traditional = 0xA4 <= _lead(char, "big5") <= 0xC6
    if encoding == "big5hkscs":
        return 1.05 if traditional else -1.0
    simplified = 0xB0 <= _lead(char, "gb2312") <= 0xD7
    return 1.0 if simplified else 0.5 if traditional else -1.0


def _cyrillic_points(before: str, char: str, after: str) -> float:
    in_word = before.isalpha()
    if any(one.isascii() and one.isalpha() for one in (before, after)):
        return -1.0
    if char.islower():
        return 1.0
    return 1.0 if not in_word else 0.3 if before.isupper() else -1.0


def _latin_points(before: str, after: str) -> float:
    beside_ascii = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
    return 0.7 if beside_ascii and before.isascii() and after.isascii() else -0.3


@cache
def _lead(char: str, encoding: str) -> int:
    """Return the first byte of a two-byte character; 0 when the encoding lacks it."""
    try:
        data = char.encode(encoding)
    except UnicodeEncodeError:
        return 0
    return data[0] if len(data) == 2 else 0
