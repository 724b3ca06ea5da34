from dataclasses import dataclass

import pytest

from latentmill.datasets.errors import DataError
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.selection import require_reviewed, select_samples, with_trigger


@dataclass(frozen=True)
class FakeSource:
    trigger: str = ""


def record(identity, caption="a cat", checks=()):
    return Record(
        *(identity, 0, f"{identity}.png", f"/d/{identity}.png", 1, 1, "PNG", 64, 64, "f" * 64),
        caption=caption,
        checks=checks,
    )


def select(records, rows, accept_drafts=False, trigger=""):
    return select_samples(records, rows, (FakeSource(trigger),), accept_drafts)


def captions(selection):
    return [(s.record.id, s.caption, s.caption_by) for s in selection.samples]


def test_without_a_review_clean_captions_are_trained_on_and_the_rest_waits():
    records = [record("p3", None), record("p2"), record("p1", "è", ("caption-encoding",))]
    selection = select(records, None)
    assert captions(selection) == [("p2", "a cat", "file")]
    assert [row.id for row in selection.waiting] == ["p1"]
    assert [r.id for r in selection.uncaptioned] == ["p3"]


def test_samples_are_in_the_order_of_their_ids():
    assert [s.record.id for s in select([record("p2"), record("p1")], None).samples] == ["p1", "p2"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ReviewRow("p1", "", "a cat", "ok", "file"), [("p1", "a cat", "file")]),
        (ReviewRow("p1", "", "a dog", "ok", "file"), [("p1", "a dog", "person")]),
        (ReviewRow("p1", "", "a dog", "ok", "person"), [("p1", "a dog", "person")]),
        (ReviewRow("p1", "", "a dog", "ok", "blip", draft="a dog"), [("p1", "a dog", "person")]),
        (ReviewRow("p1", "", "", "ok", "person"), [("p1", "", "person")]),
        (ReviewRow("p1", "", "a dog", "draft", "blip", draft="a dog"), []),
        (ReviewRow("p1", "", "a dog", "draft", "blip", draft="a cat"), [("p1", "a dog", "person")]),
        (ReviewRow("p1", "", "a dog", "check", draft="a cat"), [("p1", "a dog", "person")]),
        (ReviewRow("p1", "", "a cat", "check", draft="a cat"), []),
        (ReviewRow("p1", "", "", "draft", "blip", draft="a cat"), []),
        (ReviewRow("p1", "", "a cat", "draft", "blip", draft=""), []),
        (
            ReviewRow("p1", "", "a cat", "draft", "blip", ("draft-empty",)),
            [("p1", "a cat", "person")],
        ),
        (ReviewRow("p1", "", "a cat", "skip"), []),
    ],
)
def test_the_row_decides(row, expected):
    assert captions(select([record("p1")], [row])) == expected


@pytest.mark.parametrize(
    ("row", "accepted"),
    [
        (ReviewRow("p1", "", "a dog", "draft", "blip", draft="a dog"), True),
        (ReviewRow("p1", "", "", "draft", "blip", ("draft-empty",)), False),
        (ReviewRow("p1", "", "a dog", "check", draft="a dog"), False),
    ],
)
def test_accepting_drafts_lets_through_drafts_only(row, accepted):
    selection = select([record("p1", None)], [row], accept_drafts=True)
    assert captions(selection) == ([("p1", "a dog", "draft")] if accepted else [])
    assert len(selection.waiting) == (0 if accepted else 1)


def test_a_skipped_picture_is_set_aside_and_a_row_without_picture_is_nothing():
    rows = [ReviewRow("p1", "", "a", "skip"), ReviewRow("p9", "", "a", "ok")]
    selection = select([record("p1"), record("p2")], rows)
    assert selection.set_aside == ("p1",)
    assert captions(selection) == [("p2", "a cat", "file")]


