"""The stages in order, each made from the configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmill.cache.part import Part
from latentmill.pipeline.config import Config
from latentmill.pipeline.config_text import config_text
from latentmill.pipeline.stage import Stage

ORDER = {
    "validate": "Decode every picture and caption; list every fault with its remedy.",
    "caption": "Draft captions with BLIP for pictures that have none; write or merge review.csv.",
    "bucket": "Show which picture goes to which bucket and what is cropped away.",
    "cache": "Encode pictures and captions to shards; only what is new or changed.",
    "train": "Train a LoRA from the shards; neither VAE nor text encoder is loaded.",
    "sample": "Make the same pictures with and without the LoRA, side by side.",
    "export": "Write the LoRA in the kohya, diffusers or PEFT layout.",
}
"""Stages and what they do, in the order of the pipeline."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration, and what a command says beside it.

    `run` is the run folder or LoRA file that the last three stages concern, `redo` the rows that
    `caption` drafts again.
    """

    config: Config
    run: Path | None = None
    resume: bool = False
    redo: tuple[str, ...] = ()
    part: Part | None = None


def make_stage(name: str, choice: Choice) -> Stage[Any, Any]:
    """The stage called `name`; its module is imported here, so `--help` waits for none."""
    return _MAKERS[name](choice.config, choice)


def _validate(config: Config, _: Choice) -> Stage[Any, Any]:
    from latentmill.stages.checking.set_advice import Plan
    from latentmill.stages.validate import Validate

    target = config.validation.target_side or config.bucket.area
    settings = config.validation.model_copy(update={"target_side": target})
    encoding, train = config.caption.review_encoding, config.train
    plan = Plan(target, train.batch_size * train.gradient_accumulation)
    return Validate(config.layout(), config.sources(), settings, encoding, plan)


def _caption(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.caption import Caption

    return Caption(
        config.layout(),
        config.sources(),
        config.caption,
        config.validation,
        config.sample.negative,
        choice.redo,
    )


def _bucket(config: Config, _: Choice) -> Stage[Any, Any]:
    from latentmill.stages.bucket import Bucket

    return Bucket(config.layout(), config.sources(), config.bucket, config.train.batch_size)


def _cache(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.cache import Cache

    return Cache(
        config.layout(),
        config.sources(),
        config.cache,
        config.bucket,
        config.validation,
        config.caption,
        config.model,
        config.sample,
        choice.part,
    )


def _train(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.encoding.survey import recipe_settings
    from latentmill.stages.train import Train

    return Train(
        config.layout(),
        config.sources(),
        config.train,
        config.model,
        choice.resume,
        choice.run,
        config_text(config),
        config.caption.review_encoding,
        recipe_settings(config.bucket, config.cache),
        config.sample,
    )


def _sample(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.sample import Sample

    return Sample(
        config.layout(),
        config.data,
        config.sample,
        config.model,
        choice.run,
        config.caption.review_encoding,
    )


def _export(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.export import Export

    return Export(config.export, config.layout(), choice.run, config.model)


def _previews(config: Config, choice: Choice) -> Stage[Any, Any]:
    from latentmill.stages.sampling.previews import DecodePreviews

    return DecodePreviews(config.layout(), config.sample, config.model, choice.run)


_MAKERS = {
    "validate": _validate,
    "caption": _caption,
    "bucket": _bucket,
    "cache": _cache,
    "train": _train,
    "sample": _sample,
    "previews": _previews,
    "export": _export,
}
