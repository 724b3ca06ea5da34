"""What a program destroyed while it saved `review.csv` is refused, with each row's name."""

import pytest

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_losses import refuse_losses

ID = "p0123456789abcdef"


def saved(before: str, after: str) -> None:
    refuse_losses([ReviewRow(ID, "a.png", after, "ok")], {ID: before}, "review.csv")


@pytest.mark.parametrize(
    "text", ["红色连衣裙, 长发", "schöne Straße", "кот на коврике", "a 😀 cat"]
)
@pytest.mark.parametrize("reading", ["cp1252", "cp1251", "mac_roman", "gb18030", "cp932"])
@pytest.mark.parametrize("errors", ["replace", "ignore"])
def test_utf8_that_was_opened_in_another_encoding_is_refused(
    text: str, reading: str, errors: str
) -> None:
    garbled = text.encode().decode(reading, errors)
    with pytest.raises(DataError, match="opened it in a wrong encoding") as caught:
        saved(text, garbled)
    assert f"{ID}: {garbled[:40]!r} was {text!r}" in caught.value.what


@pytest.mark.parametrize("value", ["#NAME?", "#WERT!", "#DIV/0!", "#N/A", "Err:508", "########"])
def test_a_formulas_error_is_no_caption(value: str) -> None:
    with pytest.raises(DataError, match="error values in place of captions"):
        saved("- a cat", value)


def test_question_marks_for_letters_are_refused() -> None:
    with pytest.raises(DataError, match="lacks characters"):
        saved("schöne Frau", "sch?ne Frau")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("красный кот", "рыжий кот"),
        ("schöne Straße", "eine schöne Straße"),
        ("Ã©tÃ©", "été"),
        ("a cat", "a cat?"),
        ("a cat", "#cat, sitting!"),
        ("", "#NAME?"),
        ("#NAME?", "#NAME?"),
        ("a cat", "猫"),
    ],
)
def test_what_a_person_writes_is_taken(before: str, after: str) -> None:
    saved(before, after)
