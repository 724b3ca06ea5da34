"""Pictures with their likeness -> groups of copies, in each the better copy first.

Time grows with the number of pictures times the number of groups at some nanoseconds a pair,
memory with the number of pictures.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentmill.datasets.errors import DataError
from latentmill.datasets.likeness import HASH_BITS, colour_grids
from latentmill.datasets.measures import Measures
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record

DUPLICATES = "duplicates.json"
"""Beside the manifest: `groups`, each with `id` and `members`, the best copy first."""

Relation = Literal["best", "same-pixels", "near", "mirrored"]

DUPLICATE_CODES = {
    "same-pixels": "duplicate-pixels",
    "near": "near-duplicate",
    "mirrored": "mirrored-duplicate",
}

_LEAST_CONTRAST = 4.0  # Standard deviation in grey levels: a flat picture's hash is noise.
_LEAST_CORRELATION = 0.85  # Of 8 x 8 mean colours: the same shapes may have other colours.
_LOW_CONTRAST = 12.0  # Such as slides: a layout in common is most of what their hashes hold,
_LOW_CORRELATION = 0.97  # so their colours must agree far better.
_LEAST_CHROMA = 10.0  # Below it a picture is grey, and only brightness is compared.


@dataclass(frozen=True, slots=True)
class Candidate:
    """A usable picture, the path to name it by, and what was measured of it."""

    record: Record
    path: str
    measures: Measures


@dataclass(frozen=True, slots=True)
class Member:
    """A picture of a group. `distance` is in bits of its perceptual hash from the best copy's."""

    id: str
    path: str
    relation: Relation
    distance: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Copies of one picture, the best first; `id` is the best one's."""

    id: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A row that is like the best one's; `distance` in bits."""

    row: int
    distance: int
    mirrored: bool


def find_groups(candidates: Sequence[Candidate], near_distance: int) -> tuple[Group, ...]:
    """Group pictures around the best copy of each, in the order of the candidates' best ones.

    The better copy is the larger, then the less compressed, then the sharper, then the first. Each
    member is like the best one, not only like another member: a chain of small steps, as in a film,
    does not become one group.
    """
    ranked = sorted(candidates, key=_rank)
    same: dict[str, list[Candidate]] = {}
    for one in ranked:
        same.setdefault(one.record.pixels, []).append(one)
    sets = list(same.values())
    groups = [
        Group(best.record.id, tuple(_members(best, copies, sets)))
        for best, copies in _gather(sets, near_distance)
    ]
    places = {one.record.id: place for place, one in enumerate(candidates)}
    return tuple(sorted(groups, key=lambda group: places[group.id]))


