"""Bytes of caption files -> text, by steps that are reported; what is not sure becomes a check."""

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from latentmill.datasets.encodings import (
    SURE_BITS,
    Decision,
    Scored,
    bits_in,
    decide,
    detected,
    is_rare,
    strictly,
)

MAX_BYTES = 1 << 20
"""Larger files are no captions and are not read."""

LONGEST = 15_000
"""Characters of a caption; a cell of `review.csv` holds 32,767 units, two for some characters."""

Step = Literal["mark", "utf-8", "bytes", "folder", "person", "nobody"]
"""What decided: a byte-order mark, strict UTF-8, the bytes' own pattern, the files of the folder
together, a person by a setting, or nobody yet (the caption waits)."""

_BOMS = (  # UTF-32 first: its little-endian mark begins like that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WINDOWS_QUOTES = re.compile(  # Elisions, pairs of quotes, dashes between words.
    rb"(?<=[a-z])\x92(?=(?:s|t|re|ve|m|ll|d)(?![a-z]))|(?<![a-z])(?:[dlcjmns]|qu)\x92(?=[aeiouhy][a-z]{2})"
    rb"|(?<=[a-z]s)\x92(?= )|\x93[^\x80-\xff]+\x94|(?<= )[\x96\x97](?= )"
)
_WORDS = re.compile(rb"\w+(?:[ ,.'-]+\w+)*[ ,.]*")
_SHOWN_CHARACTERS = 60
_SHORT_BYTES = 16  # ASCII up to this length may be UTF-16 of some Chinese characters.
_UTF8_BITS = 3.0  # Valid UTF-8 needs less of a margin to stand: other texts seldom look so.
_NAMED_BITS = 8.0  # What it counts for that a person named an encoding for the folder.


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's text, and which step decided.

    `check` is a code when a person must confirm the text, `code` one when it is only reported;
    `message` is the reason of either.
    """

    text: str
    encoding: str
    step: Step
    check: str = ""
    message: str = ""
    code: str = ""


def read_texts(files: Mapping[str, bytes], encoding: str = "auto") -> dict[str, Reading]:
    """Decode all caption files of a source together, so that each is evidence for the others.

    BOM, strict UTF-8, then `encoding` if a person named one, the bytes' own pattern, the folder's
    evidence with chardet's guess among the candidates; what stays unsure is asked.
    """
    certain = {path: _certain(data) for path, data in files.items()}
    doubtful = [
        path
        for path, reading in certain.items()
        if (reading is None and not _own_rule(files[path]))
        or (reading is not None and _may_mean_more(reading, files[path]))
    ]
    unread = [files[path] for path in doubtful if certain[path] is None]
    decisions = decide([files[path] for path in doubtful], detected(unread) if unread else "")
    decided = dict(zip(doubtful, decisions, strict=True))
    result: dict[str, Reading] = {}
    for path, data in files.items():
        reading = certain[path]
        if reading is None:
            named = _as_named(data, encoding)
            reading = named or _by_pattern(data) or _by_folder(data, decided.get(path), len(unread))
            if named is None and encoding != "auto":
                reading = _not_as_named(reading, encoding)
        elif path in decided and encoding != "auto":
            reading = _as_meant(data, reading, encoding)
        elif path in decided:
            is_letters_among_others = bool(unread) and reading.encoding == "ascii"
            margin_bits = SURE_BITS if is_letters_among_others else _UTF8_BITS
            reading = _second_meaning(reading, decided[path], margin_bits)
        result[path] = reading
    return result


def _certain(data: bytes) -> Reading | None:
    """Return the reading that needs no evidence, or None."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            text = strictly(data, name)
            return None if text is None else Reading(text, name, "mark")
    if _own_rule(data):
        return None
    text = strictly(data, "utf-8")
    body = data.rstrip(b"\x00")
    if (
        0 in data
        and len(data) % 2 == 0
        and not (0 not in body and body.isascii() and len(body) > 2)
    ):
        return None
    return None if text is None else Reading(text, "ascii" if data.isascii() else "utf-8", "utf-8")


def _own_rule(data: bytes) -> str:
    """Return the encoding that a pattern of the bytes themselves shows, or an empty string."""
    if b"\x1b$" in data:
        return "iso2022_jp_ext"
    if data.isascii():
        return "hz" if re.search(rb"~\{(?:[!-w][!-~])+~\}", data) else ""
    return "cp1252" if _has_windows_quotes_only(data) else ""


def _has_windows_quotes_only(data: bytes) -> bool:
    """Tell whether all high bytes are Windows quotes, dashes or dots in a text of ASCII words."""
    rest = _WINDOWS_QUOTES.sub(b"", data)
    letters = len(re.findall(rb"[a-z ]", rest))
    return rest.isascii() and letters >= max(4, 0.75 * len(rest))


