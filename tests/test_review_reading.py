import csv
import io
import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import (
    COLUMNS,
    LONGEST_CELL,
    ReviewRow,
    format_review,
    same_text,
)
from latentmill.datasets.review_reading import LastCell, parse_review, read_saved

ONE = "p000000000000001"
TWO = "p000000000000002"


def saved(*lines, encoding="utf-8-sig", end="\r\n"):
    return (end.join(lines) + end).encode(encoding)


def parse(data, **more):
    return parse_review(data, "work/review.csv", **more)


def header(delimiter=","):
    return delimiter.join(COLUMNS)


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60)
FORMULAS = st.builds(
    lambda guards, sign, rest: "'" * guards + sign + rest,
    st.integers(0, 3),
    st.sampled_from("=+-@\t\r"),
    TEXTS,
)


@given(st.lists(st.tuples(TEXTS | FORMULAS, TEXTS | FORMULAS, TEXTS), max_size=5))
def test_any_unicode_text_comes_back_as_it_was(texts):
    rows = [
        ReviewRow(
            *(f"p{number:015x}", "c.png", caption, "draft"),
            **{"draft": draft, "note": note, "extra": (("mine", note),)},
        )
        for number, (caption, draft, note) in enumerate(texts)
    ]
    assert parse(format_review(rows)) == rows


@pytest.mark.parametrize(
    ("cell", "caption"),
    [("'=1+1", "=1+1"), ("=1+1", "=1+1"), ("'quoted'", "'quoted'"), ("''=1", "'=1")],
)
def test_only_our_own_apostrophe_is_taken_away(cell, caption):
    assert parse(saved(header(), f"{ONE},c.png,{cell},ok,file,,,,,"))[0].caption == caption


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_what_spreadsheets_save_is_read(encoding, delimiter, end):
    line = delimiter.join([ONE, "猫.png", '"red, ""big""; 猫\ttail"', "OK", "file", *[""] * 5])
    rows = parse(saved(header(delimiter), line, encoding=encoding, end=end))
    assert rows == [ReviewRow(ONE, "猫.png", 'red, "big"; 猫\ttail', "ok", "file")]


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "sep=;;;;"])
def test_a_sep_line_is_no_header_and_counts_as_a_line(first):
    lines = [first, header(";"), f"{ONE};c.png;a, b;ok;file;;;;;"]
    assert parse(saved(*lines))[0].caption == "a, b"
    with pytest.raises(DataError, match=r"line 3 \(id p000000000000001\)"):
        parse(saved(*lines[:2], lines[2].replace("ok", "fine")))


def test_columns_may_move_vanish_and_be_added():
    data = saved("My column,STATUS, draft ,caption,id", f"7,draft,a dog,a dog,{ONE}")
    (read,) = parse(data)
    assert read == ReviewRow(
        *(ONE, "", "a dog", "draft", "person"), draft="a dog", extra=(("My column", "7"),)
    )
    assert parse(format_review([read])) == [read]


def test_line_breaks_stay_inside_their_caption():
    data = saved(header(), f'{ONE},c.png,"a\u2028b\x0bc\x85d\ne",ok,file,,,,,')
    assert parse(data)[0].caption == "a\u2028b\x0bc\x85d\ne"


def test_trailing_delimiters_that_excel_leaves_out_and_empty_lines_do_no_harm():
    data = saved(
        header(), f"{ONE},c.png,a cat,ok", ",,,,,,,,,", "", f"{TWO},d.png,a dog,skip,,,,,,,,,"
    )
    assert [(r.id, r.caption, r.status) for r in parse(data)] == [
        (ONE, "a cat", "ok"),
        (TWO, "a dog", "skip"),
    ]


def test_german_decimals_are_read_and_rubbish_in_our_columns_is_nothing():
    data = saved(header(";"), f"{ONE};c;a;ok;file;x, y;12;0,31;;", f"{TWO};c;a;ok;;;many;nan;;")
    one, two = parse(data)
    assert (one.flags, one.tokens, one.clip_score) == (("x", "y"), 12, 0.31)
    assert (two.flags, two.tokens, two.clip_score) == ((), None, None)


def test_every_fault_is_named_at_once_with_line_and_id():
    data = saved(
        header(),
        f'{ONE},c.png,"two\nlines",ok,file,,,,,',
        f"{ONE},c.png,again,ok,file,,,,,",
        f"{TWO},c.png,a,perhaps,file,,,,,",
        ",c.png,a,ok,file,,,,,",
        f"p000000000000004,c.png,{'x' * (LONGEST_CELL + 1)},ok,file,,,,,",
        "p000000000000005,c.png,a,ok,file,,,,,,over",
    )
    with pytest.raises(DataError) as caught:
        parse(data)
    message = str(caught.value)
    for expected in (
        f"line 4 (id {ONE}): the same id as line 2",
        f"line 5 (id {TWO}): status 'perhaps' is none of draft, check, ok, skip",
        "line 6 (id missing): the id is missing",
        "line 7 (id p000000000000004): a cell of 32,768 characters",
        "line 8 (id p000000000000005): 11 cells, the header has 10 columns",
        "work/review.csv",
    ):
        assert expected in message


