from dataclasses import replace

import pytest

from latentmill.cache.files import write_json
from latentmill.datasets.errors import DataError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, format_review
from latentmill.datasets.review_fresh import Draft
from latentmill.datasets.review_memory import (
    NO_FILE,
    Memory,
    backup,
    memory_file,
    memory_to_json,
    read_against,
    read_memory,
    read_review,
)
from latentmill.datasets.review_merge import Inputs, merge_rows, needs_draft
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.settings import ReplaceRule

ONE, TWO = "p000000000000001", "p000000000000002"


def record(identity=ONE, caption="a cat", pixels="a" * 64, checks=(), codes=()):
    return Record(
        *(identity, 0, f"{identity}.png", f"/d/{identity}.png", 1, 1, "PNG", 64, 64, pixels),
        caption=caption,
        codes=codes,
        checks=checks,
    )


def draft(text="a dog", identity=ONE, pixels="a" * 64, flags=()):
    return {identity: Draft(identity, pixels, text, flags)}


def run(layout, records, drafts=None, explanations=None):
    """One run of the caption stage, without pictures."""
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    merged = merge_rows(Inputs(records, reading, memory, drafts or {}, explanations or {}))
    save_review(layout, merged.rows, merged.memory, reading)
    return merged


def edit(layout, identity=ONE, **changes):
    """Save review.csv as a spreadsheet would, with changed cells."""
    rows = [replace(row, **changes) if row.id == identity else row for row in read_review(layout)]
    layout.review.write_bytes(format_review(rows))


def rows_of(layout):
    return {row.id: row for row in read_review(layout)}


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path)


def test_captions_of_files_come_in_ok_and_doubtful_ones_with_their_reason(layout):
    records = [
        record(codes=("caption-multiline", "icc-missing")),
        record(TWO, "è", checks=("encoding-unsure",)),
    ]
    merged = run(layout, records, explanations={TWO: "as gb18030 it says 猫"})
    assert merged.rows == (
        ReviewRow(ONE, f"{ONE}.png", "a cat", "ok", "file", ("caption-multiline",)),
        ReviewRow(
            *(TWO, f"{TWO}.png", "è", "check", "file", ("encoding-unsure",)),
            draft="è",
            note="as gb18030 it says 猫",
        ),
    )


def test_drafts_wait_and_keep_their_flags(layout):
    run(layout, [record(caption=None)], draft(flags=("short",)))
    assert rows_of(layout)[ONE] == ReviewRow(
        *(ONE, f"{ONE}.png", "a dog", "draft", "blip", ("short",)), draft="a dog"
    )


def test_a_second_run_changes_no_byte(layout):
    records = [record(), record(TWO, None)]
    run(layout, records, draft(identity=TWO))
    edit(layout, TWO, caption="a brown dog", note="mine")
    run(layout, records)
    before = {path: path.read_bytes() for path in layout.work.rglob("*") if path.is_file()}
    run(layout, records)
    assert {p: p.read_bytes() for p in layout.work.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("checks", [(), ("encoding-unsure",)])
def test_an_edited_draft_or_doubtful_caption_is_approved_and_stays(layout, checks):
    start = record(checks=checks) if checks else record(caption=None)
    run(layout, [start], draft())
    edit(layout, caption="a brown dog")
    for _ in range(2):
        run(layout, [start], draft("another draft"))
        row = rows_of(layout)[ONE]
        assert (row.caption, row.status, row.source) == ("a brown dog", "ok", "person")
        assert row.flags == ()


def test_a_status_set_by_a_person_stays(layout):
    records = [record(checks=("encoding-unsure",)), record(TWO)]
    run(layout, records)
    edit(layout, status="ok")
    edit(layout, TWO, status="skip")
    for _ in range(2):
        run(layout, records)
        assert (rows_of(layout)[ONE].status, rows_of(layout)[TWO].status) == ("ok", "skip")
        assert rows_of(layout)[ONE].note == ""


def test_an_emptied_draft_approves_nothing(layout):
    run(layout, [record(caption=None)], draft())
    edit(layout, caption="")
    run(layout, [record(caption=None)])
    assert (rows_of(layout)[ONE].caption, rows_of(layout)[ONE].status) == ("", "draft")


def test_clearing_the_draft_column_approves_nothing(layout):
    run(layout, [record(caption=None)], draft())
    edit(layout, draft="")
    assert rows_of(layout)[ONE].status == "draft"


def test_what_spreadsheets_do_to_cells_is_no_edit(layout):
    run(layout, [record(caption=None)], draft("=red\ncat"))
    saved = layout.review.read_bytes().replace(b"'=red\ncat", b"=red\r\ncat")
    layout.review.write_bytes(saved)
    run(layout, [record(caption=None)])
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status) == ("=red\ncat", "draft")


