from dataclasses import replace

import pytest

from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_identity import with_known_ids
from latentmill.datasets.review_reading import LastCell, SavedReview

IDS = ("p0f25cc56a5248ac", "p9461eefa9b19f0a", "p33761a265dade9a")
PRESENT = {key: ReviewRow(key, f"{n}.png", f"a cat {n}", "ok") for n, key in enumerate(IDS)}


def ids_after(*changed: ReviewRow) -> list[str]:
    return [row.id for row in with_known_ids(SavedReview(changed), PRESENT).rows]


def rows(*ids: str) -> tuple[ReviewRow, ...]:
    return tuple(replace(row, id=key) for row, key in zip(PRESENT.values(), ids, strict=True))


@pytest.mark.parametrize("changed", [IDS[0].upper(), "9461", "", "#NAME?", "1E+05"])
def test_a_row_whose_id_was_changed_is_known_by_its_letters_or_its_picture(changed: str) -> None:
    assert ids_after(*rows(changed, *IDS[1:])) == list(IDS)


def test_all_ids_may_have_been_lost() -> None:
    assert ids_after(*rows("1", "2", "3")) == list(IDS)


def test_a_row_of_a_picture_that_is_there_already_stays_unknown() -> None:
    twin = replace(PRESENT[IDS[0]], id="x")
    assert ids_after(*PRESENT.values(), twin) == [*IDS, "x"]


def test_two_rows_with_one_picture_are_not_guessed_at() -> None:
    twin = replace(PRESENT[IDS[0]], id="x")
    assert ids_after(twin, replace(twin, id="y")) == ["x", "y"]


def test_a_row_without_a_picture_s_name_stays_unknown() -> None:
    assert ids_after(replace(PRESENT[IDS[0]], id="x", image="")) == ["x"]


def test_the_end_of_the_file_and_cleaned_rows_are_renamed_too() -> None:
    end = LastCell("7", "note", "")
    saved = SavedReview(rows(IDS[0], IDS[1], "7"), cleaned=("7",), open_end=end)
    known = with_known_ids(saved, PRESENT)
    assert known.cleaned == (IDS[2],)
    assert known.open_end == LastCell(IDS[2], "note", "")
