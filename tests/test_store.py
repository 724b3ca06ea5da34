from dataclasses import replace

import pytest

from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record
from latentmill.datasets.review import LONGEST_CELL, ReviewRow, format_review
from latentmill.datasets.review_change import Change
from latentmill.datasets.review_memory import Memory, Written, backup, read_memory, read_review
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.reviewing import store as store_module
from latentmill.stages.reviewing.store import (
    CHANGED_OUTSIDE,
    EMPTY,
    UNKNOWN,
    Setting,
    Store,
    Wish,
    version_of,
)

IDS = [f"p{number:015}" for number in range(4)]
PIXELS = "a" * 32
ROWS = [
    ReviewRow(IDS[0], "0.png", "a dog", "draft", "blip", draft="a dog", clip_score=0.25),
    ReviewRow(IDS[1], "1.png", "a wet cat in snow", "ok", "file"),
    ReviewRow(IDS[2], "2.png", "è", "check", "file", ("encoding-unsure",), draft="è"),
    ReviewRow(IDS[3], "3.png", "", "draft", "blip", ("draft-empty", "not-drafted")),
]


def record(identity):
    name = f"{identity}.png"
    return Record(identity, 0, name, f"/d/{name}", 1, 1, "PNG", 64, 64, PIXELS)


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    save_review(layout, ROWS, Memory({row.id: Written(row, PIXELS) for row in ROWS}), None)
    return layout


def open_store(layout, **more):
    records = {identity: record(identity) for identity in IDS}
    return Store(Setting(layout, records, dict.fromkeys(IDS, ""), **more))


@pytest.fixture
def store(layout):
    return open_store(layout)


def wish(store, identity, goes_on=False, **wanted):
    version = version_of(store.load().rows[identity])
    return Wish(Change(identity, **wanted), version, goes_on)


def on_disk(layout):
    return {row.id: row for row in read_review(layout)}


def edit_outside(layout, identity, **changes):
    """Save review.csv as a spreadsheet would."""
    rows = [replace(row, **changes) if row.id == identity else row for row in read_review(layout)]
    layout.review.write_bytes(format_review(rows))


def test_a_change_is_on_disk_when_it_returns(store, layout):
    outcome = store.apply([wish(store, IDS[0], caption="a wet dog in snow")])
    row = on_disk(layout)[IDS[0]]
    assert (row.caption, row.status, row.source) == ("a wet dog in snow", "ok", "person")
    assert outcome.after.rows[IDS[0]] == row
    assert outcome.refused == {}


def test_tokens_and_flags_follow_the_text(store, layout):
    store.apply([wish(store, IDS[1], caption="a masterpiece of a cat " + "very " * 80)])
    row = on_disk(layout)[IDS[1]]
    assert row.tokens == 87
    assert row.flags == ("quality-words", "long")


def test_the_clip_score_of_other_rows_stays(store, layout):
    store.apply([wish(store, IDS[1], status="skip")])
    assert on_disk(layout)[IDS[0]].clip_score == 0.25


def test_undo_brings_back_the_row_and_all_that_is_remembered(store, layout):
    before = (on_disk(layout), read_memory(layout).rows[IDS[0]].settled)
    store.apply([wish(store, IDS[1], status="skip")])
    texts = {key: (row.caption, row.status, row.source) for key, row in before[0].items()}
    store.apply([wish(store, IDS[0], caption="a wet dog")])
    store.undo()
    store.undo()
    after = {key: (row.caption, row.status, row.source) for key, row in on_disk(layout).items()}
    assert after == texts
    assert read_memory(layout).rows[IDS[0]].settled == before[1]
    assert store.num_steps == 0


def test_undo_without_a_step_changes_nothing(store):
    outcome = store.undo()
    assert outcome.before == outcome.after


def test_many_changes_are_one_step(store, layout):
    store.apply([wish(store, IDS[0], status="ok"), wish(store, IDS[2], status="ok")])
    assert store.num_steps == 1
    store.undo()
    assert on_disk(layout)[IDS[0]].status == "draft"
    assert on_disk(layout)[IDS[2]].status == "check"


def test_typing_on_is_one_step(store, layout):
    for text in ("a w", "a wet", "a wet dog"):
        store.apply([wish(store, IDS[0], goes_on=text != "a w", caption=text)])
    assert store.num_steps == 1
    store.undo()
    assert on_disk(layout)[IDS[0]].caption == "a dog"
    assert on_disk(layout)[IDS[0]].status == "draft"


def test_a_row_that_was_changed_outside_is_refused_and_shown_as_it_is(store, layout):
    seen = wish(store, IDS[1], caption="mine")
    edit_outside(layout, IDS[1], caption="theirs")
    outcome = store.apply([seen])
    assert outcome.refused == {IDS[1]: CHANGED_OUTSIDE}
    assert outcome.after.rows[IDS[1]].caption == "theirs"
    assert on_disk(layout)[IDS[1]].caption == "theirs"
    assert store.num_steps == 0