@pytest.mark.parametrize(
    "bad", ['"a cat', 'a "cat', '"a" cat'], ids=["opened", "inside a plain cell", "closed early"]
)
def test_a_stray_quotation_mark_swallows_no_row(bad):
    lines = [f"p{n:015x},c.png,a cat number {n},ok,file,,,,," for n in range(4)]
    lines[1] = f"p{1:015x},c.png,{bad},ok,file,,,,,"
    data = saved(header(), *lines)
    try:
        assert len(parse(data)) == 4
    except DataError as error:
        assert "line 3" in str(error)
        assert "quotation mark" in str(error)


def test_two_stray_quotation_marks_do_not_hide_the_rows_between():
    lines = [f"p{n:015x},c.png,a cat number {n},ok,file,,,,," for n in range(5)]
    lines[1] = f'p{1:015x},c.png,"a cat,ok,file,,,,,'
    lines[3] = f'p{3:015x},c.png,a cat",ok,file,,,,,'
    with pytest.raises(DataError, match=r"line 3 .*quotation mark"):
        parse(saved(header(), *lines))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "review.csv is empty"),
        (b"\xef\xbb\xbf\r\n", "review.csv is empty"),
        (b"\xff\xfe\r\0\n\0", "review.csv is empty"),
        (b"\0" * 4096, "no CSV file but zeros only"),
        (b"PK\x03\x04....[Content_Types].xml..xl/workbook.xml", r"an Excel workbook \(\.xlsx\)"),
        (
            b"PK\x03\x04..mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
            r"an OpenDocument table \(\.ods\)",
        ),
        (b"PK\x03\x04..Index/Document.iwa", "a workbook or another archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"an Excel workbook \(\.xls\)"),
        (b'\r\n<html xmlns:o="urn:schemas-microsoft-com:office:office">', "a web page"),
        (b"\xef\xbb\xbf<!DOCTYPE html><html>", "a web page"),
        (b'<?xml version="1.0"?><Workbook>', "XML"),
        (b"%PDF-1.7", "a PDF"),
        (saved(f"{ONE},c.png,a cat,ok,file,,,,,"), "the first line is a row already"),
        (saved("编号,图片,标题,状态,草稿"), "column names are not translated"),
        (saved("nonsense"), "does not begin with its header"),
        (saved("id,caption,status", f"{ONE},a,ok"), "lacks the column draft"),
        (saved("caption;status;draft", "a;ok;"), "lacks the column id"),
        (saved("id\tstatus\tdraft", f"{ONE}\tok\t"), "lacks the column caption"),
        (saved("id,note", f"{ONE},"), "lacks the column caption, status, draft"),
        (saved('id,caption,status,draft,"note', f"{ONE},a,ok,,"), "does not begin with its header"),
        (saved("id,caption,status,draft,caption"), "a column twice: caption"),
        (saved("id,caption,status,draft,mine,mine"), "a column twice: mine"),
        (saved("id,Caption,status,draft,CAPTION"), "a column twice: caption"),
        (b"\xef\xbb\xbfid,caption,status,draft\r\np1,caf\xe9,ok,\r\n", "cannot be read as utf-8"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(data, message):
    with pytest.raises(DataError, match=message) as caught:
        parse(data)
    assert "work/review.csv" in str(caught.value)
    assert "latentmill caption" in str(caught.value) or "delete or rename" in caught.value.fix


def test_blank_lines_before_the_header_do_no_harm_and_count_as_lines():
    with pytest.raises(DataError, match=r"line 4 \(id missing\)"):
        parse(saved(",,,", "", "id,caption,status,draft", ",a cat,ok,"))


FULL_WIDTH = "".join(chr(ord(letter) + 0xFEE0) for letter in "Ok")


@pytest.mark.parametrize(
    "word", ["ok", "OK", " Ok ", FULL_WIDTH, f"{FULL_WIDTH}\u3000", "ok\xa0", "\ufeffok\u200b"]
)
def test_a_status_is_understood_however_it_is_typed(word):
    assert parse(saved(header(), f'{ONE},c.png,a cat,"{word}",file,,,,,'))[0].status == "ok"


@pytest.mark.parametrize("word", ["", "okay", "o k", "done", "好", "TRUE"])
def test_an_unknown_status_is_named_with_line_and_id(word):
    with pytest.raises(DataError) as caught:
        parse(saved(header(), f"{ONE},c.png,a cat,{word},file,,,,,"))
    assert f"line 2 (id {ONE}): status '{word}' is none of draft, check, ok, skip" in str(
        caught.value
    )


def test_nul_is_taken_out_and_the_row_named():
    lines = [f"{ONE},c.png,a \0cat\0,o\0k,file,,,,,", f"{TWO},d.png,a dog,ok,file,,,,,"]
    read = read_saved(saved(header(), *lines), "work/review.csv")
    assert [(row.caption, row.status) for row in read.rows] == [("a cat", "ok"), ("a dog", "ok")]
    assert read.cleaned == (ONE,)


def test_text_in_a_column_without_a_name_is_not_lost_in_silence():
    data = saved("id,caption,status,draft,", f"{ONE},a cat,ok,,my thoughts", f"{TWO},a dog,ok,,")
    with pytest.raises(
        DataError, match=r"line 2 .*'my thoughts' stands in a column without a name"
    ):
        parse(data)


WHOLE = format_review(
    ReviewRow(f"p{n:015x}", f"{n}.png", f'a cat, "big", number {n}\n猫', "ok", note="mine")
    for n in range(3)
)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_cut_anywhere_gives_no_half_row(encoding):
    data = WHOLE.decode("utf-8-sig").encode(encoding)
    whole = parse(WHOLE)
    for end in range(len(data)):
        try:
            read = read_saved(data[:end], "work/review.csv")
        except DataError as error:
            assert "work/review.csv" in error.where
            continue
        rows = list(read.rows)
        if read.open_end is None:
            assert rows == whole[: len(rows)]
        else:  # Only the last cell of a row can be short, and then it is handed on as such.
            assert rows[:-1] == whole[: len(rows) - 1]
            last = whole[len(rows) - 1]
            assert rows[-1] == replace(last, note=read.open_end.text)
            assert read.open_end == LastCell(last.id, "note", "mine"[: len(read.open_end.text)])


@pytest.mark.parametrize(
    ("end", "where"),
    [
        (f"{TWO},d.png,a d", r"line 3 \(id p000000000000002\): the file ends in the middle"),
        (f"{TWO},d.png,a dog,ok", "the file ends in the middle"),
        (f"{TWO},d.png,a dog,ok,file,,,,", "the file ends in the middle"),
        ("p0000", r"line 3 \(id p0000\): the file ends in the middle"),
        (f'{TWO},d.png,"a dog, r', r"line 3 \(id p000000000000002\): a quotation mark without"),
        (f"{TWO},d.png,a dog,ok,file,,,,,\0\0", "the file ends in the middle"),
    ],
)
def test_a_file_that_ends_in_mid_row_is_damaged(end, where):
    data = saved(header(), f"{ONE},c.png,a cat,ok,file,,,,,", end)[:-2]
    with pytest.raises(DataError, match=where) as caught:
        parse(data)
    assert "review.csv is damaged" in caught.value.what
    assert "nothing was taken over" in caught.value.expected


def test_a_whole_file_without_a_last_line_end_is_read():
    data = saved(header(), f"{ONE},c.png,a cat,ok,file,,,,,mine")[:-2]
    read = read_saved(data, "work/review.csv")
    assert read.open_end == LastCell(ONE, "note", "mine")
    assert read.rows[0].note == "mine"


DIALECTS = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from(",;\t"),
        "quotes_all": st.booleans(),
        "line_end": st.sampled_from(["\r\n", "\n"]),
        "encoding": st.sampled_from(["utf-8-sig", "utf-8", "utf-16"]),
        "sep": st.booleans(),
        "guards": st.sampled_from(["kept", "removed", "doubled"]),
        "columns": st.permutations([*COLUMNS, "mine"]),
        "seed": st.integers(0, 5),
    }
)


