"""How unlikely a text is in a language, in bits: each character, and each odd neighbourhood.

The figures are rough by intention: a right reading is cheaper than a wrong one by many bits,
and what is decided by few bits is asked.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from latentmill.datasets import common_characters
from latentmill.datasets.letter_bits import (
    FOR_ALL,
    GREEK,
    LATIN,
    RUSSIAN,
    SYMBOLS,
    THAI,
    UKRAINIAN,
    WIDE,
)

_ODD_BITS = 7.0
_CONTROL_BITS, _NEVER_BITS, _STRANGE_BITS = 16.0, 30.0, 14.0
_UNKNOWN_BITS, _UNKNOWN_LONE_BITS = 8.2, 12.0
"""Bytes above 0x7F of text in no known language: beside another one, and between ASCII ones."""

LATIN_NAMES = tuple(LATIN)
_MANY_ACCENTS = frozenset({"Polish", "Czech", "Slovak", "Hungarian"})
_LONE_BYTE = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")


@dataclass(frozen=True, slots=True)
class Language:
    """A language that captions are written in."""

    name: str
    costs: Mapping[str, float]
    odd: re.Pattern[str]


def least_bits(text: str, languages: Sequence[Language]) -> float:
    """Return how unlikely the text is in that of the languages that suits it best."""
    odd: dict[re.Pattern[str], float] = {}
    least = math.inf
    for one in languages:
        if one.odd not in odd:
            odd[one.odd] = _ODD_BITS * len(one.odd.findall(text))
        if odd[one.odd] < least:
            least = min(least, odd[one.odd] + sum(map(one.costs.__getitem__, text)))
    return least


class _Costs(dict[str, float]):
    """Bits of a character; what is not in the table is worked out once."""

    def __init__(self, known: Mapping[str, float], standard: str = "", rare_bits: float = 15.0):
        """Characters of the national `standard`'s first level are rarer than those known."""
        super().__init__(_ascii_bits() | dict(known))
        self._standard, self._rare_bits = standard, rare_bits

    def __missing__(self, char: str) -> float:
        bits = self._rare_bits if _first_level(char, self._standard) else _other_bits(char)
        self[char] = bits
        return bits


class _LetterCosts(_Costs):
    def __missing__(self, char: str) -> float:
        known = "\u0370" <= char < "\u2e80" and char.isalpha()
        self[char] = 9.0 if known else _other_bits(char)
        return self[char]


@cache
def chinese(traditional: bool) -> Language:
    """Chinese in simplified or traditional characters."""
    common = common_characters.traditional() if traditional else common_characters.simplified()
    known = _table(WIDE) | dict.fromkeys(common, 10.0)
    costs = _Costs(known, "big5" if traditional else "gb2312")
    return Language("Chinese", costs, _ideographs())


@cache
def japanese() -> Language:
    """Japanese: kana and kanji."""
    kana = {chr(code): 6.0 for code in range(0x3041, 0x3094)}
    kana |= {chr(code): 6.8 for code in range(0x30A1, 0x30F5)} | {"ー": 6.0, "々": 10.0}
    common = dict.fromkeys(common_characters.japanese(), 10.0)
    costs = _Costs(_table(WIDE) | common | kana, "euc_jp")
    return Language("Japanese", costs, _ideographs())


@cache
def korean() -> Language:
    """Korean in Hangul."""
    common = dict.fromkeys(common_characters.hangul(), 8.8)
    return Language("Korean", _Costs(_table(WIDE) | common, "euc_kr", 14.5), _ideographs())


