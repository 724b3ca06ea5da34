"""Says what a cache holds, who uses it, and what the last run encoded or found."""

import json
from collections.abc import Iterator, Mapping

from latentmill.cache.fingerprints import digest
from latentmill.cache.statistics import ShardSums, Statistics, read_statistics
from latentmill.cache.works import users_of
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Report


def cache_statistics(layout: Layout) -> Report:
    """Add up the cache folder of a work; nothing is hashed and nothing is written."""
    found = read_statistics(layout.shards, users_of(layout).works, layout.work.absolute())
    counts = {**_sizes(found), **_last_run(layout)}
    return Report(
        stage="cache stats",
        ok=True,
        counts=counts,
        fingerprint=digest("statistics", counts),
        next_steps=tuple(_advice(found)),
    )


def statistics_lines(counts: Mapping[str, int]) -> list[str]:
    """The counts as a person reads them."""
    kinds = ", ".join(f"{_size(counts[f'{kind}_bytes'])} {kind}s" for kind in ("latent", "text"))
    return [
        f"this work:   {_group_line('used', counts)}; {counts['samples_in_use']:,} in use",
        f"other works: {_group_line('others', counts)}",
        f"nobody:      {_group_line('unused', counts)}",
        f"kinds:       {kinds}, {_size(counts['other_bytes'])} details and padding",
        f"superseded:  {counts['superseded']:,} replaced or removed samples in shards in use",
        *(
            f"{kind}s:{' ' * (11 - len(kind))}{counts[f'{kind}_hits']:,} found and "
            f"{counts[f'{kind}_misses']:,} encoded by the last run"
            for kind in ("latent", "text")
        ),
    ]


def _group_line(name: str, counts: Mapping[str, int]) -> str:
    shards, samples = counts[f"{name}_shards"], counts[f"{name}_samples"]
    return f"{shards:,} shards, {samples:,} samples, {_size(counts[f'{name}_bytes'])}"


def _sizes(found: Statistics) -> dict[str, int]:
    groups = {"used": found.used, "others": found.others, "unused": found.unused}
    sums = list(groups.values())
    counts: dict[str, int] = {}
    for name, group in groups.items():
        counts |= _group(name, group)
    return counts | {
        "latent_bytes": sum(one.latent_bytes for one in sums),
        "text_bytes": sum(one.text_bytes for one in sums),
        "other_bytes": sum(one.other_bytes for one in sums),
        "samples_in_use": found.samples_used,
        "superseded": found.superseded,
        "works": len(found.works),
        "works_unreachable": len(found.unreachable),
    }


def _group(name: str, sums: ShardSums) -> dict[str, int]:
    return {
        f"{name}_shards": sums.shards,
        f"{name}_samples": sums.samples,
        f"{name}_bytes": sums.bytes,
    }


def _last_run(layout: Layout) -> dict[str, int]:
    """Hits and misses of this work's last `cache`; zeros when there was none."""
    try:
        counts = json.loads(layout.report("cache").read_bytes())["counts"]
    except (OSError, ValueError, KeyError, TypeError):
        counts = {}
    names = {
        "latent_hits": "reused_latents",
        "latent_misses": "encoded_latents",
        "text_hits": "reused_texts",
        "text_misses": "encoded_texts",
    }
    return {name: int(counts.get(source, 0)) for name, source in names.items()}


def _advice(found: Statistics) -> Iterator[NextStep]:
    for work in found.unreachable:
        yield step(f"nothing: {work} cannot be read, it counts by its record")
    if found.unused.shards:
        yield step("list what nobody uses", Command("cache", ("gc",)))


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