def test_the_order_of_lines_does_not_matter(layout):
    records = [record(), record(TWO)]
    run(layout, records)
    before = layout.review.read_bytes()
    layout.review.write_bytes(format_review(reversed(read_review(layout))))
    run(layout, records)
    assert layout.review.read_bytes() == before


def test_a_deleted_row_is_put_back_and_reported(layout):
    records = [record(), record(TWO)]
    run(layout, records)
    edit(layout, caption="a brown cat")
    run(layout, records)
    layout.review.write_bytes(format_review([rows_of(layout)[TWO]]))
    assert [row.id for row in read_review(layout)] == [TWO, ONE]
    merged = run(layout, records)
    assert [(p.id, p.code) for p in merged.problems] == [(ONE, "row-deleted")]
    assert rows_of(layout)[ONE].caption == "a brown cat"


def test_a_deleted_file_is_written_again(layout):
    run(layout, [record(), record(TWO)])
    edit(layout, status="skip")
    run(layout, [record(), record(TWO)])
    before = layout.review.read_bytes()
    layout.review.unlink()
    assert [row.status for row in read_review(layout)] == ["skip", "ok"]
    merged = run(layout, [record(), record(TWO)])
    assert [p.code for p in merged.problems] == ["review-deleted"]
    assert layout.review.read_bytes() == before


def test_a_new_text_in_the_caption_file_is_taken_when_nobody_touched_the_row(layout):
    run(layout, [record()])
    edit(layout, note="mine")
    run(layout, [record(caption="a black cat")])
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status, row.source, row.note) == ("a black cat", "ok", "file", "mine")


def test_a_new_text_in_the_file_and_an_edit_are_put_to_a_person(layout):
    run(layout, [record()])
    edit(layout, caption="a red cat")
    changed = record(caption="a black cat")
    for _ in range(2):
        run(layout, [changed])
        row = rows_of(layout)[ONE]
        assert (row.caption, row.status) == ("a red cat", "check")
        assert row.flags == ("caption-file-changed",)
        assert "it now says: a black cat" in row.note
    edit(layout, status="ok")
    run(layout, [changed])
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status, row.flags, row.note) == ("a red cat", "ok", (), "")


def test_a_caption_file_that_appears_replaces_a_draft_nobody_touched(layout):
    run(layout, [record(caption=None)], draft())
    run(layout, [record(caption="a cat")])
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status, row.source, row.draft) == ("a cat", "ok", "file", "")


def test_a_caption_file_that_vanishes_is_put_to_a_person(layout):
    run(layout, [record()])
    for _ in range(2):
        run(layout, [record(caption=None)])
        row = rows_of(layout)[ONE]
        assert (row.caption, row.status, row.flags) == ("a cat", "check", ("caption-file-gone",))
    run(layout, [record()])
    assert rows_of(layout)[ONE].status == "ok"


def test_a_reviewed_caption_is_checked_when_its_picture_changes(layout):
    run(layout, [record(caption=None)], draft())
    edit(layout, status="ok")
    changed = record(caption=None, pixels="b" * 64)
    for _ in range(2):
        run(layout, [changed])
        row = rows_of(layout)[ONE]
        assert (row.caption, row.status, row.flags) == ("a dog", "check", ("picture-changed",))
        assert "the picture changed" in row.note
    edit(layout, caption="a wet dog")
    run(layout, [changed])
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status, row.flags, row.note) == ("a wet dog", "ok", (), "")


def test_a_change_before_the_first_merge_of_an_edit_is_seen(layout):
    run(layout, [record()])
    edit(layout, caption="a red cat")
    run(layout, [record(pixels="b" * 64)])
    assert rows_of(layout)[ONE].status == "check"


def test_a_file_caption_nobody_reviewed_is_only_flagged_when_its_picture_changes(layout):
    run(layout, [record()])
    for _ in range(2):
        run(layout, [record(pixels="b" * 64)])
        row = rows_of(layout)[ONE]
        assert (row.status, row.flags) == ("ok", ("picture-changed",))


def test_a_draft_of_other_pixels_is_made_again(layout):
    changed = record(caption=None, pixels="b" * 64)
    run(layout, [record(caption=None)], draft())
    memory = read_memory(layout)
    assert needs_draft(changed, rows_of(layout)[ONE], memory.rows[ONE])
    run(layout, [changed], draft("a wolf", pixels="b" * 64))
    row = rows_of(layout)[ONE]
    assert (row.caption, row.status, row.draft) == ("a wolf", "draft", "a wolf")
    assert not needs_draft(changed, row, read_memory(layout).rows[ONE])


