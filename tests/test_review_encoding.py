import pytest

from latentmill.datasets.errors import DataError
from latentmill.datasets.review import COLUMNS
from latentmill.datasets.review_encoding import decode_review

ONE, TWO = "p000000000000001", "p000000000000002"


def table(*captions, first=1):
    rows = [f"p{n:015x},{n}.png,{text},ok,file,,,,," for n, text in enumerate(captions, first)]
    return "\r\n".join([",".join(COLUMNS), *rows, ""])


def decode(data, known=None, encoding="auto"):
    return decode_review(data, "work/review.csv", known or {}, encoding)


def asked(data, known=None):
    with pytest.raises(DataError, match=r"nothing in review\.csv proves") as caught:
        decode(data, known)
    return str(caught.value)


PROVEN = [
    ("gb18030", "一只红色的猫", "一只黑色的狗"),
    ("cp1252", "un café à Paris", "une forêt près de Zürich"),
    ("cp1250", "kočka na střeše", "pes v trávě"),
    ("cp1251", "красный кот", "чёрная собака"),
    ("cp1253", "κόκκινη γάτα", "μαύρος σκύλος"),
    ("cp1254", "büyük ağaç", "şişman köpek"),
    ("big5", "一隻紅色的貓", "一隻黑色的狗"),
    ("cp932", "赤い猫", "黒い犬"),
    ("cp949", "빨간 고양이", "검은 개"),
    ("mac_roman", "un café à Paris", "une forêt"),
]


@pytest.mark.parametrize(("encoding", "before", "edited"), PROVEN)
def test_a_row_that_still_says_what_it_said_proves_the_encoding(encoding, before, edited):
    text = table(before, edited)
    assert decode(text.encode(encoding), {ONE: [before], TWO: ["a cat"]}) == text


@pytest.mark.parametrize(("encoding", "before", "edited"), PROVEN)
def test_a_note_or_a_file_name_proves_it_as_well(encoding, before, edited):
    text = table(edited, edited).replace("1.png", f"{before}.png")
    assert decode(text.encode(encoding), {ONE: ["a cat", f"{before}.png"]}) == text


def test_quotes_and_line_breaks_inside_a_text_hide_no_proof():
    text = table('"ein ""großer"" Hund\nim Wald"', "Übung")
    assert decode(text.encode("cp1252"), {ONE: ['ein "großer" Hund\nim Wald']}) == text


def test_a_text_in_another_row_proves_nothing():
    asked(table("猫", "狗").encode("gb18030"), {ONE: ["狗"], TWO: ["猫"]})


def test_most_unchanged_rows_decide_against_one_accident():
    text = table("猫", "红色的狗", "黑色的狗")
    data = text.encode("gb18030")
    as_cp1251 = data.decode("cp1251").split("\r\n")[1].split(",")[2]
    known = {ONE: [as_cp1251], TWO: ["红色的狗"], "p000000000000003": ["黑色的狗"]}
    assert decode(data, known) == text


def test_gbk_that_happens_to_be_valid_utf8_is_not_taken_for_it():
    data = table("一猫雪山").encode("gb18030")
    data.decode("utf-8")
    assert decode(data, {ONE: ["一猫雪山"]}) == table("一猫雪山")
    assert "as utf-8: line 2" in asked(data)
    assert "as gb18030: line 2" in asked(data)


@pytest.mark.parametrize("caption", ["un café à Paris", "красный кот", "γάτα", "一只猫"])
def test_utf8_without_its_mark_is_read_when_it_reads_as_a_language(caption):
    assert decode(table(caption).encode()) == table(caption)


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii"]
)
def test_marks_and_utf16_without_a_mark_need_no_proof(encoding):
    text = table("a cat" if encoding == "ascii" else "一只猫")
    assert decode(text.encode(encoding), {ONE: ["une forêt"]}) == text


@pytest.mark.parametrize(
    ("encoding", "first", "second"),
    [
        ("gb18030", "穿红色连衣裙的女孩", "在森林里的小狗"),
        ("big5", "穿紅色連衣裙的女孩", "在森林裡的小狗"),
        ("cp932", "赤いドレスの女の子", "森の中の犬"),
        ("cp949", "빨간 옷을 입은 여자", "숲속의 개"),
        ("cp1252", "une forêt près de Zürich", "ein Mädchen im Grünen"),
        ("cp1251", "девушка в красном платье", "собака в лесу"),
    ],
)
def test_what_nothing_proves_is_asked_with_two_rows_read_each_way(encoding, first, second):
    data = table(first, "a cat", second).encode(encoding)
    message = asked(data, {ONE: ["a dog"], TWO: ["a cat"]})
    named = {"big5": "big5hkscs"}.get(encoding, encoding)
    assert message.index(f"--set caption.review_encoding={named}") == message.index("--set")
    assert f"as {named}: line 2" in message
    assert first in message
    assert second in message
    assert "utf-8" not in message.replace("CSV UTF-8", "")
    assert decode(data, encoding=encoding) == table(first, "a cat", second)


def test_only_encodings_in_which_the_whole_file_decodes_are_offered():
    message = asked(table("一只猫").encode("gb18030").replace(b",ok", b"\xff,ok"))
    assert "as cp1251: line 2" in message
    assert "gb18030" not in message
    assert "utf-8:" not in message


def test_a_moved_id_column_hides_no_proof():
    text = f"caption,status,draft,id\r\n猫,ok,,{ONE}\r\n狗,ok,,{TWO}\r\n"
    assert decode(text.encode("gb18030"), {ONE: ["猫"], TWO: ["a cat"]}) == text


def test_a_named_encoding_is_believed_and_an_unknown_one_refused():
    data = table("一只猫").encode("gb18030")
    assert decode(data, encoding="gbk") == table("一只猫")
    assert decode(table("a cat").encode(), encoding="gb18030") == table("a cat")
    for name in ("klingon", "base64", "idna", "ascii"):
        with pytest.raises(DataError, match=f"cannot be read as {name}"):
            decode(data, encoding=name)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030", "cp932"])
def test_a_file_cut_in_the_middle_of_a_character_ends_in_nul(encoding):
    data = "id,caption\r\n1,赤い猫".encode(encoding)[:-1]
    assert decode(data, encoding=encoding) == "id,caption\r\n1,赤い\0"
