"""What a run of the cache stage says at its end: what was encoded, found, cut off or is missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from latentmill.cache.index import SetIndex
from latentmill.cache.library import Library
from latentmill.cache.part import Part
from latentmill.datasets.caption_variants import prompt_weights
from latentmill.datasets.errors import LatentmillError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Problem, Report
from latentmill.datasets.words import counted
from latentmill.stages.encoding.extras import ExtrasPlan
from latentmill.stages.encoding.survey import Recipe, ShardUnit, Wanted
from latentmill.stages.training.run_folder import latest_run_of

_WHOLE: Final = Command("cache")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a work needs, what of it is there, and the extras that belong to it."""

    wanted: tuple[Wanted, ...]
    recipe: Recipe
    library: Library
    extras: ExtrasPlan

    @property
    def missing(self) -> list[Wanted]:
        """The samples that no shard holds."""
        return [one for one in self.wanted if one.keys not in self.library.samples]


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that was written, and what of it was encoded rather than copied."""

    shard: str
    encoded_latents: int
    encoded_texts: tuple[str, ...]


def shard_result(unit: ShardUnit) -> ShardResult:
    """The result of a unit that was written."""
    encoded = [task for task in unit.tasks if task.wanted.imported is None]
    texts = {
        key
        for task in unit.tasks
        for key, origin in zip(task.wanted.text_keys, task.texts_from, strict=True)
        if origin is None
    }
    latents = sum(task.latents_from.count(None) for task in encoded)
    return ShardResult(unit.name, latents, tuple(sorted(texts)))


def require_complete(survey: Survey) -> None:
    """Raise LatentmillError naming samples that are not encoded."""
    missing = survey.missing
    if missing:
        raise LatentmillError(
            f"{len(missing)} of {counted(len(survey.wanted), 'sample')} not encoded yet",
            where=", ".join(one.sample.record.path for one in missing[:3]),
            fix="encode the rest",
            run=(Command("cache"),),
        )


def part_report(part: Part, survey: Survey, results: Sequence[ShardResult]) -> Report:
    """Report a part that ends before the others; its file is not that of the whole stage."""
    num_missing = len(survey.missing)
    return Report(
        stage=f"cache/{part.label}",
        ok=True,
        counts={
            "samples": len(survey.wanted) - num_missing,
            "waiting_for_other_parts": num_missing,
            **_encoded(results),
            "shards_written": len(results),
        },
        next_steps=(
            step("the part that ends last writes the index; if none did, run once", _WHOLE),
        ),
    )


def counts(index: SetIndex, survey: Survey, results: Sequence[ShardResult]) -> dict[str, int]:
    """Encoded and reused add up to the latents and texts of the samples.

    Equal texts are encoded once; a sample has two latents with its mirror image.
    """
    encoded = _encoded(results)
    written = {result.shard for result in results}
    num_latents = sum(len(one.keys.latent_keys) for one in survey.wanted)
    num_texts = sum(len(one.text_keys) for one in survey.wanted)
    return {
        "samples": len(index.samples),
        **encoded,
        "reused_latents": num_latents - encoded["encoded_latents"],
        "reused_texts": num_texts - encoded["encoded_texts"],
        "shards_written": len(written),
        "shards_kept": len({stamp.name for stamp in index.shards} - written),
    }


def next_steps(layout: Layout, index: SetIndex) -> tuple[NextStep, ...]:
    """Train, or what is left to do with the last run that was trained on just this set."""
    run = latest_run_of(layout, index)
    if run is None:
        return (step("train the LoRA", Command("train")),)
    if not run.finished:
        go_on = Command("train", ("--resume", "--run", run.folder.name))
        return (step(f"go on with {run.folder.name}, which stopped on the way", go_on),)
    sample = Command("sample", ("--run", run.folder.name))
    return (
        step(f"{run.folder.name} was trained on just this set; see what it does", sample),
        step("or train anew, with other settings", Command("train")),
    )


def caption_problems(survey: Survey) -> Iterator[Problem]:
    """Yield the captions whose end is cut off, and weights that are taken literally."""
    for one in survey.wanted:
        cut = survey.library.samples[one.keys].cut
        if cut:
            yield Problem(
                id=one.keys.id,
                path=one.sample.record.path,
                code="caption-too-long",
                message=f"the text encoder has no room for the end of the caption: {cut!r}",
                fix="shorten the caption in review.csv, put what matters first, or make room "
                "with cache.text_chunks",
            )
        weights = prompt_weights(one.sample.caption)
        if weights:
            yield Problem(
                id=one.keys.id,
                path=one.sample.record.path,
                code="prompt-weight",
                message=f"{', '.join(weights[:3])}: the brackets and the number are trained as "
                "words, they are no weight here",
                fix="take them out of the caption in review.csv, unless they are meant as text",
            )


def _encoded(results: Sequence[ShardResult]) -> dict[str, int]:
    return {
        "encoded_latents": sum(result.encoded_latents for result in results),
        "encoded_texts": len({key for result in results for key in result.encoded_texts}),
    }
