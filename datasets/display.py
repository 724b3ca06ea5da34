"""Text from files, names and decoders -> text that cannot disturb what shows it."""

import unicodedata

_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
_HIDDEN = frozenset({"Cc", "Cs", "Cn", "Co", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""Return the text on one line, with what is not to be seen as `\n`, `\x1b`, `\u202e`.

    These are control characters, lone surrogates, unassigned ones, and those that turn the
    direction of what follows.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char in _TURNING or unicodedata.category(char) in _HIDDEN
        else char
        for char in text
    )


def shortened(text: str, length: int) -> str:
    """Return at most `length` characters, the rest as an ellipsis at the end."""
    return text if len(text) <= length else text[: max(0, length - 1)].rstrip() + "…"
