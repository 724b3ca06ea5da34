import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.captions import clean_caption, read_texts
from latentmill.datasets.encodings import decide

TAGS = "1girl, 红色连衣裙, 长发, 微笑, 户外"


def read_one(data: bytes, encoding: str = "auto") -> tuple[str, str, str]:
    reading = read_texts({"a.txt": data}, encoding)["a.txt"]
    return reading.text, reading.encoding, reading.check


@pytest.mark.parametrize(
    ("mark", "encoding", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32"),
    ],
)
def test_a_byte_order_mark_decides(mark: bytes, encoding: str, name: str) -> None:
    assert read_one(mark + TAGS.encode(encoding)) == (TAGS, name, "")


@pytest.mark.parametrize(
    "text", [TAGS, "a café", "a cat 🐈", "кот", "long ascii " * 20 + "é", "猫"]
)
def test_utf8_is_taken_as_it_is(text: str) -> None:
    assert read_one(text.encode()) == (text, "utf-8", "")


def test_ascii_needs_no_question() -> None:
    assert read_one(b"a cat") == ("a cat", "ascii", "")
    assert read_one(b"") == ("", "ascii", "")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (TAGS, "gb18030"),
        ("紅色連衣裙, 長髮, 微笑, 戶外, 一個女孩", "big5hkscs"),
        ("赤いドレス, 長い髪, 笑顔, 屋外の女の子", "cp932"),
        ("빨간 드레스, 긴 머리, 미소, 야외, 소녀", "cp949"),
        ("красное платье, длинные волосы, улыбка", "cp1251"),
        ("fille à la robe rouge, forêt enneigée, café, lumière d'été", "cp1252"),
    ],
)
def test_legacy_captions_get_their_best_reading_and_a_question(text: str, encoding: str) -> None:
    read, name, check = read_one(text.encode(encoding))
    assert (read, name) == (text, encoding)
    assert check in {"encoding-guessed", "encoding-unsure"}


def test_a_folder_of_short_captions_decides_together() -> None:
    words = ["红色", "长发", "连衣裙", "户外", "女孩", "樱花", "夜晚", "城市", "蓝色眼睛"]
    readings = read_texts({word: word.encode("gbk") for word in words})
    assert [readings[word].text for word in words] == words
    assert {readings[word].check for word in words} == {"encoding-guessed"}


@pytest.mark.parametrize("word", ["猫", "微笑", "雪山"])
def test_gbk_that_is_valid_utf8_is_caught_by_its_neighbours(word: str) -> None:
    files = {"a": TAGS.encode("gbk"), "b": word.encode("gbk"), "c": b"a dog"}
    readings = read_texts(files)
    assert readings["b"].text == word
    assert readings["b"].check == "encoding-double-meaning"
    assert readings["c"].check == ""


@pytest.mark.parametrize("word", ["猫", "微笑", "雪山"])
def test_two_alphabets_in_a_word_or_a_lone_accent_are_questioned_alone(word: str) -> None:
    assert read_one(word.encode("gbk")) == (word, "gb18030", "encoding-double-meaning")


def test_an_accent_inside_a_latin_word_stays_the_best_reading() -> None:
    readings = read_texts({"a": TAGS.encode("gbk"), "b": "a café".encode()})
    assert readings["b"].text == "a café"


def test_a_lone_windows_apostrophe_is_read_as_one() -> None:
    text, encoding, check = read_one(b"a cat\x92s toy")
    assert (text, encoding, check) == ("a cat\u2019s toy", "cp1252", "encoding-guessed")


def test_utf16_without_a_mark_is_asked_not_trained_on_with_nuls() -> None:
    assert read_one("a cat".encode("utf-16-le"))[::2] == ("a cat", "encoding-guessed")
    assert read_one("a cat".encode("utf-16-be"))[::2] == ("a cat", "encoding-guessed")


def test_the_encoding_setting_settles_without_a_question() -> None:
    files = {"a": TAGS.encode("gbk"), "b": "猫".encode("gbk"), "c": "户外🐈".encode()}
    readings = read_texts(files, "gb18030")
    assert [readings[name].text for name in "abc"] == [TAGS, "猫", "户外🐈"]
    assert {reading.check for reading in readings.values()} == {""}


def test_bytes_that_fit_nothing_lose_no_other_caption() -> None:
    text, _, check = read_one(b"\xff\xfe\x00")
    assert check == "encoding-unsure"
    assert "\ufffd" in text


def test_undecided_readings_are_shown_side_by_side() -> None:
    reading = read_texts({"a": "中".encode("gbk")})["a"]
    assert reading.check == "encoding-unsure"
    assert reading.message.count('"') >= 4


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_read_as_something_and_never_silently_guessed(contents: list[bytes]) -> None:
    files = {str(position): data for position, data in enumerate(contents)}
    for path, reading in read_texts(files).items():
        certain = reading.encoding in {"ascii", "utf-8", "utf-8-sig", "utf-16", "utf-32"}
        assert certain or reading.check, files[path]
        clean_caption(reading.text)


def test_the_decision_does_not_depend_on_the_number_of_files() -> None:
    few = decide([TAGS.encode("gbk")] * 3)
    many = decide([TAGS.encode("gbk")] * 1000)
    assert few.encoding == many.encoding == "gb18030"
    assert few.is_likely


@pytest.mark.parametrize(
    ("raw", "text", "codes"),
    [
        ("a cat\r\n", "a cat", ()),
        ("\ufeffa cat ", "a cat", ()),
        ("a cat\non a mat\n\n", "a cat, on a mat", ("caption-multiline",)),
        ("a cat,\r\non a mat", "a cat, on a mat", ("caption-multiline",)),
        ("a\u2028b\x0bc\x85d", "a, b, c, d", ("caption-multiline",)),
        ("a cat\x00\x07", "a cat", ("caption-control-characters",)),
        ("a\tcat", "a cat", ()),
        ("", None, ("caption-empty",)),
        (" \r\n\t\n", None, ("caption-empty",)),
        ("\x00\x00", None, ("caption-empty",)),
        ("(series:1.2) \\(x\\) a, b", "(series:1.2) \\(x\\) a, b", ()),
    ],
)
def test_a_caption_becomes_one_clean_line(
    raw: str, text: str | None, codes: tuple[str, ...]
) -> None:
    caption = clean_caption(raw)
    assert (caption.text, caption.codes) == (text, codes)
    assert caption.checks == ()


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("a c\ufffdt", "caption-replacement-character"),
        ("a caf\u00c3\u00a9", "caption-mojibake"),
        ("a cat\u00e2\u20ac\u2122s toy", "caption-mojibake"),
        ("猫".encode().decode("latin-1"), "caption-mojibake"),
        ("кот на окне".encode().decode("cp1251", "ignore")[:2], "caption-mojibake"),
        ("长发".encode().decode("gb18030"), "caption-mojibake"),
        ("锟斤拷, 1girl", "caption-mojibake"),
        ("1girl, ????, ??", "caption-mojibake"),
    ],
)
def test_text_that_was_damaged_before_is_questioned(text: str, check: str) -> None:
    assert clean_caption(text).checks == (check,)


@pytest.mark.parametrize(
    "text", ["what is this??", "a café", TAGS, "猫", "Ærø", "naïve «été»", "кот"]
)
def test_good_text_is_not_questioned(text: str) -> None:
    assert clean_caption(text).checks == ()


def test_cleaning_twice_changes_nothing() -> None:
    once = clean_caption("a,\n\x07b\r\n c")
    assert once.text is not None
    assert clean_caption(once.text).text == once.text
