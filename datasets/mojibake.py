"""Text that was read in a wrong encoding before it was saved -> what it said, or how one sees it.

Each wrong reading is undone: text that becomes UTF-8 again, and shorter, was UTF-8 before.
"""

import codecs
import re

from latentmill.datasets.encodings import is_rare

_LEFT_BEHIND = re.compile("锟斤拷|锟斤|烫烫烫|屯屯屯|ï¿½|Ã¯Â¿Â½")
_LOST = re.compile(r"(?<![A-Za-z?])\?{3,}|(?<![A-Za-z?])\?{2,}[ ,]+\?{2,}")
_QUOTES = re.compile("â€[™œ\u009d“”˜¦]|Ã[\u0080-¿]|Â[\u00a0-¿]")
_KANA = re.compile("[縺繧繝].*[縺繧繝]|[銇銈銉].*[銇銈銉]")  # Of three bytes, the first two.
_WRONG_READINGS = (
    "cp1252",
    "latin-1",
    "cp1251",
    "cp1250",
    "gb18030",
    "cp932",
    "cp949",
    "big5hkscs",
)
_MULTIBYTE = frozenset({"gb18030", "cp932", "cp949", "big5hkscs"})
_BESIDE_LATIN = re.compile("[a-z][\u2e80-\ud7ff]|[\u2e80-\ud7ff][a-z]")
_ACCENT_IN_WORD = re.compile("[a-z][À-ɏ]|[À-ɏ][a-z]")
_SHOWN = 40


def was_misread(text: str) -> str:
    """Say what shows that the text was once read in a wrong encoding; empty when nothing does."""
    left = _LEFT_BEHIND.search(text)
    if left is not None:
        return f"{left.group()} is what a wrong encoding leaves behind"
    if _LOST.search(text):
        return "question marks stand where letters were lost"
    if text.isascii():
        return ""
    for name in _WRONG_READINGS:
        undone = _undone(text, name)
        if undone:
            again = _undone(undone, name) or undone
            return f"was UTF-8, read as {name}: {again[:_SHOWN]}"
    kana = _KANA.search(text) and "was Japanese in UTF-8, read as cp932 or gb18030; parts are lost"
    return kana or (_QUOTES.search(text) and "parts of it were UTF-8, read as cp1252") or ""


def _undone(text: str, name: str) -> str:
    """Return the text with a wrong reading as `name` undone; empty when that gives no text."""
    try:
        data = _sloppily_encoded(text) if name == "cp1252" else text.encode(name)
        undone = codecs.getincrementaldecoder("utf-8")().decode(data)  # The last may be cut.
    except UnicodeError:
        return ""
    if undone.isascii():
        return ""
    if len(undone) < len(text):
        return undone
    accented = name in _MULTIBYTE and _BESIDE_LATIN.search(text) and _ACCENT_IN_WORD.search(undone)
    return undone if accented and is_rare(text) else ""


def _sloppily_encoded(text: str) -> bytes:
    """Encode as cp1252, with the five bytes that it leaves out as themselves."""
    return b"".join(
        bytes([ord(char)]) if 0x80 <= ord(char) < 0xA0 else char.encode("cp1252") for char in text
    )