def test_other_rows_that_were_changed_outside_are_taken_over(store, layout):
    seen = wish(store, IDS[1], caption="mine")
    edit_outside(layout, IDS[0], caption="theirs")
    outcome = store.apply([seen])
    rows = on_disk(layout)
    assert (rows[IDS[1]].caption, rows[IDS[0]].caption) == ("mine", "theirs")
    assert rows[IDS[0]].status == "ok"
    assert outcome.refused == {}


def test_a_save_between_reading_and_writing_is_merged_too(store, layout, monkeypatch):
    save, calls = store_module.save_review, []

    def interrupted(*arguments, **named):
        if not calls:
            edit_outside(layout, IDS[0], caption="theirs")
        calls.append(1)
        return save(*arguments, **named)

    monkeypatch.setattr(store_module, "save_review", interrupted)
    store.apply([wish(store, IDS[1], caption="mine")])
    rows = on_disk(layout)
    assert (rows[IDS[1]].caption, rows[IDS[0]].caption) == ("mine", "theirs")
    assert len(calls) == 2


def test_a_file_that_cannot_be_read_is_left_as_it_is(store, layout):
    seen = wish(store, IDS[1], caption="mine")
    broken = layout.review.read_bytes() + b'"no end'
    layout.review.write_bytes(broken)
    with pytest.raises(DataError, match="damaged"):
        store.apply([seen])
    assert layout.review.read_bytes() == broken


def test_a_caption_too_long_for_a_spreadsheet_changes_nothing(store, layout):
    before = layout.review.read_bytes()
    with pytest.raises(DataError, match="too long"):
        store.apply([wish(store, IDS[1], caption="x" * (LONGEST_CELL + 1))])
    assert layout.review.read_bytes() == before
    assert store.apply([wish(store, IDS[1], caption="short enough")]).refused == {}


def test_undo_leaves_a_row_that_was_changed_outside_since(store, layout):
    store.apply([wish(store, IDS[1], caption="mine")])
    edit_outside(layout, IDS[1], caption="theirs")
    assert store.undo().refused == {IDS[1]: CHANGED_OUTSIDE}
    assert on_disk(layout)[IDS[1]].caption == "theirs"


def test_a_deleted_row_is_put_back(store, layout):
    seen = wish(store, IDS[1], caption="mine")
    rows = [row for row in read_review(layout) if row.id != IDS[1]]
    layout.review.write_bytes(format_review(rows))
    store.apply([seen])
    assert on_disk(layout)[IDS[1]].caption == "mine"


def test_an_unknown_id_is_refused(store):
    assert store.apply([Wish(Change("p9", "x"), "v")]).refused == {"p9": UNKNOWN}


def test_a_row_without_a_caption_is_not_approved(store, layout):
    outcome = store.apply([wish(store, IDS[3], status="ok")])
    assert outcome.refused == {IDS[3]: EMPTY}
    assert on_disk(layout)[IDS[3]].status == "draft"


def test_nothing_changed_is_no_step(store):
    store.apply([wish(store, IDS[1], caption=ROWS[1].caption)])
    assert store.num_steps == 0


def test_the_version_before_the_page_is_kept_and_not_pushed_out_by_small_saves(store, layout):
    first = layout.review.read_bytes()
    for number in range(8):
        store.apply([wish(store, IDS[1], caption=f"text {number}")])
    assert backup(layout, 1).read_bytes() == first
    assert not backup(layout, 2).exists()


def test_a_version_that_another_program_saved_is_kept(store, layout):
    store.apply([wish(store, IDS[1], caption="mine")])
    edit_outside(layout, IDS[0], caption="theirs")
    theirs = layout.review.read_bytes()
    store.apply([wish(store, IDS[1], caption="mine again")])
    assert backup(layout, 1).read_bytes() == theirs


def test_another_store_sees_what_this_one_saved(store, layout):
    store.apply([wish(store, IDS[0], status="ok")])
    assert open_store(layout).load().rows[IDS[0]].status == "ok"


def test_what_a_person_decided_looking_at_a_new_picture_is_about_that_picture(layout):
    records = {IDS[0]: replace(record(IDS[0]), pixels="b" * 32)}
    store = Store(Setting(layout, records, {IDS[0]: ""}))
    store.apply([wish(store, IDS[0], status="ok")])
    assert read_memory(layout).rows[IDS[0]].pixels == "b" * 32


def test_without_a_review_the_way_on_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"no review\.csv"):
        open_store(Layout(tmp_path)).load()
