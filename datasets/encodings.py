"""Bytes that are not UTF-8 -> which encoding each file of a folder was written in, with the odds.

Detectors fail on short captions. Here each candidate encoding reads each file, a language model
says how unlikely that text is, and the other files of the folder say how common the encoding is
here. A folder may be mixed: each file is decided for itself, by its own text and its neighbours.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from latentmill.datasets import languages
from latentmill.datasets.languages import Language


def _eastern() -> Sequence[Language]:
    chinese = languages.chinese(False), languages.chinese(True)
    return (*chinese, languages.japanese(), languages.korean())


def _every_language() -> Sequence[Language]:
    west = languages.latin("French", "German", "Spanish", "Polish")
    return (*_eastern(), *west, *languages.cyrillic(), languages.greek())


_WEST = ("French", "German", "Spanish", "Portuguese", "Italian", "Nordic")
_EAST = ("Polish", "Czech", "Slovak", "Hungarian", "Romanian", "Croatian")
CANDIDATES: dict[str, Callable[[], Sequence[Language]]] = {
    "gb18030": lambda: (languages.chinese(False), languages.chinese(True)),
    "big5hkscs": lambda: (languages.chinese(True),),
    "cp932": lambda: (languages.japanese(),),
    "euc_jp": lambda: (languages.japanese(),),
    "cp949": lambda: (languages.korean(),),
    "johab": lambda: (languages.korean(),),
    "cp1252": lambda: languages.latin(*_WEST),
    "mac_roman": lambda: languages.latin(*_WEST),
    "cp850": lambda: languages.latin(*_WEST),
    "cp1250": lambda: languages.latin(*_EAST),
    "iso8859_2": lambda: languages.latin(*_EAST),
    "cp852": lambda: languages.latin(*_EAST),
    "cp1254": lambda: languages.latin("Turkish"),
    "cp857": lambda: languages.latin("Turkish"),
    "cp1257": lambda: languages.latin("Latvian", "Lithuanian"),
    "cp1251": languages.cyrillic,
    "koi8_u": languages.cyrillic,
    "cp866": languages.cyrillic,
    "iso8859_5": languages.cyrillic,
    "mac_cyrillic": languages.cyrillic,
    "cp1253": lambda: (languages.greek(),),
    "cp1255": lambda: (languages.hebrew(),),
    "cp1256": lambda: (languages.arabic(),),
    "cp874": lambda: (languages.thai(),),
    "utf-16-le": _every_language,
    "utf-16-be": _every_language,
}
"""Encodings and the languages that are written in them."""

SURE_BITS = 11.0
"""Odds of about 2,000:1 over every other reading let a caption pass without a question."""
UNUSUAL_BITS = 5.0
"""An encoding that few captions are saved in must win by so much more."""

_Bits = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_UNREADABLE_BITS = 1e5
_UTF8, _UNKNOWN = "utf-8", "unknown"
_MOST_EVIDENCE = 200  # Files, evenly spread, that are read in every encoding.
_OCCURS = 0.3  # Files of these that make an encoding one that occurs here.
_RARE = 0.02  # Files of an encoding that are expected where no other file shows it.
_RARE_UTF8 = 1.0
_USUAL = frozenset(
    {"gb18030", "big5hkscs", "cp932", "euc_jp", "cp949", "cp1252", "cp1250", "cp1251", "utf-16-le"}
)
_ROUNDS = 5
_SAMPLE_BYTES = 1 << 16
_COMMON_NAMES = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "hz-gb-2312": "gb18030",
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "euc_jis_2004": "euc_jp",
    "shift-jis": "cp932",
    "euc-jp": "euc_jp",
    "euc-kr": "cp949",
    "iso-8859-1": "cp1252",
    "iso-8859-15": "cp1252",
    "windows-1250": "cp1250",
    "windows-1251": "cp1251",
    "windows-1252": "cp1252",
    "windows-1253": "cp1253",
    "windows-1254": "cp1254",
    "iso-8859-9": "cp1254",
    "macroman": "mac_roman",
    "koi8-r": "koi8_u",
    "koi8-u": "koi8_u",
    "windows-1257": "cp1257",
    "iso-8859-5": "iso8859_5",
}


@dataclass(frozen=True, slots=True)
class Scored:
    """A reading of a file. `bits` says how unlikely it is, neighbours counted; less is better."""

    encoding: str
    text: str
    bits: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The readings of one file that differ, best first, and the margin of the first in bits.

    `readings` is empty when no candidate can decode the bytes. `is_known` is false when text in
    no known language is as likely as the best reading.
    """

    readings: tuple[Scored, ...]
    margin_bits: float
    is_known: bool

    @property
    def is_sure(self) -> bool:
        """Whether the first reading holds without asking a person."""
        needed = SURE_BITS
        if self.readings and self.readings[0].encoding not in (*_USUAL, _UTF8, "utf-16-be"):
            needed += UNUSUAL_BITS
        return self.is_known and self.margin_bits >= needed

    @property
    def odds(self) -> str:
        """The margin in words."""
        if self.margin_bits >= math.log2(1_000_000):
            return "more than 1,000,000:1"
        return f"about {max(1, round(2 ** max(0.0, self.margin_bits))):,}:1"


