import pytest

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.review import ReviewRow, format_review
from latentmill.datasets.review_memory import Memory, Written, backup, read_review
from latentmill.stages.approve import approve
from latentmill.stages.captioning.review_file import save_review

ROWS = [
    ReviewRow("p4", "4.png", "a cat", "draft", "blip", draft="a cat"),
    ReviewRow("p1", "1.png", "", "draft", "blip", ("draft-empty",)),
    ReviewRow("p3", "3.png", "è", "check", draft="è"),
    ReviewRow("p2", "2.png", "a dog", "skip"),
]


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    save_review(layout, ROWS, Memory({row.id: Written(row, "a" * 64) for row in ROWS}), None)
    return layout


def statuses(layout):
    return {row.id: row.status for row in read_review(layout)}


def test_all_drafts_with_text_are_approved_and_nothing_else(layout):
    report = approve(layout, (), all_drafts=True)
    assert statuses(layout) == {"p4": "ok", "p1": "draft", "p3": "check", "p2": "skip"}
    assert report.counts == {"approved": 1, "waiting": 2, "ok": 1, "set_aside": 1}
    assert [(problem.id, problem.code) for problem in report.problems] == [("p1", "draft-empty")]


def test_what_is_left_is_to_be_done_in_the_file_that_is_named(layout):
    (left,) = approve(layout, (), all_drafts=True).next_steps
    assert str(layout.review) in left.text
    assert "write the missing captions" in left.text


def test_named_rows_are_approved_whatever_they_wait_for(layout):
    assert approve(layout, ("p3", "p4"), all_drafts=False).counts["approved"] == 2
    assert statuses(layout) == {"p4": "ok", "p1": "draft", "p3": "ok", "p2": "skip"}


def test_what_cannot_be_approved_is_named_with_its_reason(layout):
    approve(layout, ("p4",), all_drafts=False)
    report = approve(layout, ("p1", "p2", "p3", "p4"), all_drafts=False)
    assert report.counts == {"approved": 1, "waiting": 1, "ok": 2, "set_aside": 1}
    assert {(problem.id, problem.code) for problem in report.problems} == {
        ("p1", "draft-empty"),
        ("p2", "set-aside"),
        ("p4", "approved-before"),
    }
    assert statuses(layout) == {"p4": "ok", "p1": "draft", "p3": "ok", "p2": "skip"}


def test_the_order_of_the_rows_and_the_version_before_are_kept(layout):
    before = layout.review.read_bytes()
    approve(layout, (), all_drafts=True)
    assert [row.id for row in read_review(layout)] == ["p4", "p1", "p3", "p2"]
    assert backup(layout, 1).read_bytes() == before


def test_the_reason_it_waited_for_goes_and_the_length_stays(tmp_path):
    row = ReviewRow(
        "p1", "1.png", "è", "check", flags=("encoding-unsure", "long"), note="mine | why"
    )
    layout = Layout(tmp_path)
    save_review(layout, [row], Memory({"p1": Written(row, "a" * 64, reason="why")}), None)
    approve(layout, ("p1",), all_drafts=False)
    assert read_review(layout) == [
        ReviewRow("p1", "1.png", "è", "ok", flags=("long",), note="mine")
    ]


def test_approving_twice_changes_no_byte(layout):
    approve(layout, (), all_drafts=True)
    before = {path: path.read_bytes() for path in layout.work.rglob("*") if path.is_file()}
    assert approve(layout, (), all_drafts=True).counts["approved"] == 0
    assert {path: path.read_bytes() for path in before} == before


def test_an_edit_made_meanwhile_is_kept_as_a_person_s(layout):
    saved = [ReviewRow("p4", "4.png", "a red cat", "draft", "blip", draft="a cat"), *ROWS[1:]]
    layout.review.write_bytes(format_review(saved))
    approve(layout, ("p3",), all_drafts=False)
    row = read_review(layout)[0]
    assert (row.caption, row.status, row.source) == ("a red cat", "ok", "person")


@pytest.mark.parametrize(
    ("ids", "all_drafts", "message"),
    [(("p4", "p9"), True, "no row of review.csv has the id p9"), ((), False, "nothing was named")],
)
def test_a_mistake_approves_nothing(layout, ids, all_drafts, message):
    before = layout.review.read_bytes()
    with pytest.raises(UsageError, match=message):
        approve(layout, ids, all_drafts)
    assert layout.review.read_bytes() == before


def test_without_a_review_the_next_step_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"there is no review\.csv yet") as caught:
        approve(Layout(tmp_path), (), all_drafts=True)
    assert caught.value.run == (Command("caption"),)
