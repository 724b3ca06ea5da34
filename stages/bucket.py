"""Validated pictures become a table and a chart: which bucket each goes to, what is cut away."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from latentmill.cache.disk import explained_failures
from latentmill.cache.files import write_text
from latentmill.cache.fingerprints import digest
from latentmill.datasets.buckets import BucketRules, Placement, place
from latentmill.datasets.errors import UsageError
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
    """A picture, where it goes, and how often it is seen in an epoch."""

    record: Record
    placement: Placement
    repeats: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Shows what `cache` will do to the shapes of a set; writes nothing that `cache` needs.

    `batch_size` is the trainer's: buckets with fewer sights in an epoch are small.
    """

    layout: Layout
    sources: tuple[Source, ...]
    settings: BucketSettings
    batch_size: int = 1
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
        placed = [
            self._placed(record, rules) for record in read_records(self.layout, len(self.sources))
        ]
        rows = bucket_rows(placed, self.batch_size)
        lines = [json.dumps(_line(one), sort_keys=True) + "\n" for one in placed]
        folder = self.layout.stage(self.name)
        with explained_failures(folder):
            write_text(self.layout.buckets, "".join(lines))
            write_text(folder / "buckets.svg", draw_chart(rows))
        limit = _ENLARGED[self.settings.upscale]
        worst_first = sorted(placed, key=lambda one: -one.placement.cropped)
        problems = (
            *(problem for one in worst_first for problem in _problems(one, limit)),
            *small_buckets(placed, rows, rules, self.batch_size),
        )
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

    def _placed(self, record: Record, rules: BucketRules) -> Placed:
        source = self.sources[record.source]
        placement = place(record.width, record.height, rules, source.crop_anchor)
        return Placed(record, placement, source.repeats)


class NoUnit:
    """The unit of a stage that has none."""

    label = ""
    size = 0


def bucket_rows(placed: Sequence[Placed], batch_size: int) -> list[BucketRow]:
    """Count pictures, batches and the mean share cut away per bucket, from upright to wide."""
    groups: dict[str, list[Placed]] = {}
    for one in sorted(placed, key=lambda one: one.placement.bucket):
        groups.setdefault(one.placement.bucket.label, []).append(one)
    return [
        BucketRow(
            width=group[0].placement.bucket.width,
            height=group[0].placement.bucket.height,
            count=len(group),
            batches=-(-sum(one.repeats for one in group) // batch_size),
            cropped=sum(one.placement.cropped for one in group) / len(group),
            padded=sum(one.placement.padded for one in group) / len(group),
        )
        for group in groups.values()
    ]


def small_buckets(
    placed: Sequence[Placed], rows: Sequence[BucketRow], rules: BucketRules, batch_size: int
) -> Iterator[Problem]:
    """Yield the buckets that fill no batch, and where their pictures would go without them."""
    for row in rows:
        own = [one for one in placed if one.placement.bucket.label == row.label]
        num_sights = sum(one.repeats for one in own)
        if num_sights < batch_size and len(rows) > 1:
            yield Problem(
                id="",
                path="",
                code="bucket-small",
                message=f"{row.label} has {num_sights} of the {batch_size} samples of a batch in "
                "an epoch; they are trained on all the same, in a smaller one",
                fix=_merge(own, row.label, rules),
                level="advice",
            )


def _merge(own: Sequence[Placed], label: str, rules: BucketRules) -> str:
    """Say into which bucket the pictures would go, and what that would cut away."""
    try:
        others = replace(rules, without=(*rules.without, label))
        moved = [place(one.record.width, one.record.height, others) for one in own]
    except UsageError:
        return "nothing: it is the only bucket of these settings"
    (target, _), *_ = Counter(one.bucket.label for one in moved).most_common(1)
    more = sum(one.cropped for one in moved) - sum(one.placement.cropped for one in own)
    names = ", ".join(f'"{name}"' for name in others.without)
    return (
        f"leave it, or merge it into {target}, which cuts away {max(more / len(own), 0):.0%} more: "
        f"--set 'bucket.without=[{names}]'"
    )


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
        **({"padded": round(placement.padded, 4)} if placement.is_padded else {}),
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
        "small_buckets": codes.get("bucket-small", 0),
    }


def _is_untouched(one: Placed) -> bool:
    bucket = one.placement.bucket
    return (one.record.width, one.record.height) == (bucket.width, bucket.height)
