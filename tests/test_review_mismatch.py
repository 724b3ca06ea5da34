from dataclasses import replace

import numpy
import pytest

from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_change import approve_row
from latentmill.datasets.review_memory import Memory, Written
from latentmill.datasets.review_mismatch import (
    Agreement,
    Doubt,
    Pair,
    agreement_of,
    apply_agreement,
    pairs_of,
)

STRONG = Agreement({"p1": 0.1234}, {"p1": Doubt("hardly fit", True)})
WEAK = Agreement({"p1": 0.2}, {"p1": Doubt("hardly fit", False)})
FITS = Agreement({"p1": 0.3})


def row(**changes):
    return replace(ReviewRow("p1", "a.png", "a dog on grass", "ok"), **changes)


def applied(written, agreement, before=None):
    known = {} if before is None else {"p1": before}
    return apply_agreement(Memory({"p1": written}), Memory(known), agreement).rows["p1"]


@pytest.mark.parametrize("source", ["file", "person"])
def test_strong_doubt_about_a_person_s_caption_waits_for_an_answer(source):
    after = applied(Written(row(source=source), "x", settled=source == "person"), STRONG)
    assert after.row == row(
        source=source,
        status="check",
        flags=("mismatch",),
        clip_score=0.1234,
        draft="a dog on grass",
        note="hardly fit",
    )
    assert (after.reason, after.doubted) == ("hardly fit", "a dog on grass")


def test_weak_doubt_is_a_flag():
    after = applied(Written(row(flags=("long",)), "x"), WEAK)
    assert (after.row.status, after.row.flags, after.row.note) == ("ok", ("long", "mismatch"), "")


def test_a_vague_caption_is_flagged_only():
    assert applied(Written(row(flags=("vague",)), "x"), STRONG).row.status == "ok"


def test_drafts_stay_drafts():
    after = applied(Written(row(status="draft", source="blip"), "x"), STRONG)
    assert (after.row.status, after.row.flags) == ("draft", ("mismatch",))


def test_an_approved_draft_does_not_go_back_to_check():
    draft = applied(Written(row(status="draft", source="blip"), "x"), STRONG)
    approved = approve_row(draft.row, draft)
    after = applied(approved, STRONG, draft)
    assert (after.row.status, after.row.flags) == ("ok", ())


def test_a_confirmed_caption_is_asked_about_once():
    asked = applied(Written(row(), "x"), STRONG)
    confirmed = approve_row(asked.row, asked)
    after = applied(confirmed, STRONG, asked)
    assert (after.row.status, after.row.flags, after.row.note) == ("ok", (), "")
    again = applied(after, STRONG, after)
    assert again == after


@pytest.mark.parametrize("changes", [{"pixels": "y"}, {"caption": "a cat on grass"}])
def test_after_a_change_it_is_asked_about_again(changes):
    asked = applied(Written(row(), "x"), STRONG)
    confirmed = approve_row(asked.row, asked)
    changed = replace(confirmed, pixels=changes.get("pixels", "x"))
    text = changes.get("caption", "a dog on grass")
    changed = replace(changed, row=replace(changed.row, caption=text))
    assert applied(changed, STRONG, confirmed).row.status == "check"


def test_a_row_that_waits_by_a_person_s_edit_waits_on_when_others_change():
    asked = applied(Written(row(source="person"), "x", settled=True), STRONG)
    assert applied(asked, FITS, asked) == replace(asked, row=replace(asked.row, clip_score=0.3))


def test_a_second_reason_joins_the_first():
    first = row(status="check", flags=("encoding-unsure",), note="mine | which reading")
    after = applied(Written(first, "x", reason="which reading"), STRONG)
    assert after.row.flags == ("encoding-unsure", "mismatch")
    assert after.row.note == "mine | which reading | hardly fit"
    assert after.reason == "which reading | hardly fit"
    assert approve_row(after.row, after).row.note == "mine"


def test_flag_and_score_go_when_the_pair_fits_or_nothing_is_compared():
    flagged = applied(Written(row(), "x"), WEAK)
    assert applied(flagged, FITS, flagged).row == row(clip_score=0.3)
    assert applied(flagged, Agreement(), flagged).row == row()


def test_rows_outside_the_set_keep_what_they_have():
    away = Written(row(clip_score=0.5), "x", present=False)
    assert applied(away, Agreement()) == away


def record(name):
    return Record(name, 0, f"{name}.png", "", 0, 0, "PNG", 1, 1, pixels=name)


def test_rows_without_text_or_picture_or_set_aside_are_not_compared():
    rows = [row(), row(id="p2", caption=" "), row(id="p3", status="skip"), row(id="p4")]
    records = {name: record(name) for name in ("p1", "p2", "p3")}
    assert pairs_of(rows, records) == [Pair(records["p1"], "a dog on grass")]


def test_swapped_captions_are_found_and_other_scripts_are_only_scored():
    axes = numpy.eye(16, dtype=numpy.float32)
    shared = numpy.full(16, 0.2, dtype=numpy.float32)
    captions = [f"scene number {'abcdefghijklmnop'[place]}" for place in range(16)]
    captions[15] = "场景"
    vectors = [(axis + shared) / numpy.linalg.norm(axis + shared) for axis in axes]
    pairs = [Pair(record(f"p{place:02}"), captions[place]) for place in range(16)]
    pictures = {f"p{place:02}": vectors[place] for place in range(16)}
    texts = {captions[place]: vectors[place] for place in range(16)}
    texts[captions[3]], texts[captions[4]] = texts[captions[4]], texts[captions[3]]
    texts[captions[15]] = vectors[0]
    found = agreement_of(pairs, pictures, texts)
    assert sorted(found.doubts) == ["p03", "p04"]
    assert all(doubt.is_strong for doubt in found.doubts.values())
    assert "compare with p04.png" in found.doubts["p03"].reason
    assert len(found.scores) == 16
    assert found.scores["p00"] == 1.0
