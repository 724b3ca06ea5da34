"""Pictures that are alike -> groups, each with the copy to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from latentmill.datasets.records import Record


@dataclass(frozen=True, slots=True)
class Group:
    """Ids of pictures that are alike, in the order of the manifest; `best` is the one to keep.

    `kind` says how alike: `the same pixels`, or in other words.
    """

    kind: str
    ids: tuple[str, ...]
    best: str


def same_pixels(records: Sequence[Record]) -> list[Group]:
    """Group records with the same decoded pixels; the file with most bytes is the one to keep."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.pixels, []).append(record)
    return [
        Group(
            "the same pixels",
            tuple(record.id for record in group),
            max(group, key=lambda record: (record.caption is not None, record.bytes)).id,
        )
        for group in groups.values()
        if len(group) > 1
    ]
