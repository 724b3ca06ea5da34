import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import (
    COLUMNS,
    LONGEST_CELL,
    ReviewRow,
    format_review,
    parse_review,
    same_text,
)

ONE = "p000000000000001"
TWO = "p000000000000002"


def row(identity=ONE, caption="a cat", status="ok", **more):
    return ReviewRow(identity, "cat.png", caption, status, **more)


def saved(*lines, encoding="utf-8-sig", end="\r\n"):
    return (end.join(lines) + end).encode(encoding)


def parse(data, **more):
    return parse_review(data, "work/review.csv", **more)


def header(delimiter=","):
    return delimiter.join(COLUMNS)


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


@given(st.lists(st.tuples(TEXTS | FORMULAS, TEXTS | FORMULAS, TEXTS), max_size=5))
def test_any_unicode_text_comes_back_as_it_was(texts):
    rows = [
        row(f"p{number:015x}", caption, "draft", draft=draft, note=note, extra=(("mine", note),))
        for number, (caption, draft, note) in enumerate(texts)
    ]
    assert parse(format_review(rows)) == rows


@given(TEXTS | FORMULAS)
def test_no_cell_begins_as_a_formula(text):
    cells = list(csv.reader(io.StringIO(format_review([row(caption=text)]).decode("utf-8-sig"))))
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells[1])


def test_a_lone_surrogate_is_shown_and_does_not_stop_the_file():
    assert b"caf\\udce9.png" in format_review([ReviewRow(ONE, "caf\udce9.png", "a", "ok")])


@pytest.mark.parametrize(
    ("cell", "caption"),
    [("'=1+1", "=1+1"), ("=1+1", "=1+1"), ("'quoted'", "'quoted'"), ("''=1", "'=1")],
)
def test_only_our_own_apostrophe_is_taken_away(cell, caption):
    assert parse(saved(header(), f"{ONE},c.png,{cell},ok,file,,,,,"))[0].caption == caption


@pytest.mark.parametrize("cell", ["'=1+1", "=1+1", "''=1+1"])
def test_an_apostrophe_that_a_spreadsheet_takes_or_doubles_is_no_edit(cell):
    assert same_text(cell, "=1+1")


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
        (saved(f"{ONE},c.png,a cat,ok,file,,,,,"), "does not begin with its header"),
        (saved("id,caption,status"), "does not begin with its header"),
        (saved('id,caption,status,draft,"note', f"{ONE},a,ok,,"), "does not begin with its header"),
        (saved("id,caption,status,draft,caption"), "a column twice: caption"),
        (b"\xef\xbb\xbfid,caption,status,draft\r\np1,caf\xe9,ok,\r\n", "cannot be read as utf-8"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        parse(data)


@pytest.mark.parametrize(
    ("encoding", "known", "edited"),
    [
        ("gb18030", "一只红色的猫", "一只黑色的狗"),
        ("cp1252", "un café à Paris", "une forêt près de Zürich"),
        ("big5", "一隻紅色的貓", "一隻黑色的狗"),
        ("cp932", "赤い猫", "黒い犬"),
        ("mac_roman", "un café à Paris", "une forêt"),
    ],
)
def test_the_encoding_is_proven_by_the_texts_that_we_wrote(encoding, known, edited):
    lines = [header(), f"{ONE},a.png,{known},ok,file,,,,,", f"{TWO},b.png,{edited},ok,file,,,,,"]
    rows = parse(saved(*lines, encoding=encoding), known=["a cat", known])
    assert [r.caption for r in rows] == [known, edited]


def test_an_encoding_that_nothing_proves_is_asked_for_and_then_believed():
    data = saved(header(), f"{ONE},a.png,一只猫,ok,file,,,,,", encoding="gb18030")
    with pytest.raises(DataError, match=r"nothing in review.csv proves") as caught:
        parse(data, known=["a cat"])
    assert "line 2: as gb18030" in str(caught.value)
    assert "--set caption.review_encoding=gb18030" in str(caught.value)
    assert parse(data, encoding="gb18030")[0].caption == "一只猫"
    assert parse(saved(header(), encoding="utf-8"), encoding="gb18030") == []
    for name in ("klingon", "base64", "idna"):
        with pytest.raises(DataError, match=f"cannot be read as {name}"):
            parse(data, encoding=name)


def test_gbk_that_happens_to_be_valid_utf8_is_not_taken_for_it():
    data = saved(header(), f"{ONE},a.png,一猫雪山,ok,file,,,,,", encoding="gb18030")
    data.decode("utf-8")
    assert parse(data, known=["一猫雪山"])[0].caption == "一猫雪山"


@pytest.mark.parametrize("caption", ["un café à Paris", "красный кот", "γάτα", "一只猫"])
def test_utf8_without_its_mark_is_read_when_it_reads_as_a_language(caption):
    data = saved(header(), f"{ONE},a.png,{caption},ok,file,,,,,", encoding="utf-8")
    assert parse(data, known=["a cat"])[0].caption == caption


def test_a_caption_too_long_for_a_spreadsheet_is_not_written():
    with pytest.raises(DataError, match=rf"row {ONE}: a cell of 32,768 characters"):
        format_review([row(caption="x" * (LONGEST_CELL + 1))])
    format_review([row(caption="x" * LONGEST_CELL)])