def groups_to_json(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the object of `validate/duplicates.json`."""
    return {"groups": [asdict(group) for group in groups]}


def read_groups(path: Path) -> tuple[Group, ...]:
    """The groups that `validate` wrote; none without the file. Raises DataError when damaged."""
    try:
        groups = json.loads(path.read_bytes())["groups"]
        return tuple(
            Group(one["id"], tuple(Member(**member) for member in one["members"])) for one in groups
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "the list of duplicates is damaged",
            where=f"{path}: {error}",
            expected="the JSON that `validate` wrote",
            fix="write it again",
            run=(Command("validate"),),
        ) from error


def _rank(one: Candidate) -> tuple[float, ...]:
    edge = one.measures.edges[-1] or float("inf")
    return (-one.record.width * one.record.height, -_quality(one), edge)


def _quality(one: Candidate) -> int:
    return one.measures.quality or 100


def _gather(
    sets: Sequence[Sequence[Candidate]], near_distance: int
) -> Iterator[tuple[Candidate, list[_Copy]]]:
    """Yield each best picture that has copies, with itself and the rows of `sets` like it."""
    likenesses = [one[0].measures.likeness for one in sets]
    hashes = np.array([int(one.hash, 16) for one in likenesses], dtype=np.uint64)
    mirrored = np.array([int(one.mirrored, 16) for one in likenesses], dtype=np.uint64)
    grids = colour_grids([one.colours for one in likenesses])
    contrasts = np.array([one.contrast for one in likenesses])
    left = np.flatnonzero(contrasts >= _LEAST_CONTRAST)
    alone = set(range(len(sets))) - set(left.tolist())
    while left.size:
        best, left = int(left[0]), left[1:]
        direct = np.bitwise_count(hashes[left] ^ hashes[best])
        turned = np.bitwise_count(hashes[left] ^ mirrored[best])
        near = np.flatnonzero(np.minimum(direct, turned) <= near_distance)
        copies = [_Copy(best, 0, False)]
        if near.size:
            flipped = turned[near] < direct[near]
            is_low = np.minimum(contrasts[left[near]], contrasts[best]) < _LOW_CONTRAST
            least = np.where(is_low, _LOW_CORRELATION, _LEAST_CORRELATION)
            alike = _colour_likeness(grids[best], grids[left[near]], flipped) >= least
            near, flipped = near[alike], flipped[alike]
            distances = np.where(flipped, turned[near], direct[near])
            found = zip(left[near].tolist(), distances.tolist(), flipped.tolist(), strict=True)
            copies += [_Copy(*one) for one in found]
            left = np.delete(left, near)
        if len(copies) > 1 or len(sets[best]) > 1:
            yield sets[best][0], copies
    for row in sorted(alone):
        if len(sets[row]) > 1:
            yield sets[row][0], [_Copy(row, 0, False)]


def _colour_likeness(
    best: NDArray[np.float32], others: NDArray[np.float32], flipped: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return how [n, 8, 8, 3] colours correlate with those of the best picture, -1..1."""
    others = np.where(flipped[:, None, None, None], others[:, :, ::-1], others)
    grey = (np.ptp(others, axis=-1).max(axis=(1, 2)) < _LEAST_CHROMA) | (
        np.ptp(best, axis=-1).max() < _LEAST_CHROMA
    )
    coloured = _correlation(best[None], others)
    brightness = _correlation(best.mean(axis=-1)[None], others.mean(axis=-1))
    return np.where(grey, brightness, coloured)


def _correlation(one: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    first, second = (values.reshape(len(values), -1) for values in (one, others))
    first = first - first.mean(axis=1, keepdims=True)
    second = second - second.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products: NDArray[np.float32] = (first * second).sum(axis=1)
    products /= np.maximum(norms, 1e-6)
    return products


def _members(
    best: Candidate, copies: Sequence[_Copy], sets: Sequence[Sequence[Candidate]]
) -> Iterator[Member]:
    yield Member(best.record.id, best.path, "best", 0)
    for copy in copies:
        for one in sets[copy.row]:
            if one is not best:
                yield _member(best, one, copy)


def _member(best: Candidate, one: Candidate, copy: _Copy) -> Member:
    record, group = one.record, f"group {best.record.id}"
    if record.pixels == best.record.pixels:
        message = f"The same pixels as {best.path} ({group})"
        return Member(record.id, one.path, "same-pixels", 0, message)
    like = "Mirrored, nearly" if copy.mirrored else "Nearly"
    distance = f"distance {copy.distance} of {HASH_BITS}"
    message = f"{like} the same as {best.path} ({distance}, {group}), which {_reason(best, one)}"
    relation: Relation = "mirrored" if copy.mirrored else "near"
    return Member(record.id, one.path, relation, copy.distance, message)


def _reason(best: Candidate, one: Candidate) -> str:
    """Say why one copy is the better."""
    sizes = [f"{each.record.width} x {each.record.height} px" for each in (best, one)]
    if sizes[0] != sizes[1]:
        return f"is larger: {sizes[0]}, not {sizes[1]}"
    if _quality(best) != _quality(one):
        return f"is less compressed: quality {_quality(best)}, not {_quality(one)}"
    if best.measures.edges[-1] != one.measures.edges[-1]:
        return "is sharper"
    return "comes first"
