"""Pictures that are alike -> groups, each with the copy to keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentmill.datasets.records import Record
from latentmill.stages.checking.duplicates import Group as Duplicates


@dataclass(frozen=True, slots=True)
class Group:
    """Ids of pictures that are alike, in the order of the manifest; `best` is the one to keep.

    `kind` says how alike: `the same pixels`, `nearly the same`, `mirrored`, or several of these.
    """

    kind: str
    ids: tuple[str, ...]
    best: str


_KINDS = {"same-pixels": "the same pixels", "near": "nearly the same", "mirrored": "mirrored"}


def shown_groups(found: Sequence[Duplicates], records: Sequence[Record]) -> list[Group]:
    """Return groups of copies as the report shows them, named by what makes them alike."""
    order = {record.id: place for place, record in enumerate(records)}
    return [_shown(group, order) for group in found]


def _shown(group: Duplicates, order: Mapping[str, int]) -> Group:
    relations = {one.relation for one in group.members}
    kind = ", ".join(words for relation, words in _KINDS.items() if relation in relations)
    ids = sorted((one.id for one in group.members), key=lambda name: order[name])
    return Group(kind, tuple(ids), group.id)
