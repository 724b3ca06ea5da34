"""Rules that replace words in captions nobody edited."""

import re
from collections.abc import Sequence
from typing import Protocol


class Rule(Protocol):
    """What is replaced by what; `regex`: `find` is a pattern and `by` may name its groups."""

    @property
    def find(self) -> str:
        """Words, matched whole and in any case; or the pattern."""

    @property
    def by(self) -> str:
        """What stands there afterwards."""

    @property
    def regex(self) -> bool:
        """Whether `find` is a regular expression."""


def rewrite(text: str, rules: Sequence[Rule]) -> str:
    """The text after all rules, in their order; blanks and commas left alone are tidied up."""
    changed = text
    for rule in rules:
        changed = _replace(changed, rule)
    if changed == text:
        return text
    changed = re.sub(r"(?:\s*,)+(?=\s*,|\s*$)", "", re.sub(r"[ \t]{2,}", " ", changed))
    return re.sub(r"\s+,", ",", changed).strip(" \t,")


def _replace(text: str, rule: Rule) -> str:
    if rule.regex:
        return re.sub(rule.find, rule.by, text)
    before = r"(?<!\w)" if _is_latin(rule.find[0]) else ""
    after = r"(?!\w)" if _is_latin(rule.find[-1]) else ""
    pattern = f"{before}{re.escape(rule.find)}{after}"
    return re.sub(pattern, lambda _: rule.by, text, flags=re.IGNORECASE)


def _is_latin(letter: str) -> bool:
    return letter.isalnum() and letter < "\u0e00"