@cache
def cyrillic() -> tuple[Language, ...]:
    """Russian and Ukrainian."""
    odd = re.compile(
        "[а-яёіїєґ][А-ЯЁІЇЄҐ]|[A-Za-z][Ѐ-ӿ]|[Ѐ-ӿ][A-Za-z]|(?<![Ѐ-ӿ])[ъьый]|[Ѐ-ӿ][¡-¿]|[¡-¿][Ѐ-ӿ]"
        "|[бвгджзклмнпрстфхцчшщ]{4}|(?<![Ѐ-ӿ])[бвгджзйклмнпрстфхцчшщ]{3,}(?![Ѐ-ӿ])"
        "|[бвгджзклмнпрстфхцчшщ]й|[аеёиоуыэюя][ьъ]|[аеёиоуыэюя]{3}|[ьъ][ьъы]"
    )
    return tuple(
        Language(name, _Costs(_with_capitals(letters) | _table(FOR_ALL)), odd)
        for name, letters in (("Russian", RUSSIAN), ("Ukrainian", UKRAINIAN))
    )


@cache
def greek() -> Language:
    """Greek."""
    odd = re.compile(
        "[ά-ώ][Α-Ω]|[A-Za-z][Ͱ-Ͽ]|[Ͱ-Ͽ][A-Za-z]|ς[Ͱ-Ͽ]|[άέήίόύώ](?=[α-ω]*[άέήίόύώ])"
        "|[βγδζθκλμνξπρστφχψ]{4}"
    )
    return Language("Greek", _Costs(_with_capitals(GREEK) | _table(FOR_ALL)), odd)


@cache
def hebrew() -> Language:
    """Hebrew without points."""
    letters = dict.fromkeys("יוהלארמתבשנ", 4.0) | dict.fromkeys("דעקחפכג", 5.3)
    letters |= dict.fromkeys("צסזטםןךףץ", 6.5)
    odd = re.compile("[A-Za-z][א-ת]|[א-ת][A-Za-z]|[ךםןףץ][א-ת]|(?<![א-ת])[א-ת](?![א-ת])|[א-ת][¡-¿]")
    return Language("Hebrew", _Costs(letters | _table(FOR_ALL)), odd)


@cache
def arabic() -> Language:
    """Arabic and Persian."""
    letters = {chr(code): 5.2 for code in range(0x621, 0x64B)} | {"ا": 3.2, "ل": 3.6, "ـ": 12.0}
    letters |= dict.fromkeys("پچژگکی", 8.0)
    odd = re.compile("[A-Za-z][ء-ي]|[ء-ي][A-Za-z]|[ةى][ء-ي]|[ء-ي][¡-¿]|(?<![ء-ي])[ء-ي](?![ء-ي])")
    return Language("Arabic", _Costs(letters | _table(FOR_ALL)), odd)


@cache
def thai() -> Language:
    """Thai: marks stand above or below a consonant only."""
    letters = _table(THAI)
    odd = re.compile("[A-Za-z][ก-๎]|[ก-๎][A-Za-z]|(?<![ก-ฮ])[ัิ-ฺ]|[เแโใไ](?![ก-ฮ])|(?<![ก-ฮัิ-ฺ])[็-๎]")
    return Language("Thai", _Costs(letters | _table(FOR_ALL)), odd)


@cache
def latin(*names: str) -> tuple[Language, ...]:
    """European languages whose letters are mostly ASCII."""
    return tuple(
        Language(name, _Costs(_table(FOR_ALL) | _table(LATIN[name])), _odd_latin(name))
        for name in names
    )


def _odd_latin(name: str) -> re.Pattern[str]:
    """Neighbouring accents, capitals inside a word, lone letters, symbols in words."""
    accents = 3 if name in _MANY_ACCENTS else 2
    return re.compile(
        f"[À-ɏ](?=[À-ɏ]{{{accents - 1}}})|[a-zß-ÿ](?=[À-ÖØ-Þ])"
        "|(?<![A-Za-zÀ-ɏ])[ßá-öø-ɏ](?![A-Za-zÀ-ɏ])"
        "|[A-Za-zÀ-ɏ](?=[¡-ª¬-¶¸-º¼-¿])|[¡-ª¬-¶¸-º¼-¿](?=[A-Za-zÀ-ɏ])"
    )


