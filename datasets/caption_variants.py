"""One caption becomes the texts that are trained in turn: alternatives, tags in other orders."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from latentmill.datasets.selection import with_trigger

_WEIGHT: Final = re.compile(r"\((?:[^()\\]|\\.)*:\s*[-+]?[0-9]*\.?[0-9]+\s*\)")


@dataclass(frozen=True, slots=True)
class VariantRules:
    """`count` texts of each alternative: itself, then shuffles of its tags.

    The trigger and the first `keep` tags stay in their places; each other one is left out with
    `dropout`.
    Alternatives are divided by `separator`; empty is none.
    """

    count: int = 1
    keep: int = 1
    dropout: float = 0.0
    separator: str = ""


def caption_variants(caption: str, trigger: str, rules: VariantRules) -> tuple[str, ...]:
    """List the texts of a caption, each once, the caption (or first alternative) first.

    They depend on the caption and the rules alone, and a higher count only adds to the end of
    each alternative's. `caption` has the trigger in front; every alternative gets it.
    """
    alternatives = _alternatives(caption, rules.separator)
    bases = [alternatives[0], *(with_trigger(text, trigger) for text in alternatives[1:])]
    keep = max(rules.keep, len(_tags(trigger)))
    texts = (text for base in bases for text in _orders(base, keep, rules))
    return tuple(dict.fromkeys(texts))


def prompt_weights(caption: str) -> list[str]:
    """Find weights such as `(red:1.3)`: user interfaces read them, a text encoder does not."""
    return _WEIGHT.findall(caption)


def _alternatives(caption: str, separator: str) -> list[str]:
    parts = caption.split(separator) if separator else [caption]
    return [part.strip() for part in parts if part.strip()] or [caption]


def _tags(text: str) -> list[str]:
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def _orders(base: str, keep: int, rules: VariantRules) -> Iterator[str]:
    yield base
    tags = _tags(base)
    kept, others = tags[:keep], tags[keep:]
    for number in range(1, rules.count):
        # A text seed goes through SHA-512: the same on every machine, unlike hash().
        generator = random.Random(f"latentmill caption variant/{number}/{base}")
        shuffled = generator.sample(others, len(others))
        chosen = [tag for tag in shuffled if generator.random() >= rules.dropout]
        if kept or chosen:
            yield ", ".join([*kept, *chosen])
