"""Numbers with their nouns, as people say them."""

from collections.abc import Mapping
from typing import Final

SINGULARS: Final = {
    "pictures": "picture",
    "captions": "caption",
    "samples": "sample",
    "latents": "latent",
    "texts": "text",
    "shards": "shard",
    "buckets": "bucket",
    "steps": "step",
    "epochs": "epoch",
    "prompts": "prompt",
    "files": "file",
    "layers": "layer",
    "drafts": "draft",
    "rows": "row",
    "works": "work",
}
PHRASES: Final = {
    "rank": "rank {}",
    "optimizer_steps": "{} optimiser steps",
    "samples_seen": "{} samples seen",
    "decoded": "{} decoded now",
    "cropped_much": "{} cropped by much",
}
"""Counts of reports whose key does not say them well."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 picture`, `2 pictures`, `1,234 pictures`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def count_phrases(counts: Mapping[str, int]) -> list[str]:
    """A report's counts as words, those that are zero left out: `1 shard written`, `rank 8`."""
    return [_phrase(name, number) for name, number in counts.items() if number]


def _phrase(name: str, number: int) -> str:
    phrase = PHRASES.get(name, "{} " + name.replace("_", " ")).format(f"{number:,}")
    words = phrase.split(" ")
    return " ".join(SINGULARS.get(word, word) if number == 1 else word for word in words)
