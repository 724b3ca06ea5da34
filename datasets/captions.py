"""Bytes of caption files -> text, by steps that are reported; what is not sure becomes a check."""

import codecs
import itertools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from latentmill.datasets.encodings import (
    CANDIDATES,
    MULTIBYTE,
    Decision,
    decide,
    is_lone_windows_punctuation,
    plausibility,
    strictly,
)

MAX_BYTES = 1 << 20
"""Larger files are no captions and are not read."""

LONGEST = 15_000
"""Characters of a caption; a cell of `review.csv` holds 32,767 units, two for some characters."""

_BOMS = (  # UTF-32 first: its little-endian mark begins like that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE_ENDS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_LOST = re.compile(r"\?{3,}")
_ACCENT_IN_WORD = re.compile(r"[a-z][^\x00-\x7f]|[^\x00-\x7f][a-z]")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's text. `check` is a code when a person must confirm it, with `message` the reason."""

    text: str
    encoding: str
    check: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption as it is trained on: one line, or None when nothing is left.

    `codes` are what was changed, `checks` what a person must settle.
    """

    text: str | None
    codes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


def read_texts(files: Mapping[str, bytes], encoding: str = "auto") -> dict[str, Reading]:
    """Decode all caption files of a folder together, so that each is evidence for the others.

    BOM, strict UTF-8, then `encoding` if one is set; else the folder's evidence gives the likely
    reading, and a person confirms it.
    """
    readings = {path: _certain(data) for path, data in files.items()}
    undecided = {path: files[path] for path, reading in readings.items() if reading is None}
    grouped = [data for data in undecided.values() if not _own_rule(data)]
    decision = decide(grouped)
    result: dict[str, Reading] = {}
    for path, data in files.items():
        reading = readings[path]
        if reading is None:
            reading = _settled(data, encoding) or _likely(data, decision)
        elif reading.encoding in ("utf-8", "ascii"):
            reading = _second_meaning(data, reading, decision, encoding)
        result[path] = reading
    return result


def clean_caption(text: str) -> Caption:
    """Make one line of a caption: lines joined by `, `, control characters taken out, stripped."""
    codes: list[str] = []
    lines = [line.strip().strip("\ufeff").strip() for line in _LINE_ENDS.split(text)]
    lines = [line for line in lines if line.strip("\x00")]
    if len(lines) > 1:
        codes.append("caption-multiline")
        lines = [*(line.rstrip(", ") for line in lines[:-1]), lines[-1]]
    joined = ", ".join(lines).replace("\t", " ")
    kept = "".join(char for char in joined if unicodedata.category(char) not in ("Cc", "Cs"))
    if kept != joined or "\x00" in text:
        codes.append("caption-control-characters")
    kept = kept.strip()
    if not kept:
        return Caption(None, ("caption-empty",))
    return Caption(kept, tuple(codes), _checks(joined))


def _certain(data: bytes) -> Reading | None:
    """Return the reading that needs no evidence, or None."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            text = strictly(data, name)
            return None if text is None else Reading(text, name)
    if data.isascii() and b"\x1b$" not in data and not _nul_side(data):
        return Reading(data.decode("ascii"), "ascii")
    text = None if b"\x1b$" in data or _nul_side(data) else strictly(data, "utf-8")
    return None if text is None else Reading(text, "utf-8")


def _nul_side(data: bytes) -> str:
    """Return the UTF-16 order that many NULs on one side betray, or an empty string."""
    if len(data) < 4 or len(data) % 2:
        return ""
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) < len(data) // 4 or min(even, odd) * 4 > max(even, odd):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _own_rule(data: bytes) -> str:
    """Return the encoding that a pattern of the bytes themselves shows, or an empty string."""
    if _nul_side(data):
        return _nul_side(data)
    if b"\x1b$" in data:
        return "iso2022_jp_ext"
    return "cp1252" if is_lone_windows_punctuation(data) else ""


def _settled(data: bytes, encoding: str) -> Reading | None:
    if encoding == "auto":
        return None
    text = strictly(data, encoding)
    return None if text is None else Reading(text, encoding)