@pytest.mark.parametrize("change", [{"caption": "mine"}, {"status": "ok"}, {"status": "skip"}])
def test_a_person_s_row_is_never_drafted_again(layout, change):
    run(layout, [record(caption=None)], draft())
    edit(layout, **change)
    changed = record(caption=None, pixels="b" * 64)
    assert not needs_draft(changed, rows_of(layout)[ONE], read_memory(layout).rows[ONE])


def test_a_picture_that_leaves_and_returns_keeps_its_row(layout):
    records = [record(), record(TWO)]
    run(layout, records)
    edit(layout, caption="a red cat")
    run(layout, [record(TWO)])
    assert list(rows_of(layout)) == [TWO]
    run(layout, records)
    assert rows_of(layout)[ONE].caption == "a red cat"


def test_a_row_of_an_unknown_picture_is_reported_and_remembered(layout):
    layout.review.write_bytes(format_review([ReviewRow(TWO, "x.png", "a cow", "ok", "person")]))
    merged = run(layout, [record()])
    assert [(p.id, p.code) for p in merged.problems] == [(TWO, "row-unknown")]
    run(layout, [record(), record(TWO, None)])
    assert rows_of(layout)[TWO].caption == "a cow"


def test_without_memory_a_person_s_text_is_still_a_person_s(layout):
    run(layout, [record(), record(TWO, None)], draft(identity=TWO))
    edit(layout, caption="a red cat")
    edit(layout, TWO, status="ok")
    memory_file(layout).unlink()
    run(layout, [record(), record(TWO, None)], draft("new", TWO))
    assert rows_of(layout)[ONE].caption == "a red cat"
    assert (rows_of(layout)[TWO].caption, rows_of(layout)[TWO].status) == ("a dog", "ok")


def test_columns_that_a_person_added_are_kept(layout):
    run(layout, [record()])
    edit(layout, extra=(("rating", "5"),))
    run(layout, [record(caption="a black cat")])
    assert rows_of(layout)[ONE].extra == (("rating", "5"),)


def test_question_marks_for_lost_characters_are_refused(layout):
    run(layout, [record(caption="a cat, 红色"), record(TWO, "really? 😀😀")])
    data = layout.review.read_bytes().decode("utf-8-sig").encode("cp1252", "replace")
    layout.review.write_bytes(data)
    with pytest.raises(DataError, match=r"lacks characters of its captions") as caught:
        read_review(layout)
    assert ONE in str(caught.value)
    assert TWO in str(caught.value)


def test_a_file_that_is_not_whole_changes_nothing(layout):
    run(layout, [record(), record(TWO)])
    layout.review.write_bytes(layout.review.read_bytes().replace(b",ok,", b",okay,", 1))
    before = (layout.review.read_bytes(), memory_file(layout).read_bytes())
    with pytest.raises(DataError, match="okay"):
        run(layout, [record(), record(TWO)])
    assert (layout.review.read_bytes(), memory_file(layout).read_bytes()) == before


def test_the_last_five_versions_are_kept(layout):
    versions = []
    for number in range(8):
        run(layout, [record(caption=f"cat number {number}")])
        versions.append(layout.review.read_bytes())
    kept = [backup(layout, number).read_bytes() for number in range(1, 6)]
    assert kept == versions[-2:-7:-1]
    assert not backup(layout, 6).exists()


def test_a_save_by_another_program_meanwhile_is_not_overwritten(layout):
    run(layout, [record()])
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    edit(layout, caption="typed just now")
    with pytest.raises(DataError, match="saved by another program"):
        save_review(layout, [], Memory(), reading)
    assert rows_of(layout)[ONE].caption == "typed just now"


def test_killed_between_its_two_files_nothing_is_taken_for_an_edit(layout):
    run(layout, [record()])
    old = layout.review.read_bytes()
    run(layout, [record(caption="a black cat")])
    newer = layout.review.read_bytes()
    from_before = read_against(layout, read_memory(layout)).digest
    layout.review.write_bytes(old)
    digest = read_against(layout, read_memory(layout)).digest
    assert digest != from_before
    going = replace(read_memory(layout), replaces=digest)
    write_json(memory_file(layout), memory_to_json(going))
    run(layout, [record(caption="a black cat")])
    assert layout.review.read_bytes() == newer
    assert rows_of(layout)[ONE].source == "file"


