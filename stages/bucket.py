"""Validated pictures become a table and a chart: which bucket each goes to, what is cut away."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from latentmill.cache.disk import explained_failures
from latentmill.cache.files import write_text
from latentmill.cache.fingerprints import digest
from latentmill.datasets.buckets import Placement, place
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Problem, Record, Report, count_codes
from latentmill.stages.encoding.bucket_chart import BucketRow, draw_chart
from latentmill.stages.encoding.survey import bucket_rules, read_records
from latentmill.stages.settings import BucketSettings, Source

_MUCH_CROPPED = 0.2
_ENLARGED = {"allowed": 1.25, "never": 1.0}  # More than this is worth a look.


@dataclass(frozen=True, slots=True)
class Placed:
    """A picture and where it goes."""

    record: Record
    placement: Placement


@dataclass(frozen=True, slots=True)
class Bucket:
    """Shows what `cache` will do to the shapes of a set; writes nothing that `cache` needs."""

    layout: Layout
    sources: tuple[Source, ...]
    settings: BucketSettings
    name: ClassVar[str] = "bucket"

    def plan(self) -> Sequence["NoUnit"]:
        """Nothing to spread: the sizes are known, no picture is read."""
        return ()

    def work(self, unit: "NoUnit", tick: Callable[[int], None]) -> None:
        """Do nothing: there is no unit."""

    def finish(self, results: Sequence[None]) -> Report:
        """Write `buckets.jsonl` and `buckets.svg`; report pictures that suffer."""
        del results
        rules = bucket_rules(self.settings)
        records = read_records(self.layout, len(self.sources))
        placed = [Placed(one, place(one.width, one.height, rules)) for one in records]
        rows = bucket_rows(placed)
        lines = [json.dumps(_line(one), sort_keys=True) + "\n" for one in placed]
        folder = self.layout.stage(self.name)
        with explained_failures(folder):
            write_text(self.layout.buckets, "".join(lines))
            write_text(folder / "buckets.svg", draw_chart(rows))
        limit = _ENLARGED[self.settings.upscale]
        problems = tuple(problem for one in placed for problem in _problems(one, limit))
        return Report(
            stage=self.name,
            ok=True,
            counts=_counts(placed, rows, problems),
            problems=problems,
            fingerprint=digest("placements", lines),
            next_steps=(
                step(f"open {folder / 'buckets.svg'}"),
                step("encode pictures and captions", Command("cache")),
            ),
        )


class NoUnit:
    """The unit of a stage that has none."""

    label = ""
    size = 0


def bucket_rows(placed: Sequence[Placed]) -> list[BucketRow]:
    """Count pictures and the mean share cut away per bucket, from upright to wide."""
    groups: dict[str, list[Placement]] = {}
    for one in sorted(placed, key=lambda one: one.placement.bucket):
        groups.setdefault(one.placement.bucket.label, []).append(one.placement)
    return [
        BucketRow(
            width=group[0].bucket.width,
            height=group[0].bucket.height,
            count=len(group),
            cropped=sum(placement.cropped for placement in group) / len(group),
        )
        for group in groups.values()
    ]


def _line(one: Placed) -> dict[str, object]:
    placement = one.placement
    bucket = placement.bucket
    return {
        "id": one.record.id,
        "path": one.record.path,
        "bucket": bucket.label,
        "resized": [placement.resized_width, placement.resized_height],
        "crop": [placement.left, placement.top, bucket.width, bucket.height],
        "cropped": round(placement.cropped, 4),
        "scale": round(placement.scale, 4),
    }


def _problems(one: Placed, enlarged: float) -> Iterator[Problem]:
    record, placement = one.record, one.placement
    label = placement.bucket.label
    if placement.cropped > _MUCH_CROPPED:
        yield Problem(
            id=record.id,
            path=record.path,
            code="cropped-much",
            message=f"{placement.cropped:.0%} of {record.width}x{record.height} is cut away "
            f"to fit {label}",
            fix="crop it by hand to what matters, set it aside, or allow longer buckets "
            "(bucket.max, bucket.min)",
        )
    if placement.scale > enlarged:
        yield Problem(
            id=record.id,
            path=record.path,
            code="upscaled",
            message=f"{record.width}x{record.height} is enlarged {placement.scale:.2f} times "
            f"to fill {label}",
            fix="use a larger original, set it aside, or lower bucket.area",
        )


def _counts(
    placed: Sequence[Placed], rows: Sequence[BucketRow], problems: Sequence[Problem]
) -> dict[str, int]:
    codes = count_codes(problems)
    return {
        "pictures": len(placed),
        "buckets": len(rows),
        "untouched": sum(_is_untouched(one) for one in placed),
        "upscaled": codes.get("upscaled", 0),
        "cropped_much": codes.get("cropped-much", 0),
    }


def _is_untouched(one: Placed) -> bool:
    bucket = one.placement.bucket
    return (one.record.width, one.record.height) == (bucket.width, bucket.height)
