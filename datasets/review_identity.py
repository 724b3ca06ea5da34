"""Rows whose id a spreadsheet changed -> the rows that they are."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_reading import SavedReview


def with_known_ids(saved: SavedReview, present: Mapping[str, ReviewRow]) -> SavedReview:
    """Give each row the id that was written: what differs in case only, else by its picture.

    A picture names its row when no other row has it, and the row with that picture is missing.
    What stays unknown is left as it is.
    """
    missing = {key: row for key, row in present.items() if key not in _ids(saved)}
    if not missing:
        return saved
    strange = [row for row in saved.rows if row.id not in present]
    by_case = {key.casefold(): key for key in missing}
    renamed = {
        row.id: by_case[row.id.casefold()] for row in strange if row.id.casefold() in by_case
    }
    by_picture = _singles({key: row for key, row in missing.items() if key not in renamed.values()})
    rest = _singles({row.id: row for row in strange if row.id not in renamed})
    renamed |= {rest[image]: by_picture[image] for image in rest.keys() & by_picture.keys()}
    rows = tuple(replace(row, id=renamed.get(row.id, row.id)) for row in saved.rows)
    end = saved.open_end
    return replace(
        saved,
        rows=rows,
        open_end=end and replace(end, id=renamed.get(end.id, end.id)),
        cleaned=tuple(renamed.get(key, key) for key in saved.cleaned),
    )


def _ids(saved: SavedReview) -> frozenset[str]:
    return frozenset(row.id for row in saved.rows)


def _singles(rows: Mapping[str, ReviewRow]) -> dict[str, str]:
    """The ids by picture, of pictures that one row alone has."""
    counts = Counter(row.image for row in rows.values())
    return {row.image: key for key, row in rows.items() if row.image and counts[row.image] == 1}
