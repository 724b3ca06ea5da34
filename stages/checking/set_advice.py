"""Usable pictures and their sources -> advice about the set as a whole, each with its number."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from latentmill.cache.clip_tokens import count_tokens, rare_words
from latentmill.datasets.caption_content import quoted, underscored
from latentmill.datasets.records import Problem, Record
from latentmill.stages.checking.findings import Subject, problem
from latentmill.stages.settings import Source

FEW, SOME, MANY = 30, 80, 100
"""Below the first a set is small, up to the second usual for one subject, above the third large."""

_DUPLICATES = frozenset({"duplicate-pixels", "near-duplicate", "mirrored-duplicate"})
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_OTHER_SCRIPT = re.compile("[\u0370-\u1fff]")
_WORD = re.compile(r"[^\W\d_][\w-]+")
_NEARLY_ALL = 0.8
_ENOUGH = 10  # Fewer captions or pictures show no habit.
_MOST_COUNTED = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """What a set is trained with: side of the square of a bucket's area in px, samples a step."""

    area_px: int = 512
    samples_per_step: int = 4


DEFAULT_PLAN = Plan()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A start for training one person or style; `steps` are optimiser steps of all `epochs`."""

    epochs: int
    steps: int
    rank: int


def suggest(num_pictures: int, samples_per_epoch: int, samples_per_step: int) -> Suggestion:
    """Choose epochs so that the optimiser steps come to about 800 to 2,000, and a rank.

    A person or a style is usually learned in that many steps at a rate of 1e-4; fewer pictures
    are memorised sooner, so they get the fewer steps and the lower rank. One epoch is the least.
    """
    few, some = num_pictures < FEW, num_pictures <= SOME
    wanted, rank = (800, 8) if few else (1200, 16) if some else (2000, 32)
    steps_per_epoch = math.ceil(samples_per_epoch / samples_per_step)
    epochs = max(1, round(wanted / steps_per_epoch))
    return Suggestion(epochs, epochs * steps_per_epoch, rank)


def set_advice(records: Sequence[Record], sources: Sequence[Source], plan: Plan) -> list[Problem]:
    """Return what holds for the set; regularisation pictures are no part of the subject's."""
    subject = [one for one in records if not sources[one.source].is_regularisation]
    found = [
        *_size(subject, sources, plan),
        *_captions(subject),
        *_trigger(subject, sources),
        *_pictures(subject, plan),
        *_balance(records, sources),
        *_regularisation(records, sources),
    ]
    return [replace(problem(code, Subject("", "")), message=said) for code, said in found]


def _size(
    records: Sequence[Record], sources: Sequence[Source], plan: Plan
) -> Iterator[tuple[str, str]]:
    count = len(records)
    if not count or SOME < count <= MANY:
        return
    samples = sum(sources[one.source].repeats for one in records)
    chosen = suggest(count, samples, plan.samples_per_step)
    code = "few-pictures" if count < FEW else "some-pictures" if count <= SOME else "many-pictures"
    yield (
        code,
        f"{count} pictures, {samples} samples an epoch, {plan.samples_per_step} a step: "
        f"`--set train.epochs={chosen.epochs} --set train.rank={chosen.rank}` comes to "
        f"{chosen.steps:,} optimiser steps",
    )


