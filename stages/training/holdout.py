"""Chooses the samples that are kept out of training, to measure on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from latentmill.cache.index import CachedSample
from latentmill.datasets.errors import UsageError
from latentmill.datasets.records import Record

NEAR_CODES = frozenset({"duplicate-pixels", "near-duplicate"})
KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Parting:
    """The samples that are trained on, and those that are only measured on."""

    trained: tuple[CachedSample, ...]
    held_out: tuple[CachedSample, ...]


def part_samples(
    samples: Sequence[CachedSample],
    wanted: float | tuple[str, ...],
    unique: frozenset[str],
    seed: int,
) -> Parting:
    """Hold out a share of each bucket (`wanted` below 1), a number, or the ids named.

    Only samples in `unique` are drawn: one with a twin in the training set would measure nothing.
    Samples are ranked by a hash of (seed, id), so that a picture more or less moves few others.
    Raises UsageError for ids that are not there, and when nothing would be left to train on.
    """
    chosen = _named(samples, wanted) if isinstance(wanted, tuple) else None
    if chosen is None:
        assert not isinstance(wanted, tuple)
        chosen = _drawn(samples, wanted, unique, seed)
    if samples and len(chosen) == len(samples):
        raise UsageError(
            "train.holdout leaves no sample to train on",
            where=f"train.holdout = {wanted}",
            expected=f"fewer than {len(samples)}",
        )
    return Parting(
        trained=tuple(sample for sample in samples if sample.id not in chosen),
        held_out=tuple(sample for sample in samples if sample.id in chosen),
    )


def unique_ids(records: Sequence[Record]) -> frozenset[str]:
    """The ids of pictures without a twin: no equal pixels, and not marked as a near-duplicate."""
    counts: dict[str, int] = {}
    for record in records:
        counts[record.pixels] = counts.get(record.pixels, 0) + 1
    return frozenset(
        record.id
        for record in records
        if counts[record.pixels] == 1 and NEAR_CODES.isdisjoint(record.codes)
    )


def _named(samples: Sequence[CachedSample], wanted: tuple[str, ...]) -> frozenset[str]:
    known = {sample.id for sample in samples}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UsageError(
            f"train.holdout names {len(missing)} ids that are not in the cached set",
            where=", ".join(missing[:5]),
            expected="ids of review.csv whose pictures are trained on",
        )
    return frozenset(wanted)


def _drawn(
    samples: Sequence[CachedSample], wanted: float, unique: frozenset[str], seed: int
) -> frozenset[str]:
    buckets: dict[str, list[str]] = {}
    for sample in samples:
        if sample.id in unique and not sample.is_regularisation:
            buckets.setdefault(sample.bucket, []).append(sample.id)
    sizes = {bucket: len(ids) for bucket, ids in buckets.items()}
    count = round(wanted if wanted >= 1 else wanted * len(samples))
    if wanted > 0:
        count = max(1, count)
    quotas = divided(sizes, min(count, sum(sizes.values())))
    ranked = {
        bucket: sorted(ids, key=lambda one: _rank(seed, one)) for bucket, ids in buckets.items()
    }
    return frozenset(name for bucket, ids in ranked.items() for name in ids[: quotas[bucket]])


def divided(sizes: Mapping[KeyT, int], count: int) -> dict[KeyT, int]:
    """Divide `count` in proportion to sizes, by largest remainder; ties go to the first key."""
    total = sum(sizes.values())
    if not total:
        return dict.fromkeys(sizes, 0)
    shares = {key: count * size / total for key, size in sizes.items()}
    quotas = {key: int(share) for key, share in shares.items()}
    left = count - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda key: quotas[key] - shares[key])
    for key in by_remainder[:left]:
        quotas[key] += 1
    return quotas


def _rank(seed: int, name: str) -> str:
    return sha256(f"latentmill holdout/{seed}/{name}".encode()).hexdigest()
