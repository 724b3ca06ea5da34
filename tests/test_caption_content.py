import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.caption_content import (
    clean_caption,
    is_file_name,
    underscored,
)
from latentmill.datasets.generic_captions import is_generic

TAGS = "1girl, 红色连衣裙, 长发, 微笑, 户外"


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
        ("\u200b\u3000\u200e", None, ("caption-invisible-characters", "caption-empty")[1:]),
        ("a\u200b cat\u00a0sits\u202e", "a cat sits", ("caption-invisible-characters",)),
        ("1girl，长发。", "1girl，长发。", ()),
        ("\u201ca cat\u2019s toy\u201d", "\u201ca cat\u2019s toy\u201d", ()),
        ("a family 👩\u200d👩\u200d👧", "a family 👩\u200d👩\u200d👧", ()),
        ("می\u200cخواهم گربه", "می\u200cخواهم گربه", ()),
        ("cats &amp; dogs", "cats &amp; dogs", ("caption-html",)),
        ("a cat<br/>a dog", "a cat<br/>a dog", ("caption-html",)),
        ("a <3 b & c", "a <3 b & c", ()),
        ("a (red:1.3) hat", "a (red:1.3) hat", ("caption-prompt-weights",)),
        ("((best quality)), hat", "((best quality)), hat", ("caption-prompt-weights",)),
        ("a hat (red)", "a hat (red)", ()),
        ("saber \\(fate\\), 16:9", "saber \\(fate\\), 16:9", ()),
        ("a hat <lora:hat_v2:0.8>", "a hat <lora:hat_v2:0.8>", ("caption-lora-tag",)),
        ("a hat", "a hat", ()),
        ("a photo", "a photo", ("caption-generic",)),
        ("图片", "图片", ("caption-generic",)),
        ("a person", "a person", ("caption-generic",)),
        ("a person in a park", "a person in a park", ()),
        ('{"tags": ["a"]}', '{"tags": ["a"]}', ("caption-is-data",)),
        ("001.png,a cat,0.98", "001.png,a cat,0.98", ("caption-is-data",)),
        ("| a.png | a cat |", "| a.png | a cat |", ("caption-is-data",)),
        ("{a|b} cat", "{a|b} cat", ()),
        ("<annotation><object>cat</object></annotation>",) * 2 + (("caption-is-data",),),
        ("<?xml version='1.0'?><x>1</x>",) * 2 + (("caption-is-data",),),
        (r"{\rtf1\ansi a cat}", r"{\rtf1\ansi a cat}", ("caption-is-data",)),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9",
            "version https://git-lfs.github.com/spec/v1, oid sha256:ab, size 9",
            ("caption-multiline", "caption-is-data"),
        ),
        ("...", "...", ("caption-generic",)),
        (", , ,", ", , ,", ("caption-generic",)),
        (
            "a cat\nNegative prompt: blurry\nSteps: 20, Sampler: Euler a, CFG scale: 7",
            "a cat, Negative prompt: blurry, Steps: 20, Sampler: Euler a, CFG scale: 7",
            ("caption-multiline", "caption-web-ui-parameters"),
        ),
        ("steps: a stone staircase", "steps: a stone staircase", ()),
    ],
)
def test_a_caption_becomes_one_clean_line(
    raw: str, text: str | None, codes: tuple[str, ...]
) -> None:
    caption = clean_caption(raw)
    assert (caption.text, caption.codes) == (text, codes)
    assert caption.checks == ()


def test_messages_show_the_evidence() -> None:
    found = {one.code: one.message for one in clean_caption("a\u200b\x07 (b:1.2) &amp;\nc").doubts}
    assert (
        '2 lines, joined with commas: "a (b:1.2) &amp;" and "c"'.replace("a ", "a\u200b\x07 ")
        in (found["caption-multiline"])
    )
    assert found["caption-control-characters"] == "Taken out: U+0007"
    assert "zero width space" in found["caption-invisible-characters"]
    assert '"(b:1.2)"' in found["caption-prompt-weights"]
    assert 'reads as "a (b:1.2) &, c"' in found["caption-html"]


def misread(text: str, name: str, right: str = "utf-8") -> str:
    return text.encode(right).decode(name, "ignore")


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("a c\ufffdt", "caption-replacement-character"),
        ("a caf\u00c3\u00a9", "caption-mojibake"),
        ("a cat\u00e2\u20ac\u2122s toy", "caption-mojibake"),
        (misread("猫", "latin-1"), "caption-mojibake"),
        (misread("长发, 微笑", "latin-1"), "caption-mojibake"),
        ("РєРѕС‚ РЅР° РѕРєРЅРµ", "caption-mojibake"),
        (misread("长发", "gb18030"), "caption-mojibake"),
        (misread("微笑的女孩", "gb18030"), "caption-mojibake"),
        ("ca" + misread("fé", "gb18030"), "caption-mojibake"),
        (misread("長い髪の少女", "cp932"), "caption-mojibake"),
        (misread(misread("café", "latin-1"), "latin-1"), "caption-mojibake"),
        ("锟斤拷, 1girl", "caption-mojibake"),
        ("烫烫烫烫", "caption-mojibake"),
        ("1girl, ????, ??", "caption-mojibake"),
        ("??? ??", "caption-mojibake"),
    ],
)
def test_text_that_was_damaged_before_is_questioned(text: str, check: str) -> None:
    (found,) = clean_caption(text).checks
    assert found.code == check
    assert found.message


def test_the_message_shows_what_the_text_was() -> None:
    (found,) = clean_caption("a caf\u00c3\u00a9").checks
    assert found.message == '"a caf\u00c3\u00a9": was UTF-8, read as cp1252: a café'


@pytest.mark.parametrize(
    "text",
    [
        *("what is this??", "a café", TAGS, "猫", "Ærø", "naïve «été»", "кот", "what???", "cat猫"),
        *(
            "紅色連衣裙, 長髮",
            "赤いドレス",
            "빨간 드레스",
            "Ünüvar Ñandú",
            "5°, 3×4 µm",
            "São Paulo",
        ),
        *("è", "Ã", "lumière d'été", "smörgåsbord", "Ђуро", "T恤", "a 猫 and a dog"),
    ],
)
def test_good_text_is_not_questioned(text: str) -> None:
    assert clean_caption(text).checks == ()


@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    once = clean_caption(text).text
    if once is not None:
        assert clean_caption(once).text == once
        assert "\n" not in once


@pytest.mark.parametrize(
    ("text", "name", "same"),
    [
        ("IMG_1234", "sub/IMG_1234.png", True),
        ("img 1234.png", "IMG_1234.png", True),
        ("my dog", "my-dog.jpg", True),
        ("my dog runs", "my-dog.jpg", False),
        ("猫", "猫.png", True),
        ("a cat", "...png", False),
    ],
)
def test_a_caption_that_is_only_the_file_name(text: str, name: str, same: bool) -> None:
    assert is_file_name(text, name) is same


@pytest.mark.parametrize(
    ("text", "generic"),
    [
        ("an image of a person", True),
        ("A photo.", True),
        ("一个人", False),
        ("女孩", True),
        ("a woman with red hair", False),
        ("!!!", False),
    ],
)
def test_words_that_fit_any_picture(text: str, generic: bool) -> None:
    assert is_generic(text) is generic


def test_tags_joined_by_underscores() -> None:
    assert underscored("long_hair, blue eyes, hat_(red), a/b_c.png") == ["long_hair", "hat_(red)"]
