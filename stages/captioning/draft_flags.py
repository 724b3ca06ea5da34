"""A captioner's text to the flags that tell a person where to look first."""

import re

DRAFT_EMPTY = "draft-empty"
PREFIX_ONLY = "prefix-only"
REPETITION = "repetition"
SHORT = "short"

_LONGEST_LOOP_WORDS = 4
_MOSTLY_REPEATED_FROM_WORDS = 10


def draft_flags(text: str, prefix: str, min_words: int) -> tuple[str, ...]:
    """Flags of a draft that begins with `prefix`.

    `draft-empty`: nothing was generated (`prefix-only` where a prefix was asked for); `short`:
    fewer than `min_words` words after the prefix; `repetition`: words in a loop.
    """
    words = _words(text)
    added = words[len(_words(prefix)) :]
    if not added:
        return (DRAFT_EMPTY, PREFIX_ONLY) if prefix.strip() else (DRAFT_EMPTY,)
    flags = []
    if _is_looping(added):
        flags.append(REPETITION)
    if len(added) < min_words:
        flags.append(SHORT)
    return tuple(flags)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _is_looping(words: list[str]) -> bool:
    """One word three times in a row, two to four words twice in a row, or mostly old words."""
    if len(words) >= _MOSTLY_REPEATED_FROM_WORDS and len(set(words)) * 2 < len(words):
        return True
    return any(
        words[start : start + size] * times == words[start : start + size * times]
        for size in range(1, _LONGEST_LOOP_WORDS + 1)
        for times in (3 if size == 1 else 2,)
        for start in range(len(words) - size * times + 1)
    )
