"""Captions of a set to the few that pictures are made of."""

from collections.abc import Iterable


def spread(captions: Iterable[str], count: int) -> tuple[str, ...]:
    """Take up to `count` different captions, evenly spread over their order; empty ones aside."""
    distinct = list(dict.fromkeys(caption for caption in captions if caption.strip()))
    if len(distinct) <= count:
        return tuple(distinct)
    return tuple(distinct[number * len(distinct) // count] for number in range(count))
