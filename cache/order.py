"""Turns the samples of each bucket into the batches of one epoch."""

import random
from collections.abc import Mapping, Sequence


def epoch_batches(
    buckets: Mapping[str, Sequence[str]], batch_size: int, seed: int, epoch: int
) -> list[tuple[str, ...]]:
    """Return the batches of an epoch as tuples of sample ids, in training order.

    Each batch comes from one bucket and each listed id occurs exactly as often as it is listed
    (once per repeat); short last batches are kept. The result depends on the arguments' values
    alone: not on the order of buckets or ids, the number of workers, or earlier epochs.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    batches: list[tuple[str, ...]] = []
    for bucket in sorted(buckets):
        ids = sorted(buckets[bucket])
        _generator(seed, epoch, bucket).shuffle(ids)
        batches += [tuple(ids[at : at + batch_size]) for at in range(0, len(ids), batch_size)]
    _generator(seed, epoch, "").shuffle(batches)
    return batches


def _generator(seed: int, epoch: int, bucket: str) -> random.Random:
    # A text seed goes through SHA-512: the same on every machine, unlike hash().
    return random.Random(f"latentmill batch order/{seed}/{epoch}/{bucket}")