def _likely(data: bytes, decision: Decision) -> Reading:
    """Read by the bytes' own pattern, else as the folder's files read best; always a check."""
    for mark, name in _BOMS:
        if data.startswith(mark) and mark != codecs.BOM_UTF8:
            message = f"Has the mark of {name}, but is damaged"
            return Reading(data.decode(name, "replace"), name, "encoding-unsure", message)
    data = data.removeprefix(codecs.BOM_UTF8)
    own = _own_rule(data)
    text = strictly(data, own) if own else None
    if text is not None:
        return Reading(text, own, "encoding-guessed", f"Not UTF-8; read as {own}: {_shown(text)}")
    order = [score.encoding for score in decision.scores] or list(CANDIDATES)
    readings = [(name, text) for name in order if (text := strictly(data, name)) is not None]
    if not readings:
        text = data.decode("utf-8", "replace")
        return Reading(text, "unknown", "encoding-unsure", "No encoding fits; parts are lost")
    name, text = readings[0]
    message = f"Not UTF-8; read as {name}: {_shown(text)}"
    if name == decision.encoding and decision.is_likely:
        return Reading(text, name, "encoding-guessed", message)
    others = "".join(f"; as {other}: {_shown(said)}" for other, said in readings[1:3])
    return Reading(text, name, "encoding-unsure", message + others)


def _second_meaning(data: bytes, reading: Reading, decision: Decision, encoding: str) -> Reading:
    """Doubt UTF-8 text that is as well plausible text of the encoding its neighbours are in.

    Some Chinese words in GBK are valid UTF-8 (the bytes of one for cat are those of an e with
    grave accent). Two alphabets in one word, or a caption of a letter or two, need no neighbours.
    """
    if max(reading.text, default="") > "\u07ff":
        return reading
    neighbour = decision.encoding
    if not (neighbour or _is_odd(reading.text)):
        return reading
    names: tuple[str, ...] = (encoding,)
    if encoding == "auto":
        names = (neighbour,) if neighbour else CANDIDATES
    for name in names:
        other = strictly(data, name) if _doubles(name, reading, decision) else None
        if other is None or plausibility(other, name) < (0.45 if neighbour else 0.9):
            continue
        if encoding != "auto":
            return Reading(other, name)
        said = f"Valid UTF-8 ({_shown(reading.text)}), but as {name} it says {_shown(other)}"
        text = reading.text if _ACCENT_IN_WORD.search(reading.text) else other
        best = "utf-8" if text == reading.text else name
        return Reading(text, best, "encoding-double-meaning", said)
    return reading


def _doubles(name: str, reading: Reading, decision: Decision) -> bool:
    """Tell whether `name` may read these bytes too; UTF-16 of ASCII needs likely neighbours."""
    if name.startswith("utf-16"):
        return decision.encoding == name and decision.is_likely
    return name in MULTIBYTE and reading.encoding != "ascii"


def _is_odd(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    if any(unicodedata.category(char) == "Cn" for char in text):
        return True
    return _mixes_alphabets(text) or (len(letters) <= 2 and all(map(str.isalpha, text.strip())))


def _mixes_alphabets(text: str) -> bool:
    """Tell whether neighbouring letters beyond ASCII are of different alphabets."""
    scripts = [
        unicodedata.name(char, "").partition(" ")[0] if char > "\x7f" and char.isalpha() else ""
        for char in text
    ]
    pairs = itertools.pairwise(scripts)
    return any(left and right and left != right for left, right in pairs)


def _checks(text: str) -> tuple[str, ...]:
    if "\ufffd" in text:
        return ("caption-replacement-character",)
    if "锟斤拷" in text or _was_utf8(text) or _LOST.search(text):
        return ("caption-mojibake",)
    return ()


def _was_utf8(text: str) -> bool:
    """Tell whether the text turns into plain UTF-8 when the wrong reading of it is undone."""
    if text.isascii():
        return False
    for name in ("cp1252", "latin-1", "cp1251", "gb18030"):
        try:
            undone = text.encode(name).decode("utf-8")
        except UnicodeError:
            continue
        if name != "gb18030" or any(char >= "\u2e80" for char in undone):
            return len(undone) < len(text)
    return False


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line[:_SHOWN_CHARACTERS]}{"…" if len(line) > _SHOWN_CHARACTERS else ""}"'
