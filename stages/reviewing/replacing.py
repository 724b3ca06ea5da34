"""Words to find in the captions, to what each caption would become: nothing is changed yet."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_rules import Rule, rewrite


@dataclass(frozen=True, slots=True)
class Replacement:
    """A row and its caption as it would be."""

    row: ReviewRow
    after: str


def find_replacements(
    rows: Sequence[ReviewRow], rule: Rule, ids: Collection[str]
) -> list[Replacement]:
    """The rows among `ids` whose caption the rule changes; captions left empty stay as they are."""
    found = [Replacement(row, rewrite(row.caption, [rule])) for row in rows if row.id in ids]
    return [one for one in found if one.after.strip() and one.after != one.row.caption]
