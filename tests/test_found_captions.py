from pathlib import Path

import pytest

from latentmill.cache.clip_tokens import count_tokens, may_be_too_long, unread_part
from latentmill.datasets.records import Problem
from latentmill.datasets.sources import scan
from latentmill.pipeline.main import run
from latentmill.stages.checking.found_captions import SourceCaptions, find_captions

GBK = "1girl, 红色连衣裙, 长发, 微笑, 户外"


def captions_of(
    folder: Path, files: dict[str, bytes], encoding: str = "auto", trigger: str = ""
) -> SourceCaptions:
    """Write files beside `Dog.png` and `cat.png`, and read the captions."""
    folder.mkdir(exist_ok=True)
    for name in ("Dog.png", "cat.png"):
        (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return find_captions(scan(folder, 0), encoding, trigger)


def codes(problems: tuple[Problem, ...]) -> dict[str, str]:
    return {one.code: one.message for one in problems}


def test_a_file_that_comes_with_data_sets_is_no_orphan(tmp_path: Path) -> None:
    found = captions_of(tmp_path / "data", {"README.txt": b"x", "license.txt": b"x"})
    assert found.problems == ()
    assert found.unused == 2


def test_an_orphan_names_the_picture_that_it_is_meant_for(tmp_path: Path) -> None:
    found = captions_of(tmp_path / "data", {"dog .txt": b"a dog"})
    assert codes(found.problems)["caption-orphan"].endswith("is it meant for Dog.png?")


def test_marks_and_windows_line_ends_are_counted_once_for_all(tmp_path: Path) -> None:
    files = {"Dog.txt": b"\xef\xbb\xbfa dog\r\n", "cat.txt": b"a cat\r\n"}
    found = captions_of(tmp_path / "data", files)
    assert found.by_picture["Dog.png"].text == "a dog"
    assert codes(found.problems) == {
        "captions-with-mark": "1 of 2 caption files, such as Dog.txt",
        "captions-with-crlf": "2 of 2 caption files, such as Dog.txt",
    }


def test_a_picture_named_as_a_caption_is_no_text(tmp_path: Path) -> None:
    files = {"Dog.txt": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x99\x80", "cat.txt": b"a cat"}
    found = captions_of(tmp_path / "data", files)
    assert codes(found.problems) == {
        "caption-unreadable": "A JPEG picture under the name of a caption"
    }
    assert found.by_picture["Dog.png"].text is None
    assert found.by_picture["cat.png"].text == "a cat"


def test_a_caption_that_is_the_name_is_told(tmp_path: Path) -> None:
    found = captions_of(tmp_path / "data", {"Dog.txt": b"dog", "cat.txt": b"a cat"})
    assert found.by_picture["Dog.png"].codes == ["caption-file-name"]
    assert found.by_picture["cat.png"].codes == []


def test_both_texts_of_a_conflict_are_shown(tmp_path: Path) -> None:
    found = captions_of(tmp_path / "data", {"cat.txt": b"one", "cat.caption": b"two"})
    said = found.by_picture["cat.png"].messages["caption-conflict"]
    assert said == 'cat.txt is used: "one"; cat.caption says otherwise: "two"'


def test_blanks_only_is_told_from_nothing(tmp_path: Path) -> None:
    found = captions_of(tmp_path / "data", {"cat.txt": b" \n", "Dog.txt": b""})
    assert found.by_picture["cat.png"].messages["caption-empty"].endswith("only white space")
    assert found.by_picture["Dog.png"].messages == {}


def test_what_clip_cuts_off_is_shown_and_the_trigger_counts(tmp_path: Path) -> None:
    words = ["cat"] * 74 + ["dog"]
    files = {"cat.txt": " ".join(words).encode()}
    assert captions_of(tmp_path / "data", files).by_picture["cat.png"].codes == []
    found = captions_of(tmp_path / "data", files, trigger="cat food").by_picture["cat.png"]
    assert found.codes == ["long"]
    assert found.messages["long"] == '80 CLIP tokens, 77 are read; cut off: "cat cat dog"'


def test_chinese_takes_many_tokens() -> None:
    text = "红色连衣裙的女孩，" * 8
    assert count_tokens([text])[0] > 77
    assert may_be_too_long(text)
    assert text.endswith(unread_part(text))
    assert unread_part(text) != ""


@pytest.mark.parametrize("text", ["", "a cat", "1girl, 长发", "it's", "x" * 70])
def test_a_text_that_cannot_be_too_long_needs_no_tokenizer(text: str) -> None:
    assert not may_be_too_long(text)
    assert count_tokens([text])[0] <= 77


@pytest.mark.parametrize(
    "text",
    ["a cat", "it's a CAT's toy 123 (x:1.3)", GBK, "👩‍💻 über café", "русский", "<|endoftext|> x"],
)
def test_tokens_are_those_of_transformers(text: str, tmp_path: Path) -> None:
    from transformers import CLIPTokenizer

    from latentmill.cache.clip_tokenizer import write_tokenizer

    write_tokenizer(tmp_path)
    theirs = CLIPTokenizer.from_pretrained(tmp_path)(text)["input_ids"]
    assert count_tokens([text]) == [len(theirs)]


@pytest.mark.parametrize("how", ["flag", "source", "both"])
def test_a_person_settles_the_encoding(tmp_path: Path, how: str) -> None:
    from PIL import Image

    from latentmill.datasets.layout import Layout
    from latentmill.datasets.records import read_manifest

    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    Image.linear_gradient("L").resize((80, 72)).save(data / "a.png")
    (data / "a.txt").write_bytes("中".encode("gbk"))
    settings = {
        "flag": ["--encoding", "gb18030"],
        "source": ["--set", "data.encoding=gb18030"],
        "both": ["--encoding", "latin-1", "--set", "data.encoding=gb18030"],
    }
    shared = ["validate", "--data", str(data), "--work", str(work)]
    shared += ["--set", "validate.target_side=64"]
    run(shared)
    assert read_manifest(Layout(work).manifest)[0].checks == ("encoding-unsure",)
    assert run([*shared, *settings[how]]) == 0
    (record,) = read_manifest(Layout(work).manifest)
    assert (record.caption, record.checks, record.codes) == ("中", (), ())
