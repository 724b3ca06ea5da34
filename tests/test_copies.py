from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.stages.checking.copies import copy_reasons, copy_stem, replace_file

ID = "p0123456789abcde"


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("dog.png", f"{ID}-dog"),
        ("sub/my_dog (1).JPG", f"{ID}-my-dog-1"),
        ("猫 写真.png", f"{ID}-猫-写真"),
        ("a.b.c.png", f"{ID}-a-b-c"),
        ("caf\u0065\u0301.png", f"{ID}-café"),
        ("../..png", ID),
        ("a\nb\u202ec.png", f"{ID}-a-b-c"),
        ("字" * 90 + ".png", f"{ID}-" + "字" * 26),
    ],
)
def test_names_keep_what_is_safe_of_the_original(path: str, stem: str) -> None:
    assert copy_stem(ID, path) == stem


@given(st.text(min_size=1))
def test_names_are_safe_whatever_the_original(path: str) -> None:
    stem = copy_stem(ID, path)
    assert stem.startswith(ID)
    assert not set(stem) & set('/\\:*?"<>|_.\0\n ')
    assert len(stem.encode()) <= 100


@pytest.mark.parametrize(
    ("path", "format_name", "stored", "notes", "reasons"),
    [
        ("a.png", "PNG", "PNG RGB 9x9", (), []),
        ("a.JPG", "JPEG", "JPEG RGB 9x9", (), []),
        ("a.Jpg", "JPEG", "JPEG RGB 9x9", (), ["other-name"]),
        ("a.jfif", "JPEG", "JPEG RGB 9x9", (), ["other-name"]),
        ("a.jpg", "JPEG", "MPO RGB 9x9", (), ["mpo"]),
        ("a.tif", "TIFF", "TIFF RGB 9x9", (), ["other-format"]),
        ("a.heic", "HEIF", "HEIF RGB 9x9", (), ["other-format"]),
        ("a.png", "JPEG", "JPEG RGB 9x9", ("name-does-not-match",), ["name-does-not-match"]),
        ("a.jpg", "JPEG", "JPEG RGB 9x9", ("turned-upright",), ["turned-upright"]),
        ("a.jpg", "JPEG", "JPEG RGB 9x9", ("turned-upright", "profile-unreadable"), []),
        ("a.jpg", "JPEG", "JPEG CMYK 9x9", ("cmyk-uncertain",), []),
        ("a.tif", "TIFF", "TIFF RGB 9x9", ("orientation-unreadable",), []),
    ],
)
def test_a_copy_is_made_of_what_is_sure_and_read_otherwise_elsewhere(
    path: str, format_name: str, stored: str, notes: tuple[str, ...], reasons: list[str]
) -> None:
    assert copy_reasons(path, format_name, stored, notes) == reasons


def test_the_same_bytes_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_file(path, lambda file: file.write_bytes(b"one"))
    before = path.stat()
    replace_file(path, lambda file: file.write_bytes(b"one"))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    replace_file(path, lambda file: file.write_bytes(b"two"))
    assert path.read_bytes() == b"two"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
