import codecs
import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.captions import read_texts
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
def test_a_caption_of_some_words_is_read_by_itself_and_told(text: str, encoding: str) -> None:
    reading = read_texts({"a.txt": text.encode(encoding)})["a.txt"]
    assert (reading.text, reading.encoding, reading.check) == (text, encoding, "")
    assert (reading.code, reading.step) == ("encoding-guessed", "folder")
    assert "odds" in reading.message


def test_a_folder_of_short_captions_decides_together() -> None:
    words = ["红色", "长发", "连衣裙", "户外", "女孩", "樱花", "夜晚", "城市", "蓝色眼睛"]
    readings = read_texts({word: word.encode("gbk") for word in words})
    assert [readings[word].text for word in words] == words
    assert {(readings[word].check, readings[word].code) for word in words} == {
        ("", "encoding-guessed")
    }


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
    reading = read_texts({"a": b"a cat\x92s toy"})["a"]
    assert (reading.text, reading.encoding) == ("a cat\u2019s toy", "cp1252")
    assert (reading.check, reading.code, reading.step) == ("", "encoding-guessed", "bytes")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["a cat", TAGS, "чёрный кот", "빨간 드레스, 소녀"])
def test_utf16_without_a_mark_is_read(text: str, encoding: str) -> None:
    reading = read_texts({"a": text.encode(encoding)})["a"]
    assert (reading.text, reading.encoding) == (text, encoding)
    assert (reading.check, reading.code) == ("", "encoding-guessed")


@pytest.mark.parametrize("text", ["a cat", "cat", "my cat", "a cat, a dog", "1girl"])
@pytest.mark.parametrize("num_nuls", [1, 2, 3, 4])
def test_words_with_nuls_behind_them_are_words(text: str, num_nuls: int) -> None:
    data = text.encode() + bytes(num_nuls)
    assert read_one(data) == (data.decode(), "ascii", "")


@pytest.mark.parametrize(
    "text", ["a café in Paris", "Café", "niño feliz", "schöne Straße, größer", "крайний лес", "й"]
)
def test_accents_apart_from_their_letters_as_macos_has_them_are_utf8(text: str) -> None:
    apart = unicodedata.normalize("NFD", text)
    assert apart != text
    assert read_one(apart.encode()) == (apart, "utf-8", "")


@pytest.mark.parametrize("word", ["女", "中", "山", "猫", "水"])
def test_one_character_in_utf16_that_looks_like_ascii_is_asked(word: str) -> None:
    data = word.encode("utf-16-le")
    assert data.isascii()
    assert read_one(data)[::2] == (word, "encoding-double-meaning")


@pytest.mark.parametrize(
    "word", ["ok", "cats", "HD", "1boy", "3D", "girl", "photograph", "a cat\x00", "NSFW", "b&w art"]
)
def test_short_ascii_stays_ascii(word: str) -> None:
    assert read_one(word.encode()) == (word, "ascii", "")


@pytest.mark.parametrize(
    "text",
    [
        "über",
        "caña",
        "naïve café",
        "שלום",
        "قطة",
        "γάτα",
        "кот",
        "5°, 3×4 µm",
        "Ærø",
        "¿qué?",
        "ça",
    ],
)
def test_short_utf8_stays_utf8(text: str) -> None:
    assert read_one(text.encode()) == (text, "utf-8", "")


def test_a_mixed_folder_drags_no_reading_over_all() -> None:
    chinese = ["长发, 微笑, 蓝眼睛", "红色连衣裙, 户外", "一个女孩, 樱花, 夜晚", "城市, 街道, 雪天"]
    other = "長髮, 微笑, 藍眼睛, 紅色連衣裙"
    files = {text: text.encode("gbk") for text in chinese}
    files |= {other: other.encode("big5"), "élève": "forêt enneigée, élève".encode("cp1252")}
    readings = read_texts(files)
    assert {readings[text].text for text in chinese} == set(chinese)
    for name, text in ((other, other), ("élève", "forêt enneigée, élève")):
        assert readings[name].text == text or readings[name].check


def test_a_text_in_no_known_language_is_asked() -> None:
    words = ["ხე", "კატა", "ძაღლი", "მზე", "ზღვა", "ქალაქი"]
    shifted = [bytes(ord(char) - 0x10D0 + 0xC0 for char in word) for word in words]
    readings = read_texts({str(number): data for number, data in enumerate(shifted)})
    assert all(reading.check for reading in readings.values())


def test_what_does_not_fit_the_encoding_that_was_set_is_asked() -> None:
    reading = read_texts({"a": "ö\xff, hübsch".encode("latin-1")}, "shift_jis")["a"]
    assert reading.check == "encoding-unsure"
    assert "shift_jis, as was set" in reading.message


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
        assert certain or reading.check or reading.code, files[path]
        assert reading.code or reading.step in {"mark", "utf-8"} or reading.check


def test_many_files_are_decided_as_few_are() -> None:
    words = [
        "红色",
        "长发",
        "连衣裙",
        "户外",
        "女孩",
        "樱花",
        "夜晚",
        "城市",
        "蓝色眼睛",
        "山",
        "猫",
    ]
    texts = [", ".join(pair) for pair in itertools.permutations(words, 3)]
    assert len(texts) > 900
    readings = read_texts({text: text.encode("gbk") for text in texts})
    wrong = [text for text in texts if not readings[text].check and readings[text].text != text]
    asked = [text for text in texts if readings[text].check]
    assert (wrong, len(asked) < 5) == ([], True)


def test_equal_files_are_no_evidence_for_each_other() -> None:
    data = "中".encode("gbk")
    assert decide([data] * 100) == [decide([data])[0]] * 100
    assert not decide([data])[0].is_sure
