"""The captions of a set to their CLIP tokens, and to flags that concern whoever wrote them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from latentmill.datasets.review_fresh import QUALITY_WORDS, REPEATED, TEXT_FLAGS, TOO_LONG, VAGUE
from latentmill.datasets.review_memory import Memory, Written
from latentmill.datasets.selection import with_trigger

USUAL_QUALITY_WORDS = (
    *("masterpiece", "best quality", "high quality", "amazing quality", "great quality"),
    *("normal quality", "low quality", "worst quality", "bad quality", "highres", "lowres"),
    *("absurdres", "4k", "8k", "uhd", "hdr", "ultra detailed", "highly detailed"),
    *("extremely detailed", "hyperdetailed", "trending on artstation", "award winning"),
    *("bad anatomy", "bad hands", "extra fingers", "missing fingers", "extra limbs", "deformed"),
    *("jpeg artifacts", "score_9", "score_8_up", "score_7_up"),
)
"""What prompts ask for or forbid: in a training caption it binds looks to the wrong words."""

_REPEATED_ROWS = 3
_REPEATED_SHARE = 0.05
_SAYS_NOTHING = frozenset(
    (
        *("a", "an", "the", "this", "that", "these", "those", "there", "here", "some", "one"),
        *("two", "very", "another", "other", "it", "its", "he", "his", "she", "her", "they"),
        *("their", "is", "are", "was", "were", "be", "being", "been", "has", "have", "and", "or"),
        *("of", "in", "on", "at", "to", "by", "for", "from", "with", "as", "photo", "photograph"),
        *("photography", "picture", "image", "pic", "shot", "view", "file"),
    )
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def flag_texts(
    memory: Memory, before: Memory, triggers: Mapping[str, str], negative: str
) -> Memory:
    """The memory with tokens and flags of every caption that has a trigger entry.

    Only texts that are new against `before` are counted. `negative` are the phrases of the
    negative prompt, separated by commas.
    """
    rows = {key: memory.rows[key] for key in triggers if key in memory.rows}
    texts = {key: with_trigger(one.row.caption, triggers[key]) for key, one in rows.items()}
    tokens = _tokens(texts, before)
    used = {
        key: _words(one.row.caption, triggers[key])
        for key, one in rows.items()
        if one.row.status != "skip" and one.row.caption.strip()
    }
    common = _common(list(used.values()))
    quality = _quality_pattern(negative)
    flagged = {}
    for key, written in rows.items():
        flags = _flags(written.row.caption, used.get(key, ()), quality)
        if used.get(key, "") in common:
            flags = (REPEATED, *flags)
        flagged[key] = _with_flags(written, tokens[key], texts[key], flags)
    return replace(memory, rows={**memory.rows, **flagged})


def is_vague(caption: str) -> bool:
    """Whether a caption names no attribute: it has fewer than two words that say something.

    Articles, pronouns, prepositions, forms of `to be` and `to have`, and the words for a picture
    itself say nothing: `a picture of a dog` is vague, `a wet dog`, `a dog in snow` and
    `a dog running` are not. Two Chinese, Japanese or Korean signs count as one word.
    """
    return _num_telling(_words(caption, "")) < 2


def _words(caption: str, trigger: str) -> tuple[str, ...]:
    words = re.findall(r"\w+", caption.casefold())
    first = re.findall(r"\w+", trigger.casefold())
    return tuple(words[len(first) :] if first and words[: len(first)] == first else words)


def _num_telling(words: Sequence[str]) -> int:
    telling = [word for word in words if word not in _SAYS_NOTHING]
    return sum(max(1, len(_CJK.findall(word)) // 2) for word in telling)


def _common(captions: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Captions that stand in at least three rows, and in a twentieth of the set."""
    least = max(_REPEATED_ROWS, _REPEATED_SHARE * len(captions))
    return {words for words, count in Counter(captions).items() if count >= least}


def _quality_pattern(negative: str) -> re.Pattern[str]:
    phrases = {_spaced(phrase) for phrase in (*negative.split(","), *USUAL_QUALITY_WORDS)}
    every = "|".join(map(re.escape, sorted(phrases - {""})))
    return re.compile(rf"(?<!\w)(?:{every})(?!\w)")


def _spaced(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.casefold()).strip()


def _flags(caption: str, words: Sequence[str], quality: re.Pattern[str]) -> tuple[str, ...]:
    flags = []
    if words and _num_telling(words) < 2:
        flags.append(VAGUE)
    if words and quality.search(_spaced(caption)):
        flags.append(QUALITY_WORDS)
    return tuple(flags)


def _tokens(texts: Mapping[str, str], before: Memory) -> dict[str, int]:
    from latentmill.cache.clip_tokens import count_tokens

    known = {
        key: written.row.tokens
        for key, written in before.rows.items()
        if key in texts and written.counted == texts[key] and written.row.tokens is not None
    }
    new = [key for key in texts if key not in known]
    return {**known, **dict(zip(new, count_tokens([texts[key] for key in new]), strict=True))}


def _with_flags(written: Written, tokens: int, text: str, flags: tuple[str, ...]) -> Written:
    from latentmill.cache.clip_tokens import LONGEST

    kept = tuple(flag for flag in written.row.flags if flag not in TEXT_FLAGS)
    long = (TOO_LONG,) if tokens > LONGEST else ()
    row = replace(written.row, tokens=tokens, flags=(*kept, *flags, *long))
    return replace(written, row=row, counted=text)
