"""Captions -> their number of CLIP tokens, and what a text encoder does not read of long ones."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from latentmill.cache.clip_tokenizer import END, NUM_POSITIONS, START, build_vocabulary, read_merges

LONGEST = NUM_POSITIONS
"""Tokens of a text encoder's input, start and end counted."""

_NUM_READ = LONGEST - 2
_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text, start and end counted, by SD 1.x's and SDXL's vocabulary."""
    counts = {text: len(_tokenizer().encode(text).ids) + 2 for text in dict.fromkeys(texts)}
    return [counts[text] for text in texts]


def may_be_too_long(text: str) -> bool:
    """Tell without a tokenizer whether a text may exceed `LONGEST`: a token has a byte or more."""
    return len(text) > _NUM_READ // 4 and len(text.lower().encode("utf-8", "replace")) > _NUM_READ


def unread_part(text: str) -> str:
    """Return the end of a text that is cut off before the text encoder; empty when none is."""
    offsets = _tokenizer().encode(text).offsets
    return text[offsets[_NUM_READ][0] :] if len(offsets) > _NUM_READ else ""


def rare_words(words: Iterable[str]) -> list[str]:
    """Return those that CLIP's vocabulary has not, or only among its rarest: likely made up."""
    vocabulary = build_vocabulary(read_merges())
    return [word for word in words if not 0 <= vocabulary.get(f"{word}</w>", -1) < 30_000]


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    """Build the tokenizer of `transformers.CLIPTokenizer` without its imports (seconds)."""
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    merges = read_merges()
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    model = BPE(build_vocabulary(merges), pairs, unk_token=END, end_of_word_suffix="</w>")
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([START, END])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    split = pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    return tokenizer