def test_killed_before_the_first_file_no_row_counts_as_deleted(layout):
    run(layout, [record()])
    layout.review.unlink()
    write_json(memory_file(layout), memory_to_json(replace(read_memory(layout), replaces=NO_FILE)))
    assert run(layout, [record()]).problems == ()


def test_a_damaged_memory_is_named(layout):
    memory_file(layout).parent.mkdir()
    memory_file(layout).write_text("{")
    with pytest.raises(DataError, match="damaged"):
        read_review(layout)


def shortened(layout, num_bytes):
    layout.review.write_bytes(layout.review.read_bytes()[:-num_bytes])


def test_a_deleted_row_keeps_status_caption_and_note_as_they_were(layout):
    records = [record(), record(TWO, None)]
    run(layout, records, draft(identity=TWO))
    edit(layout, status="skip", note="too dark", caption="a dark cat")
    run(layout, records)
    as_it_was = rows_of(layout)[ONE]
    layout.review.write_bytes(format_review([rows_of(layout)[TWO]]))
    for _ in range(2):
        run(layout, records)
        assert rows_of(layout)[ONE] == as_it_was
    assert (as_it_was.status, as_it_was.note) == ("skip", "too dark")


@pytest.mark.parametrize("end", ["mid-row", "row end", "before the line end"])
def test_a_file_that_was_cut_off_is_refused_and_the_ways_back_are_named(layout, end):
    records = [record(), record(TWO)]
    run(layout, records)
    edit(layout, status="skip")
    layout.review.write_bytes(layout.review.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    run(layout, records)
    whole = layout.review.read_bytes()
    second = whole.index(TWO.encode())
    cuts = {"mid-row": second + 30, "row end": second - 2, "before the line end": second - 1}
    layout.review.write_bytes(whole[: cuts[end]].replace(b"a cat", b"a lost cat"))
    kept = (layout.review.read_bytes(), memory_file(layout).read_bytes())
    if end == "before the line end":  # A lone CR ends a line, so the last row was deleted.
        assert read_against(layout, read_memory(layout)).deleted == (TWO,)
        return
    with pytest.raises(DataError, match="is damaged") as caught:
        run(layout, records)
    assert str(backup(layout, 1)) in caught.value.fix
    assert "move it away" in caught.value.fix
    assert caught.value.run == (Command("caption"),)
    assert (layout.review.read_bytes(), memory_file(layout).read_bytes()) == kept
    layout.review.rename(layout.review.with_name("away.csv"))
    run(layout, records)
    assert layout.review.read_bytes() == whole


def test_a_last_cell_that_lost_its_end_is_refused(layout):
    run(layout, [record(), record(TWO)])
    edit(layout, TWO, note="blurred at the left side")
    run(layout, [record(), record(TWO)])
    shortened(layout, 8)
    with pytest.raises(DataError, match="'blurred at the lef' was 'blurred at the left side'"):
        read_review(layout)


def test_a_save_without_a_last_line_end_is_no_damage(layout):
    run(layout, [record(), record(TWO)])
    shortened(layout, 2)
    assert [row.id for row in read_review(layout)] == [ONE, TWO]
    layout.review.write_bytes(format_review([rows_of(layout)[TWO]])[:-2])
    assert run(layout, [record(), record(TWO)]).problems[0].code == "row-deleted"


def test_a_sorted_file_without_its_last_rows_and_line_end_is_refused(layout):
    run(layout, [record(), record(TWO)])
    layout.review.write_bytes(format_review(reversed(read_review(layout)))[:-2])
    assert len(read_review(layout)) == 2
    layout.review.write_bytes(format_review([rows_of(layout)[ONE]])[:-2])
    with pytest.raises(DataError, match=f"1 rows are missing .{TWO}"):
        read_review(layout)


def test_nul_in_a_row_is_reported(layout):
    run(layout, [record(), record(TWO)])
    layout.review.write_bytes(layout.review.read_bytes().replace(b"a cat", b"a red\0 cat", 1))
    merged = run(layout, [record(), record(TWO)])
    assert [(p.id, p.code) for p in merged.problems] == [(ONE, "caption-control-characters")]
    assert (rows_of(layout)[ONE].caption, rows_of(layout)[ONE].source) == ("a red cat", "person")


def test_a_guard_that_is_doubled_in_an_edited_cell_is_taken_off(layout):
    run(layout, [record(caption="=red cat"), record(TWO, "a cat")])
    text = layout.review.read_bytes().replace(b"'=red cat", b"''=red cat outside")
    layout.review.write_bytes(text)
    assert rows_of(layout)[ONE].caption == "=red cat outside"


def test_an_apostrophe_of_the_caption_itself_stays(layout):
    run(layout, [record(caption="'=red cat")])
    layout.review.write_bytes(layout.review.read_bytes().replace(b"red", b"blue"))
    assert rows_of(layout)[ONE].caption == "'=blue cat"


def test_the_version_before_proves_the_encoding_when_the_memory_is_gone(layout):
    run(layout, [record(caption="一只猫"), record(TWO, "a dog")])
    edit(layout, TWO, caption="一只狗")
    run(layout, [record(caption="一只猫"), record(TWO, "a dog")])
    memory_file(layout).unlink()
    text = layout.review.read_bytes().decode("utf-8-sig")
    layout.review.write_bytes(text.encode("gb18030"))
    assert [row.caption for row in read_review(layout)] == ["一只猫", "一只狗"]


RULES = (ReplaceRule(find="dog", by="zwx"), ReplaceRule(find="cat", by="tiger"))


def run_rules(layout, records, drafts=None, rules=RULES):
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    merged = merge_rows(Inputs(records, reading, memory, drafts or {}, rules=rules))
    save_review(layout, merged.rows, merged.memory, reading)
    return merged


def test_rules_rewrite_drafts_and_captions_of_files(layout):
    records = [record(caption=None), record(TWO)]
    run_rules(layout, records, draft("a wet dog", flags=("short",)))
    one, two = rows_of(layout)[ONE], rows_of(layout)[TWO]
    assert (one.caption, one.draft, one.status) == ("a wet zwx", "a wet zwx", "draft")
    assert one.flags == ("short", "rewritten")
    assert (two.caption, two.status, two.source) == ("a tiger", "ok", "file")
    assert two.flags == ("rewritten",)
    before = {path: path.read_bytes() for path in layout.work.rglob("*") if path.is_file()}
    run_rules(layout, records)
    assert {path: path.read_bytes() for path in before} == before


def test_rules_that_change_or_go_start_from_the_original_text(layout):
    records = [record(caption=None), record(TWO)]
    run_rules(layout, records, draft("a wet dog"))
    run_rules(layout, records, rules=(ReplaceRule(find="wet", by="dry"),))
    assert [row.caption for row in rows_of(layout).values()] == ["a dry dog", "a cat"]
    run_rules(layout, records, rules=())
    assert [row.caption for row in rows_of(layout).values()] == ["a wet dog", "a cat"]
    assert [row.flags for row in rows_of(layout).values()] == [(), ()]


def test_drafts_of_before_there_were_rules_are_rewritten_too(layout):
    records = [record(caption=None)]
    run(layout, records, draft("a wet dog"))
    run_rules(layout, records)
    assert rows_of(layout)[ONE].caption == "a wet zwx"


@pytest.mark.parametrize("changes", [{"caption": "my dog"}, {"status": "ok"}, {"status": "skip"}])
def test_rules_leave_a_person_s_row_alone(layout, changes):
    records = [record(caption=None), record(TWO, "a dog")]
    run(layout, records, draft("a wet dog"))
    edit(layout, ONE, **changes)
    edit(layout, TWO, caption="the dog of a friend")
    before = rows_of(layout)
    run_rules(layout, records)
    assert rows_of(layout)[ONE].caption == before[ONE].caption
    assert rows_of(layout)[TWO].caption == "the dog of a friend"


def test_a_draft_of_a_changed_picture_stays_in_check_under_rules(layout):
    run(layout, [record(caption=None)], draft("a wet dog"))
    changed = [record(caption=None, pixels="b" * 64)]
    for _ in range(2):
        run_rules(layout, changed)
        assert rows_of(layout)[ONE].status == "check"


def test_without_memory_a_rewritten_caption_is_still_the_file_s(layout):
    run_rules(layout, [record()])
    memory_file(layout).unlink()
    run_rules(layout, [record()])
    assert (rows_of(layout)[ONE].caption, rows_of(layout)[ONE].source) == ("a tiger", "file")


def test_what_was_approved_without_a_memory_stays_approved(layout):
    """The folder of `caption` may have been deleted: what the picture was then is not known."""
    from latentmill.stages.approve import approve

    records = [record(caption=None), record(TWO, caption="a dog")]
    run(layout, records, draft("a cat"))
    edit(layout, TWO, caption="my dog", status="check")
    memory_file(layout).unlink()
    approve(layout, (ONE, TWO), all_drafts=False)
    run(layout, records, draft("a cat"))
    after = rows_of(layout)
    assert [(after[key].status, after[key].flags) for key in (ONE, TWO)] == [("ok", ()), ("ok", ())]
    assert after[TWO].caption == "my dog"