def decide(files: Sequence[bytes], extra: str = "") -> list[Decision]:
    """Decide each file; equal files count once as evidence. `extra` is one more candidate.

    Files that are valid UTF-8 may be among them: that reading competes with the others. Of many
    files some are read in every encoding, the rest in those that occur, and in all if that leaves
    a doubt.
    """
    if not files:
        return []
    names = [_UTF8, *CANDIDATES, *([extra] if extra and extra not in CANDIDATES else [])]
    distinct = list(dict.fromkeys(files))
    first = distinct[:: -(-len(distinct) // _MOST_EVIDENCE)]
    rows = [_row(data, names) for data in first]
    rare = np.array([*map(_expected, names), _RARE])
    priors, shares = _with_neighbours(np.array(rows), rare, len(distinct))
    decisions = {
        data: _decision(data, names, row, prior)
        for data, row, prior in zip(first, rows, priors.tolist(), strict=True)
    }
    prior = dict(zip([*names, _UNKNOWN], priors.mean(axis=0).tolist(), strict=True))
    occurring = [
        name
        for name, share in zip(names, shares, strict=False)
        if share >= _OCCURS or name == _UTF8
    ]
    for data in distinct:
        if data not in decisions:
            decision = _decide_by(data, occurring, prior)
            decisions[data] = decision if decision.is_sure else _decide_by(data, names, prior)
    return [decisions[data] for data in files]


def _decide_by(data: bytes, names: Sequence[str], prior: Mapping[str, float]) -> Decision:
    row = _row(data, names)
    return _decision(data, names, row, [prior[name] for name in (*names, _UNKNOWN)])


def _row(data: bytes, names: Sequence[str]) -> list[float]:
    """Return the bits of the data in each encoding, then as text in no known one."""
    data = _sample(data)
    kept = [not data.isascii() or name == _UTF8 or name.startswith("utf-16") for name in names]
    texts = [strictly(data, name) if keep else None for name, keep in zip(names, kept, strict=True)]
    unknown = _UNREADABLE_BITS if data.isascii() else languages.unknown_bits(data)
    return [*(bits_in(text, name) for text, name in zip(texts, names, strict=True)), unknown]


def _expected(name: str) -> float:
    if name == _UTF8:
        return _RARE_UTF8
    return _RARE if name in _USUAL else _RARE / 4


def _with_neighbours(bits: _Bits, rare: _Bits, num_files: int) -> tuple[_Bits, list[float]]:
    """Return how rare each encoding (column) is among the other files, in bits; and its share.

    `bits` are those of some of the `num_files` files, one row each; `rare` is what is expected
    before any file is seen.
    """
    prior: _Bits = np.zeros_like(bits) - np.log2(rare / rare.sum())
    for _ in range(_ROUNDS):
        total = bits + prior
        share = np.exp2(total.min(axis=1, keepdims=True) - total)
        share /= share.sum(axis=1, keepdims=True)
        others = (share.sum(axis=0, keepdims=True) - share) * (num_files / len(bits))
        prior = -np.log2((others + rare) / (num_files - 1 + rare.sum()))
    return prior, share.sum(axis=0).tolist()


def _sample(data: bytes) -> bytes:
    """Return the data, or whole lines from the beginning of a long table."""
    if len(data) <= _SAMPLE_BYTES:
        return data
    return data[: data.rfind(b"\n", 0, _SAMPLE_BYTES) + 1] or data


def strictly(data: bytes, encoding: str) -> str | None:
    """Decode without replacement; None when the bytes do not fit."""
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


def bits_in(text: str | None, encoding: str) -> float:
    """Return how unlikely the text is in the languages of `encoding`, neighbours left out."""
    if text is None:
        return _UNREADABLE_BITS
    if encoding == _UTF8:
        encoding = "ascii" if text.isascii() else encoding
    if encoding == _UTF8:  # macOS takes letters and their accents apart.
        text = unicodedata.normalize("NFC", text)
    odd = languages.utf8_oddity_bits(text) if encoding == _UTF8 else 0.0
    return odd + languages.least_bits(text, _languages(encoding))


def is_rare(text: str) -> bool:
    """Whether a letter of the text is found in no language's everyday text."""
    return any(
        char > "\u07ff" and char.isalpha() and min(one.costs[char] for one in _eastern()) > 10
        for char in text
    ) or any(unicodedata.category(char) in ("Cn", "Co") for char in text)


def detected(files: Sequence[bytes]) -> str:
    """Name the encoding that chardet sees in all files together; empty when it sees none."""
    import chardet

    answer = chardet.detect(b"\n".join(files)[: 1 << 16])["encoding"] or ""
    return _COMMON_NAMES.get(answer.casefold(), answer.casefold())


@cache
def _languages(encoding: str) -> Sequence[Language]:
    if encoding == "ascii":
        return (languages.ascii_only(),)
    if encoding == _UTF8:
        western = (*languages.latin(*languages.LATIN_NAMES), *languages.cyrillic())
        near = (languages.greek(), languages.hebrew(), languages.arabic())
        return (*western, *near, languages.any_script(), *_eastern())
    return CANDIDATES[encoding]() if encoding in CANDIDATES else (languages.any_script(),)


def _decision(
    data: bytes, names: Sequence[str], row: Sequence[float], prior: Sequence[float]
) -> Decision:
    *bits, unknown = (one + rarity for one, rarity in zip(row, prior, strict=True))
    ranked: dict[str, Scored] = {}
    for total, name in sorted(zip(bits, names, strict=True)):
        text = strictly(data, name) if total < _UNREADABLE_BITS else None
        if text is not None and text not in ranked:
            ranked[text] = Scored(name, text, total)
    readings = tuple(ranked.values())
    if not readings:
        return Decision((), 0.0, False)
    rivals = [unknown, *(one.bits for one in readings[1:2])]
    return Decision(readings, min(rivals) - readings[0].bits, readings[0].bits < unknown)