def _captions(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    texts = [one.caption for one in records if one.caption is not None]
    if len(texts) < _ENOUGH:
        return
    counts = Counter(texts)
    ((text, times),) = counts.most_common(1)
    if len(counts) <= len(texts) / 2 or times >= max(5, len(texts) / 10):
        said = f"{len(counts)} different captions for {len(texts)} pictures"
        yield "few-distinct-captions", f"{said}; {times} times {quoted(text)}"
    joined = [words for text in texts if (words := underscored(text))]
    if len(joined) >= len(texts) / 10:
        said = f"{len(joined)} of {len(texts)} captions, such as {joined[0][0]}"
        yield "captions-with-underscores", said
    yield from _languages(texts)


def _languages(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """SD 1.5's text encoder learned English: other scripts become tokens of single bytes."""
    east = [text for text in texts if _EAST_ASIAN.search(text)]
    other = [text for text in texts if _OTHER_SCRIPT.search(text) and text not in east]
    foreign = [*east, *other]
    if not foreign:
        return
    shown = foreign[:: -(-len(foreign) // _MOST_COUNTED)]
    tokens = sum(count_tokens(shown)) / len(shown)
    yield (
        "captions-not-english",
        f"{len(foreign)} of {len(texts)} captions ({len(foreign) / len(texts):.0%}) are in other "
        f"scripts, {len(east)} of them East Asian; such a caption takes {tokens:.0f} of 77 tokens",
    )
    if 0.1 * len(texts) <= len(foreign) <= 0.9 * len(texts):
        yield "captions-in-several-languages", f"{len(foreign)} of {len(texts)} in other scripts"


def _trigger(records: Sequence[Record], sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    for position, source in enumerate(sources):
        own = [one.caption for one in records if one.source == position and one.caption]
        if source.is_regularisation or len(own) < _ENOUGH:
            continue
        if source.trigger.strip():
            yield from _known_trigger(own, source.trigger.strip())
        else:
            yield from _unknown_trigger(own)


def _known_trigger(texts: Sequence[str], trigger: str) -> Iterator[tuple[str, str]]:
    """Tell of the trigger inside captions: there it stands twice once it is put in front."""
    word = re.compile(rf"(?<!\w){re.escape(trigger)}(?!\w)", re.IGNORECASE)
    inside = sum(bool(word.search(text)) and not word.match(text) for text in texts)
    without = sum(not word.search(text) for text in texts)
    if inside:
        said = f'{inside} of {len(texts)} captions hold "{trigger}" further on'
        yield "trigger-twice", f"{said}; with the one put in front it stands there twice"
    if 0 < without < len(texts):
        said = f'{without} of {len(texts)} captions lack "{trigger}"'
        yield "trigger-added", f"{said}; it is put in front of each, once"


def _unknown_trigger(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name a rare word that nearly all captions hold: it is meant as a trigger."""
    counts = Counter(word for text in texts for word in set(_WORD.findall(text.casefold())))
    ascii_words = ((word, count) for word, count in counts.most_common() if word.isascii())
    frequent = {word: n for word, n in ascii_words if n >= _NEARLY_ALL * len(texts)}
    for word in rare_words(frequent) if frequent else ():
        missing = len(texts) - frequent[word]
        said = f'"{word}" stands in {frequent[word]} of {len(texts)} captions'
        yield "trigger-unset", f"{said}, {missing} lack it" if missing else said
        return


def _pictures(records: Sequence[Record], plan: Plan) -> Iterator[tuple[str, str]]:
    if not records:
        return
    target = plan.area_px**2
    small = [one for one in records if one.width * one.height < target / 2]
    if len(small) >= max(2, len(records) / 5):
        least = min(small, key=lambda one: one.width * one.height)
        factor = math.sqrt(target / (least.width * least.height))
        said = f"{len(small)} of {len(records)} pictures have less than half the pixels of "
        said += (
            f"{plan.area_px} x {plan.area_px}; the smallest, {least.width} x {least.height} px, "
        )
        yield "small-pictures", f"{said}is enlarged {factor:.1f} times"
    shapes = Counter(round(math.log2(one.width / one.height) * 4) for one in records)
    ((shape, most),) = shapes.most_common(1)
    if len(records) >= _ENOUGH and most >= 0.95 * len(records):
        said = f"{most} of {len(records)} pictures are about {2 ** (shape / 4):.2f} wide to high"
        yield "one-aspect-ratio", said
    alike = sum(not _DUPLICATES.isdisjoint(one.codes) for one in records)
    if alike >= max(2, len(records) / 10):
        yield "many-duplicates", f"{alike} of {len(records)} pictures are (nearly) like another one"


def _balance(records: Sequence[Record], sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Compare what the subject's sources bring to an epoch."""
    samples = Counter(one.source for one in records)
    seen = {
        position: samples[position] * source.repeats
        for position, source in enumerate(sources)
        if samples[position] and not source.is_regularisation
    }
    if len(seen) < 2 or max(seen.values()) < 4 * min(seen.values()):
        return
    least, most = min(seen, key=lambda one: seen[one]), max(seen, key=lambda one: seen[one])
    repeats = round(sources[least].repeats * seen[most] / seen[least])
    yield (
        "sources-unbalanced",
        f"{sources[most].path} brings {seen[most]} samples an epoch, {sources[least].path} "
        f"{seen[least]}; repeats = {repeats} for the latter would bring as many",
    )


def _regularisation(
    records: Sequence[Record], sources: Sequence[Source]
) -> Iterator[tuple[str, str]]:
    """Pictures of the class share a word that names it; without one they hold nothing fast."""
    for position, source in enumerate(sources):
        own = [one for one in records if one.source == position]
        if not source.is_regularisation or not own:
            continue
        words = Counter(
            word for one in own for word in set(_WORD.findall((one.caption or "").casefold()))
        )
        shared = [word for word, count in words.items() if count >= _NEARLY_ALL * len(own)]
        if not any(len(word) > 2 for word in shared) and not source.trigger:
            most = max(words.values(), default=0)
            said = f"{source.path}: no word stands in more than {most} of {len(own)} captions"
            yield "regularisation-without-class", said