def test_every_record_stands_in_exactly_one_place():
    rows = [
        ReviewRow("p1", "", "a", "skip"),
        ReviewRow("p2", "", "a", "draft", draft="a"),
        ReviewRow("p3", "", "a", "ok"),
    ]
    selection = select([record(f"p{n}", None) for n in range(1, 5)], rows)
    places = (
        [s.record.id for s in selection.samples]
        + list(selection.set_aside)
        + [row.id for row in selection.waiting]
        + [r.id for r in selection.uncaptioned]
    )
    assert sorted(places) == ["p1", "p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a cat", "zwx, a cat"),
        ("zwx, a cat", "zwx, a cat"),
        ("ZWX a cat", "ZWX a cat"),
        ("zwxy a cat", "zwx, zwxy a cat"),
        ("", "zwx"),
        ("zwx", "zwx"),
        ("1girl, red hair", "zwx, 1girl, red hair"),
        ("1girl, ZWX , red hair", "zwx, 1girl, red hair"),
        ("a photo of zwx in snow", "a photo of zwx in snow"),
        ("a cat named zwx, outside", "a cat named zwx, outside"),
        ("a photo of zwx_2 in snow", "zwx, a photo of zwx_2 in snow"),
        ("zwx in snow, zwx", "zwx in snow, zwx"),
    ],
)
def test_the_trigger_stands_in_front_once(caption, expected):
    assert with_trigger(caption, "zwx") == expected
    assert with_trigger(expected, "zwx") == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("\u96ea\u5730\u91cc\u7684\u5c0f\u660e", "\u96ea\u5730\u91cc\u7684\u5c0f\u660e"),
        ("\u96ea\u5730", "\u5c0f\u660e, \u96ea\u5730"),
    ],
)
def test_a_trigger_without_blanks_around_it_is_found(caption, expected):
    assert with_trigger(caption, "\u5c0f\u660e") == expected


def test_the_trigger_of_its_source_is_put_before_a_sample():
    assert captions(select([record("p1")], None, trigger="zwx")) == [("p1", "zwx, a cat", "file")]


def test_the_gate_says_how_many_wait_what_share_and_the_ways_on():
    rows = [ReviewRow("p1", "a.png", "a", "draft", draft="a"), ReviewRow("p2", "", "b", "ok")]
    records = [record(f"p{n}", None) for n in (1, 2, 3)] + [record("p4", checks=("caption-x",))]
    with pytest.raises(DataError) as caught:
        require_reviewed(select(records, rows))
    message = str(caught.value)
    for expected in (
        "3 of 4 pictures (75%) waiting for a caption",
        "1 draft nobody looked at, 1 caption in doubt (check), 1 without any caption",
        "a.png",
        "latentmill caption",
        "latentmill approve --all-drafts",
        "caption.accept_drafts=true",
    ):
        assert expected in message
    assert caught.value.exit_code == 3


def test_the_gate_does_not_offer_to_approve_rows_without_a_text():
    empty = ReviewRow("p1", "a.png", " ", "draft", "blip", ("draft-empty",))
    with pytest.raises(DataError) as caught:
        require_reviewed(select([record("p1", None)], [empty]))
    assert caught.value.what.endswith("waiting for a caption: 1 empty row of review.csv")
    assert "write the missing captions" in caught.value.fix
    assert caught.value.run == ()
    drafted = ReviewRow("p2", "b.png", "a dog", "draft", "blip")
    with pytest.raises(DataError) as caught:
        require_reviewed(select([record("p1", None), record("p2", None)], [empty, drafted]))
    assert caught.value.what.endswith("1 draft nobody looked at, 1 empty row of review.csv")
    assert caught.value.run[0] == Command("approve", ("--all-drafts",))


def test_the_gate_is_open_when_every_caption_stands():
    require_reviewed(select([record("p1")], [ReviewRow("p1", "", "a", "ok")]))


def test_the_gate_stops_a_set_of_which_nothing_is_left():
    with pytest.raises(DataError, match="no picture is left"):
        require_reviewed(select([record("p1")], [ReviewRow("p1", "", "a", "skip")]))


def test_a_caption_that_a_rule_rewrote_is_still_its_file_s():
    rows = [ReviewRow("p1", "a.png", "a tiger", "ok", "file", ("rewritten",))]
    assert captions(select([record("p1")], rows)) == [("p1", "a tiger", "file")]
