"""Captions to their number of CLIP tokens, start and end counted: a text encoder reads 77."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from latentmill.cache.clip_tokenizer import END, NUM_POSITIONS, START, build_vocabulary, read_merges

LONGEST = NUM_POSITIONS


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Number of tokens of each text, by the vocabulary that all of SD 1.x and SDXL share."""
    if not texts:
        return []
    ids: list[list[int]] = _tokenizer()(list(texts), truncation=False, verbose=False)["input_ids"]
    return [len(one) for one in ids]


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    from transformers import CLIPTokenizer

    merges = read_merges()
    return CLIPTokenizer(
        vocab=build_vocabulary(merges),
        merges=[tuple(merge.split(" ")) for merge in merges],
        bos_token=START,
        eos_token=END,
        unk_token=END,
        pad_token=END,
    )