def spreadsheet(data, dialect):
    """The file opened and saved again by a spreadsheet program."""
    names, *rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    rows = [dict(zip(names, cells, strict=True)) | {"mine": "5"} for cells in rows]
    Random(dialect["seed"]).shuffle(rows)
    sign = dialect["delimiter"]
    lines = [f"sep={sign}"] if dialect["sep"] else []
    for row in [{name: name for name in dialect["columns"]}, *rows]:
        cells = [guarded(row[name], dialect["guards"]) for name in dialect["columns"]]
        lines.append(sign.join(quoted(cell, sign, dialect["quotes_all"]) for cell in cells))
    return "".join(line + dialect["line_end"] for line in lines).encode(dialect["encoding"])


def quoted(cell, delimiter, always):
    needed = always or any(sign in cell for sign in f'{delimiter}"\r\n')
    return '"' + cell.replace('"', '""') + '"' if needed else cell


def guarded(cell, guards):
    if not re.match(r"'[=+\-@\t\r\n]", cell):
        return cell
    return {"kept": cell, "removed": cell[1:], "doubled": f"'{cell}"}[guards]


@given(st.lists(st.tuples(TEXTS | FORMULAS, TEXTS), min_size=1, max_size=4), DIALECTS)
def test_any_text_survives_any_spreadsheet(texts, dialect):
    rows = [
        ReviewRow(f"p{n:015x}", f"{n}.png", caption, "ok", note=note)
        for n, (caption, note) in enumerate(texts)
    ]
    known = {row.id: [row.caption, row.note] for row in rows}
    encoding = "auto" if dialect["encoding"] != "utf-8" else "utf-8"
    read = parse(spreadsheet(format_review(rows), dialect), known=known, encoding=encoding)
    found = {row.id: row for row in read}
    assert sorted(found) == [row.id for row in rows]
    for row in rows:
        assert same_text(found[row.id].caption, row.caption)
        assert same_text(found[row.id].note, row.note)
        if dialect["guards"] == "kept":
            assert found[row.id].caption == row.caption
        assert (found[row.id].status, found[row.id].extra) == ("ok", (("mine", "5"),))
