import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.metadata import may_be_table, read_table

PICTURES = ["a.png", "b.png", "sub/c.png", "é.png"]


def codes(path: str, text: str) -> list[str]:
    return [finding.code for finding in read_table(path, text, PICTURES).findings]


def test_json_lines_give_captions_relative_to_their_folder() -> None:
    text = (
        '{"file_name": "a.png", "text": "a cat, 猫"}\n\n{"file_name": "sub\\\\c.png", "text": "c"}'
    )
    table = read_table("metadata.jsonl", text, PICTURES)
    assert table.captions == {"a.png": "a cat, 猫", "sub/c.png": "c"}
    inner = read_table("sub/metadata.jsonl", '{"file_name": "./c.png", "text": "c"}', PICTURES)
    assert inner.captions == {"sub/c.png": "c"}
    assert table.findings == inner.findings == ()


def test_names_match_in_any_unicode_form() -> None:
    name = unicodedata.normalize("NFD", "é.png")
    line = json.dumps({"file_name": name, "text": "e"})
    assert read_table("metadata.jsonl", line, PICTURES).captions == {"é.png": "e"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [("file_name", "text"), ("filename", "prompt")])
@pytest.mark.parametrize("start", ["", "\ufeff", "sep=;\r\n"])
def test_the_header_decides_the_delimiter(
    delimiter: str, header: tuple[str, str], start: str
) -> None:
    rows = [delimiter.join(header), f'a.png{delimiter}"red, blue; green"', f"b.png{delimiter}b"]
    table = read_table("metadata.csv", start + "\r\n".join(rows), PICTURES)
    assert table.captions == {"a.png": "red, blue; green", "b.png": "b"}
    assert table.findings == ()


def test_other_columns_and_orders_are_fine() -> None:
    table = read_table("x.csv", "score,Prompt,FileName\n1,hello,a.png\n", PICTURES)
    assert table.captions == {"a.png": "hello"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_caption_that_holds_the_delimiter_unquoted_is_told_not_cut(delimiter: str) -> None:
    rows = [("file_name", "text"), ("a.png", "a cat", " on a mat"), ("b.png", "b", "", " ")]
    text = "\n".join(map(delimiter.join, rows))
    table = read_table("metadata.csv", text, PICTURES)
    assert table.captions == {"b.png": "b"}
    (finding,) = table.findings
    assert finding.code == "metadata-broken-row"
    assert finding.message.startswith("Line 2: 3 cells, but 2 columns")


def test_quoted_line_breaks_and_quotes_stay_in_the_caption() -> None:
    table = read_table("x.csv", 'filename,prompt\na.png,"two\nlines ""x"""\nb.png,b\n', PICTURES)
    assert table.captions == {"a.png": 'two\nlines "x"', "b.png": "b"}


@pytest.mark.parametrize(
    "text",
    [
        'filename,prompt\na.png,"open\nb.png,b\nsub/c.png,c\n',
        'filename,prompt\na.png,"open\nb.png,"b"\nsub/c.png,c\n',
    ],
)
def test_a_missing_quote_costs_its_own_row_only(text: str) -> None:
    table = read_table("x.csv", text, PICTURES)
    assert table.captions == {"b.png": "b", "sub/c.png": "c"}
    (finding,) = table.findings
    assert finding.code == "metadata-broken-row"
    assert finding.message.startswith("Line 2:")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"text": "x"}', "no `file_name`"),
        ('{"file_name": "a.png"}', "no `text`"),
        ('{"file_name": "a.png", "text": null}', "no `text`"),
    ],
)
def test_a_broken_json_line_is_named_by_its_number(line: str, said: str) -> None:
    text = f'{{"file_name": "b.png", "text": "b"}}\n{line}\n'
    table = read_table("metadata.jsonl", text, PICTURES)
    assert table.captions == {"b.png": "b"}
    (finding,) = table.findings
    assert finding.code == "metadata-broken-row"
    assert finding.message.startswith("Line 2:")
    assert said in finding.message


def test_rows_without_a_picture_and_repeated_rows_are_findings() -> None:
    text = "filename,prompt\na.png,1\ngone.png,2\na.png,3\n"
    assert codes("x.csv", text) == ["metadata-missing-picture", "metadata-repeated-row"]
    assert read_table("x.csv", text, PICTURES).captions == {"a.png": "1"}


def test_a_table_without_the_columns_says_which_it_wants() -> None:
    (finding,) = read_table("metadata.csv", "image;label\na;b\n", PICTURES).findings
    assert finding.code == "metadata-columns"
    assert "file_name" in finding.message
    assert "image;label" in finding.message
    assert codes("metadata.csv", "") == ["metadata-columns"]


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("metadata.jsonl", b"", True),
        ("sub/METADATA.csv", b"", True),
        ("tags.csv", b"filename,prompt\n", True),
        ("tags.csv", "filename\tprompt\n".encode("utf-16"), True),
        ("tags.csv", b"sep=,\nfilename,prompt\n", True),
        ("review.csv", b"id,image,caption,status\n", False),
        ("other.jsonl", b'{"file_name": 1}', False),
    ],
)
def test_tables_are_known_by_name_or_header(path: str, head: bytes, expected: bool) -> None:
    assert may_be_table(path, head) is expected


@given(st.text(max_size=200), st.sampled_from(["metadata.csv", "metadata.jsonl"]))
def test_any_text_is_read_without_raising(text: str, path: str) -> None:
    read_table(path, text, PICTURES)
    read_table(path, "filename,prompt\n" + text, PICTURES)
