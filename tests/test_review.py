import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import LONGEST_CELL, ReviewRow, format_review, same_text

ONE = "p000000000000001"


def row(identity=ONE, caption="a cat", status="ok", **more):
    return ReviewRow(identity, "cat.png", caption, status, **more)


def test_the_file_is_what_excel_opens_without_a_question():
    assert format_review([row(flags=("draft-empty", "long"), tokens=7, clip_score=0.25)]) == (
        b"\xef\xbb\xbfid,image,caption,status,source,flags,tokens,clip_score,draft,note\r\n"
        b"p000000000000001,cat.png,a cat,ok,file,draft-empty long,7,0.250,,\r\n"
    )


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
FORMULAS = st.builds(
    lambda guards, sign, rest: "'" * guards + sign + rest,
    st.integers(0, 3),
    st.sampled_from("=+-@\t\r"),
    TEXTS,
)


@given(TEXTS | FORMULAS)
def test_no_cell_begins_as_a_formula(text):
    cells = list(csv.reader(io.StringIO(format_review([row(caption=text)]).decode("utf-8-sig"))))
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for cell in cells[1])


def test_a_lone_surrogate_is_shown_and_does_not_stop_the_file():
    assert b"caf\\udce9.png" in format_review([ReviewRow(ONE, "caf\udce9.png", "a", "ok")])


@pytest.mark.parametrize("cell", ["'=1+1", "=1+1", "''=1+1"])
def test_an_apostrophe_that_a_spreadsheet_takes_or_doubles_is_no_edit(cell):
    assert same_text(cell, "=1+1")


def test_a_caption_too_long_for_a_spreadsheet_is_not_written():
    with pytest.raises(DataError, match=rf"row {ONE}: a cell of 32,768 characters"):
        format_review([row(caption="x" * (LONGEST_CELL + 1))])
    format_review([row(caption="x" * LONGEST_CELL)])
