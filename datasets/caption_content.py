"""A caption's text -> one clean line, and what in it is probably not what its writer meant."""

import csv
import html
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from latentmill.datasets.generic_captions import is_generic
from latentmill.datasets.mojibake import was_misread

_LINE_ENDS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)
_JOINERS = re.compile("(?<=[\u0600-\u109f\u1f000-\U0001faff\ufe0f])[\u200c\u200d](?=\\S)")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f]")
_HTML = re.compile(
    r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,5});|</?(?:br|p|b|i|a|div|span|img|li|ul|em|strong)\b[^>]*>",
    re.I,
)
_LORA = re.compile(r"<(?:lora|lyco|hypernet|embedding):[^>]*>", re.I)
_WEIGHT = re.compile(r"(?<!\\)[(\[][^()\[\]]*:\s*\d*\.?\d+\s*(?<!\\)[)\]]|(?<!\\)\({2,}|\[{2,}")
_SETTINGS = re.compile(
    r"\bnegative prompt\s*:|\bsteps\s*:\s*\d+\s*,\s*\w[\w ]*:|\bsampler\s*:\s*\w+.*\b(?:cfg|seed)",
    re.I,
)
_UNDERSCORE = re.compile(r"(?<![\w/.])[a-z0-9]+(?:_[a-z0-9()]+)+(?![\w/.])", re.I)
_TABLE = re.compile(r"\A[^,;\t|]+\.(?:png|jpe?g|webp|bmp|gif|tiff?|avif)\s*[,;\t|]", re.I)
_DOCUMENTS = (
    ("version https://git-lfs", "a Git LFS pointer (`git lfs pull` fetches the text)"),
    ("<!doctype html", "a web page"),
    ("<html", "a web page"),
    ("<?xml", "XML"),
    ("<annotation>", "XML"),
    ("<svg", "SVG"),
    ("{\\rtf", "RTF"),
)
_WORD = re.compile(r"\w+")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Doubt:
    """A code, and the part of the caption that shows it."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption as it is trained on: one line, or None when nothing is left.

    `doubts` are what was changed or looks odd, `checks` what a person must settle.
    """

    text: str | None
    doubts: tuple[Doubt, ...] = ()
    checks: tuple[Doubt, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the doubts."""
        return tuple(one.code for one in self.doubts)


def clean_caption(text: str) -> Caption:
    """Make one line of a caption: lines joined by `, `, control and invisible characters gone."""
    lines = [line.strip().strip("\ufeff").strip() for line in _LINE_ENDS.split(text)]
    lines = [line for line in lines if line.strip("\x00")]
    doubts: list[Doubt] = []
    if len(lines) > 1:
        shown = f"{len(lines)} lines, joined with commas: {quoted(lines[0])} and {quoted(lines[1])}"
        doubts.append(Doubt("caption-multiline", shown))
        lines = [*(line.rstrip(", ") for line in lines[:-1]), lines[-1]]
    joined = ", ".join(lines).replace("\t", " ")
    kept = "".join(char for char in joined if unicodedata.category(char) not in ("Cc", "Cs"))
    if kept != joined or "\x00" in text:
        names = _named(char for char in text if unicodedata.category(char) in ("Cc", "Cs"))
        doubts.append(Doubt("caption-control-characters", f"Taken out: {names}"))
    visible = _without_invisible(kept)
    if visible != kept:
        names = _named(char for char in kept if _INVISIBLE.match(char) or _SPACES.match(char))
        doubts.append(Doubt("caption-invisible-characters", f"Taken out or made plain: {names}"))
    visible = visible.strip()
    if not visible:
        return Caption(None, (Doubt("caption-empty"),))
    return Caption(visible, (*doubts, *_oddities(visible)), tuple(_checks(joined)))


def underscored(text: str) -> list[str]:
    """Return the words of a caption that are tags joined by underscores."""
    return _UNDERSCORE.findall(text)


def is_file_name(text: str, name: str) -> bool:
    """Tell whether a caption only repeats the name of its picture, with or without its ending."""
    stem = name.rpartition("/")[2].rpartition(".")[0] or name
    said, own = _letters(text), _letters(stem)
    return bool(own) and said in (own, _letters(name.rpartition("/")[2]))


def quoted(text: str) -> str:
    """Return the beginning of a text in quotes, on one line."""
    line = " ".join(text.split())
    return f'"{line[:_SHOWN]}{"…" if len(line) > _SHOWN else ""}"'


def _letters(text: str) -> str:
    return "".join(_WORD.findall(unicodedata.normalize("NFC", text).casefold())).replace("_", "")


def _without_invisible(text: str) -> str:
    """Take out what has no shape; joiners stay where a script or an emoji needs them."""
    if text.isascii():
        return text
    needed = {match.start() for match in _JOINERS.finditer(text)}
    kept = (c for at, c in enumerate(text) if at in needed or not _INVISIBLE.match(c))
    return _SPACES.sub(" ", "".join(kept))


def _named(chars: Iterator[str]) -> str:
    found = dict.fromkeys(char for char in chars if char not in "\t\n\r\v\f\x1c\x1d\x1e\x85")
    names = [unicodedata.name(char, f"U+{ord(char):04X}").lower() for char in found]
    return ", ".join(name.replace("u+", "U+") for name in names[:4]) or "control characters"


def _checks(text: str) -> Iterator[Doubt]:
    if "\ufffd" in text:
        at = text.index("\ufffd")
        yield Doubt("caption-replacement-character", f"U+FFFD in {quoted(text[max(0, at - 20) :])}")
        return
    found = was_misread(text)
    if found:
        yield Doubt("caption-mojibake", f"{quoted(text)}: {found}")


def _oddities(text: str) -> Iterator[Doubt]:
    """Yield what is taken literally by training, or looks like another kind of text."""
    rules = (
        ("caption-html", _HTML, "reads as {meant}"),
        ("caption-lora-tag", _LORA, "is trained on as words, no LoRA is loaded"),
        ("caption-prompt-weights", _WEIGHT, "is trained on as written, brackets and numbers too"),
        ("caption-web-ui-parameters", _SETTINGS, "is no description of a picture"),
    )
    for code, pattern, what in rules:
        match = pattern.search(text)
        if match is not None:
            meant = quoted(html.unescape(text)) if "{meant}" in what else ""
            yield Doubt(code, f"{quoted(match.group())} {what.format(meant=meant)}")
    if is_generic(text):
        yield Doubt("caption-generic", f"{quoted(text)} fits any picture")
    elif all(unicodedata.category(char)[0] in "PZ" for char in text):
        yield Doubt("caption-generic", f"{quoted(text)} has no word")
    kind = _other_format(text)
    if kind:
        yield Doubt("caption-is-data", f"{kind}: {quoted(text)}")


def _other_format(text: str) -> str:
    """Name the format of a text that is data, not a description; empty for none."""
    start = text[:40].casefold()
    document = next((name for mark, name in _DOCUMENTS if start.startswith(mark)), "")
    if document:
        return document
    if text[0] in "{[" and text[-1] in "}]":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return ""
        return "JSON"
    if _TABLE.match(text):
        cells = len(next(csv.reader([text.replace("\x00", "")]), []))
        return f"a row of a table, {cells} cells"
    if text.count("|") >= 2 and text.startswith("|") and text.endswith("|"):
        return "a row of a table"
    return ""
