from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.review_change import Change, change_row, remembered
from latentmill.datasets.review_memory import Memory, Written, read_against, read_memory
from latentmill.datasets.review_merge import Inputs, merge_rows
from latentmill.stages.captioning.review_file import save_review

ONE, TWO = "p000000000000001", "p000000000000002"
PIXELS = "a" * 32
DRAFT = ReviewRow(ONE, "1.png", "a dog", "draft", "blip", ("repetition",), draft="a dog")
CHECK = ReviewRow(ONE, "1.png", "è", "check", "file", ("encoding-unsure",), draft="è", note="why")
OK = ReviewRow(ONE, "1.png", "a dog", "ok", "file")
SKIP = ReviewRow(ONE, "1.png", "a dog", "skip", "file")
EMPTY = ReviewRow(ONE, "1.png", "", "draft", "blip", ("draft-empty", "not-drafted"))


def known(row, **more):
    text = row.caption if row.source == "file" else None
    return Written(row, PIXELS, text, **more)


def changed(row, **wanted):
    return change_row(row, known(row, reason=row.note), Change(ONE, **wanted)).row


@pytest.mark.parametrize("row", [DRAFT, CHECK, EMPTY])
def test_editing_a_row_that_waits_approves_it(row):
    after = changed(row, caption="a wet dog")
    assert (after.caption, after.status, after.source) == ("a wet dog", "ok", "person")
    assert (after.flags, after.note) == ((), "")


@pytest.mark.parametrize("row", [OK, SKIP])
def test_editing_a_decided_row_keeps_its_status(row):
    after = changed(row, caption="a wet dog")
    assert (after.caption, after.status, after.source) == ("a wet dog", row.status, "person")


@pytest.mark.parametrize("row", [DRAFT, CHECK])
def test_clearing_a_caption_approves_nothing(row):
    assert changed(row, caption=" ").status == row.status


@pytest.mark.parametrize("row", [DRAFT, CHECK, OK, SKIP])
def test_approving_keeps_the_text_and_who_wrote_it(row):
    after = changed(row, status="ok")
    assert (after.caption, after.status, after.source) == (row.caption, "ok", row.source)


@pytest.mark.parametrize("row", [DRAFT, CHECK, OK])
def test_setting_aside_keeps_the_text(row):
    after = changed(row, status="skip")
    assert (after.caption, after.status) == (row.caption, "skip")


def test_a_caption_may_be_written_and_set_aside_in_one_step():
    after = changed(DRAFT, caption="a wet dog", status="skip")
    assert (after.caption, after.status) == ("a wet dog", "skip")


@pytest.mark.parametrize("row", [DRAFT, CHECK, OK, SKIP])
def test_rewording_keeps_the_status(row):
    after = changed(row, caption="a wet dog", reword=True)
    assert (after.caption, after.status) == ("a wet dog", row.status)


def test_the_clip_score_goes_with_its_text():
    scored = replace(DRAFT, clip_score=0.25)
    assert changed(scored, caption="a wet dog").clip_score is None
    assert changed(scored, status="ok").clip_score == 0.25


def test_an_unchanged_text_is_no_edit():
    assert changed(DRAFT, caption="a dog") == DRAFT


def record(caption=None):
    return Record(
        *(ONE, 0, "1.png", "/d/1.png", 1, 1, "PNG", 64, 64, PIXELS), caption=caption, checks=()
    )


def saved(tmp_path, row, change):
    """The row on disk after a change, and after `caption` merged it once more."""
    layout = Layout(tmp_path)
    save_review(layout, [row], Memory({ONE: known(row)}), None)
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    after = change_row(row, memory.rows[ONE], change)
    save_review(
        layout, [after.row], remembered(memory, reading.rows, {ONE: after}), reading, keep=False
    )
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    text = row.caption if row.source == "file" else None
    merged = merge_rows(Inputs([record(text)], reading, memory))
    return reading.rows[0], merged.rows[0]


@pytest.mark.parametrize("row", [DRAFT, CHECK, OK, SKIP, EMPTY])
@pytest.mark.parametrize(
    "change",
    [
        Change(ONE, "a wet dog"),
        Change(ONE, status="skip"),
        Change(ONE, "a wet dog", "ok"),
        Change(ONE, "a wet dog", reword=True),
    ],
)
def test_what_was_decided_is_read_back_and_stands_when_caption_runs_again(tmp_path, row, change):
    wanted = change_row(row, known(row), change).row
    read, merged = saved(tmp_path, row, change)
    assert (read.caption, read.status) == (wanted.caption, wanted.status)
    assert (merged.caption, merged.status) == (wanted.caption, wanted.status)


@settings(max_examples=25, deadline=None)
@given(text=st.text(st.characters(codec="utf-16-le", exclude_categories=[])))
def test_any_text_typed_is_read_back(tmp_path_factory, text):
    read, _ = saved(tmp_path_factory.mktemp("any"), OK, Change(ONE, text))
    expected = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    assert read.caption == printable(expected)


def test_rows_that_were_not_changed_are_noted_as_a_person_left_them():
    other = ReviewRow(TWO, "2.png", "a cat", "ok", "file")
    memory = Memory({ONE: known(OK), TWO: known(other)})
    edited = replace(other, caption="two cats", source="person")
    after = remembered(memory, [OK, edited], {ONE: known(SKIP)})
    assert after.rows[ONE].row == SKIP
    assert (after.rows[TWO].row, after.rows[TWO].settled) == (edited, True)