@cache
def any_script() -> Language:
    """Letters of scripts that have no table here: dearer than bytes of an unknown language."""
    return Language("another language", _LetterCosts(_table(SYMBOLS)), re.compile(r"(?!)"))


@cache
def ascii_only() -> Language:
    """A short ASCII text; capitals after small letters, signs and no vowel are no words."""
    odd = re.compile(r"[a-z][A-Z]|[^\w\s.,!?'\"()-]|[,.;:!?][A-Za-z]|\A[^aeiouAEIOU]+\Z")
    return Language("ASCII", _Costs({}), odd)


def utf8_oddity_bits(text: str) -> float:
    """Return what makes text odd that is valid UTF-8 by chance: mixed scripts, a lone letter."""
    odd = 7.0 if sum(map(str.isalnum, text)) <= 2 else 0.0
    scripts = [_script(char) for char in text]
    return odd + 14.0 * sum(
        bool(left and right and left != right) for left, right in itertools.pairwise(scripts)
    )


@cache
def _script(char: str) -> str:
    """Return the script of a letter or mark; empty for anything else."""
    if char in "µªº" or not (char.isalpha() or unicodedata.combining(char)):
        return ""
    return unicodedata.name(char, "?").partition(" ")[0]


def unknown_bits(data: bytes) -> float:
    """Return how unlikely the bytes are as text in no known language: what a reading must beat."""
    lone = len(_LONE_BYTE.findall(data)) * (_UNKNOWN_LONE_BITS - _UNKNOWN_BITS)
    return sum(map(_unknown_costs().__getitem__, data)) + lone


@cache
def _unknown_costs() -> list[float]:
    ascii_bits = _ascii_bits()
    return [ascii_bits[chr(code)] for code in range(128)] + [_UNKNOWN_BITS] * 128


@cache
def _ascii_bits() -> dict[str, float]:
    bits = {chr(code): 8.0 if code >= 0x20 else _CONTROL_BITS for code in range(0x7F)}
    bits["\x7f"] = _CONTROL_BITS
    bits |= dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 4.3)
    bits |= dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 6.5) | dict.fromkeys("0123456789", 6.0)
    return bits | {
        " ": 2.6,
        ",": 4.5,
        ".": 6.0,
        "\n": 5.0,
        "\r": 5.0,
        "\t": 8.0,
        "_": 6.0,
        "-": 6.5,
    }


def _other_bits(char: str) -> float:
    """Cost of a character without a place in any table."""
    kind = unicodedata.category(char)
    if kind in {"Cn", "Co", "Cs"}:
        return _NEVER_BITS
    if kind.startswith("C"):
        return _CONTROL_BITS
    return 20.0 if char >= "\u2e80" else _STRANGE_BITS


def _table(letters: str) -> dict[str, float]:
    return {char: float(bits) for char, bits in re.findall(r"(\D)(\d+(?:\.\d+)?)", letters)}


def _with_capitals(letters: str) -> dict[str, float]:
    small = _table(letters)
    return {char.upper(): bits + 5 for char, bits in small.items() if char != "ς"} | small


def _ideographs() -> re.Pattern[str]:
    """Latin letters beside East Asian text, full-width punctuation aside."""
    other = "[^\\x00-\\x7f，。、！？：；（）“”‘’]"
    return re.compile(f"[A-Za-z](?={other})|{other}(?=[A-Za-z])")


_FIRST_LEVEL = {"gb2312": (0xB0, 0xD7), "big5": (0xA4, 0xC6), "euc_jp": (0xB0, 0xCF)}
_FIRST_LEVEL |= {"euc_kr": (0xB0, 0xC8)}


def _first_level(char: str, standard: str) -> bool:
    if not standard or char < "\u2e80":
        return False
    try:
        data = char.encode(standard)
    except UnicodeEncodeError:
        return False
    low, high = _FIRST_LEVEL[standard]
    return len(data) == 2 and low <= data[0] <= high