def _may_mean_more(reading: Reading, data: bytes) -> bool:
    """Whether valid UTF-8 may be another encoding: letters below U+0800, or very short ASCII.

    Some Chinese words in GBK are valid UTF-8 (the bytes of one for cat are those of an e with
    grave accent), and one Chinese character in UTF-16 may be two ASCII letters. Words with NULs
    behind them, as programs in C leave them, are words.
    """
    if reading.encoding == "ascii":
        if data.endswith(b"\x00") and _WORDS.fullmatch(data.rstrip(b"\x00")):
            return False
        return len(data) % 2 == 0 and len(data) <= _SHORT_BYTES and bool(data.strip())
    return reading.encoding == "utf-8" and (
        max(reading.text) <= "\u07ff" or (len(data) <= _SHORT_BYTES and is_rare(reading.text))
    )


def _as_named(data: bytes, encoding: str) -> Reading | None:
    text = None if encoding == "auto" else strictly(data, encoding)
    return None if text is None else Reading(text, encoding, "person")


def _not_as_named(reading: Reading, encoding: str) -> Reading:
    message = f"Neither UTF-8 nor {encoding}, as was set. {reading.message}"
    return replace(reading, step="nobody", check="encoding-unsure", code="", message=message)


def _by_pattern(data: bytes) -> Reading | None:
    """Read a damaged file with a mark, or one whose bytes show their encoding themselves."""
    for mark, name in _BOMS:
        if data.startswith(mark) and mark != codecs.BOM_UTF8:
            message = f"Has the mark of {name}, but is damaged"
            lossy = data.decode(name, "replace")
            return Reading(lossy, name, "nobody", "encoding-unsure", message)
    own = _own_rule(data)
    text = strictly(data, own) if own else None
    if text is None:
        return None
    message = f"Not UTF-8; its bytes have the pattern of {own}: {_shown(text)}"
    return Reading(text, own, "bytes", message=message, code="encoding-guessed")


def _by_folder(data: bytes, decision: Decision | None, num_files: int) -> Reading:
    """Read as the file itself and the others read best; a check unless the odds are high."""
    if decision is None or not decision.readings:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
        message = f"No encoding fits; parts are lost: {_shown(text)}"
        return Reading(text, "unknown", "nobody", "encoding-unsure", message)
    best, *others = decision.readings
    if best.encoding == "utf-8" and decision.is_sure:
        return Reading(best.text, "ascii" if data.isascii() else "utf-8", "utf-8")
    text = best.text.removeprefix("\ufeff")
    files = f"{num_files} files that are not UTF-8" if num_files > 1 else "this file alone"
    said = f"Not UTF-8; read as {best.encoding}: {_shown(text)}"
    if decision.is_sure:
        message = f"{said}; decided from {files}, odds {decision.odds}"
        return Reading(text, best.encoding, "folder", message=message, code="encoding-guessed")
    why = f"odds {decision.odds}" if decision.is_known else "but no known language reads so"
    said = f"{said}, {why} from {files}{_readings_shown(others)}"
    return Reading(text, best.encoding, "nobody", "encoding-unsure", said)


def _as_meant(data: bytes, reading: Reading, encoding: str) -> Reading:
    """Read UTF-8 text in the encoding that a person named, where that makes more of it."""
    named = strictly(data, encoding)
    if named is None or named == reading.text:
        return reading
    better = bits_in(named, encoding) - _NAMED_BITS < bits_in(reading.text, reading.encoding)
    return Reading(named, encoding, "person") if better else reading


def _second_meaning(reading: Reading, decision: Decision, margin_bits: float) -> Reading:
    """Doubt UTF-8 text that is as well text of another encoding, such as that of its neighbours.

    `margin_bits` is how much likelier it must be as UTF-8: more for a few ASCII letters among
    files that are not UTF-8, which may be Chinese in UTF-16.
    """
    by_text = {one.text: one for one in decision.readings}
    rivals = [one for one in decision.readings if one.text != reading.text]
    own = by_text.get(reading.text)
    if own is None or not rivals or own.bits + margin_bits <= rivals[0].bits:
        return reading
    rival = rivals[0]
    said = f"Valid UTF-8 ({_shown(reading.text)}), but as {rival.encoding} it says "
    message = said + _shown(rival.text) + _readings_shown(rivals[1:])
    best = rival if rival.bits < own.bits else own
    return Reading(best.text, best.encoding, "nobody", "encoding-double-meaning", message)


def _readings_shown(others: Iterable[Scored]) -> str:
    parts = [f"; as {one.encoding}: {_shown(one.text)}" for one in others]
    return "".join(parts[:2])


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line[:_SHOWN_CHARACTERS]}{"…" if len(line) > _SHOWN_CHARACTERS else ""}"'
