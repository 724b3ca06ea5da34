import os
import unicodedata
from contextlib import nullcontext
from pathlib import Path

import pytest
from PIL import Image

from latentmill.datasets.errors import UsageError
from latentmill.datasets.filekinds import content_kind, stem_key, suffix_of
from latentmill.datasets.sources import (
    FoundPicture,
    assign_ids,
    name_twins,
    record_id,
    scan,
    stem_twins,
)

NFC = unicodedata.normalize("NFC", "é")
NFD = unicodedata.normalize("NFD", "é")


def put(folder: Path, *names: str, content: bytes = b"x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def paths(folder: Path, **options: object) -> list[str]:
    return [picture.path for picture in scan(folder, 0, **options).pictures]  # type: ignore[arg-type]


def test_odd_names_are_found_in_the_order_of_their_paths(tmp_path: Path) -> None:
    names = [
        "a [x].png",
        "b c/*.JPG",
        "b c/d?.jPeG",
        f"{NFD}.png",
        "猫🐈.webp",
        "\udcff.png",
        "z.JFIF",
    ]
    put(tmp_path, *names)
    assert paths(tmp_path) == sorted(names)


def test_files_carry_their_size_time_and_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "d/a.png", content=b"123")
    monkeypatch.chdir(tmp_path)
    (found,) = scan(Path("d"), 3).pictures
    modified = (tmp_path / "d/a.png").stat().st_mtime_ns
    assert found == FoundPicture(3, "a.png", str(tmp_path / "d/a.png"), 3, modified)


def test_system_files_are_counted_by_kind_not_read(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "._a.png", "Thumbs.db", "THUMBS.DB", ".DS_Store", "Desktop.ini")
    put(tmp_path, ".nomedia", "__MACOSX/._c.png", "__MACOSX/d/._d.png", "@eaDir/d.jpg")
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == ["a.png"]
    assert found.ignored == {
        "AppleDouble file (._)": 1,
        "Thumbs.db": 2,
        ".DS_Store": 1,
        "desktop.ini": 1,
        "hidden file": 1,
        "in a system folder": 3,
    }
    assert found.hidden == {}


def test_hidden_pictures_are_named(tmp_path: Path) -> None:
    put(tmp_path, "a.png", ".b.jpg", ".trash/c.png", ".trash/d/e.JPG", ".trash/f.txt", ".git/HEAD")
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == ["a.png"]
    assert found.hidden == {".b.jpg": 1, ".trash": 2}
    assert found.ignored == {"hidden file": 1, "in a hidden folder": 4}


def test_a_picture_of_unknown_ending_is_known_by_its_bytes(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.pic", "PNG")
    Image.new("RGB", (4, 4)).save(tmp_path / "no ending", "JPEG")
    put(tmp_path, "b.mp4", "c.psd", "BM notes", content=b"BM is a name")
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == ["a.pic", "no ending"]
    assert found.ignored == {"other": 3}
    assert found.suffixes == {".mp4": 1, ".psd": 1, "(no ending)": 1}


def test_a_folder_with_a_picture_name_is_a_folder(tmp_path: Path) -> None:
    put(tmp_path, "x.png/photo.png.crop.png", "x.png/photo.png.crop.txt", "x.txt/y.png")
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == [
        "x.png/photo.png.crop.png",
        "x.txt/y.png",
    ]
    assert found.pairing.captions == {"x.png/photo.png.crop.png": ("x.png/photo.png.crop.txt",)}


def test_captions_pair_by_stem_in_any_unicode_form(tmp_path: Path) -> None:
    put(tmp_path, f"{NFC}.png", f"{NFD}.txt", "a.b.c.jpg", "a.b.c.TXT", "a.b.d.jpg", "a.b.txt")
    pairing = scan(tmp_path, 0).pairing
    assert pairing.captions == {f"{NFC}.png": (f"{NFD}.txt",), "a.b.c.jpg": ("a.b.c.TXT",)}
    assert pairing.orphans == ("a.b.txt",)


def test_two_unicode_forms_of_a_name_keep_their_own_captions(tmp_path: Path) -> None:
    put(tmp_path, f"{NFC}.png", f"{NFC}.txt", f"{NFD}.png", f"{NFD}.txt")
    captions = scan(tmp_path, 0).pairing.captions
    assert captions == {f"{NFC}.png": (f"{NFC}.txt",), f"{NFD}.png": (f"{NFD}.txt",)}


def test_a_name_to_the_letter_comes_first(tmp_path: Path) -> None:
    put(tmp_path, f"{NFC}.png", f"{NFC}.txt", f"{NFD}.txt")
    assert scan(tmp_path, 0).pairing.captions == {f"{NFC}.png": (f"{NFC}.txt", f"{NFD}.txt")}


def test_txt_comes_before_caption_and_twins_share(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "a.jpg", "a.caption", "a.txt")
    pairing = scan(tmp_path, 0).pairing
    assert pairing.captions == dict.fromkeys(("a.jpg", "a.png"), ("a.txt", "a.caption"))


@pytest.mark.parametrize("setting", [".tags", "tags", "TAGS"])
def test_the_caption_ending_can_be_chosen(tmp_path: Path, setting: str) -> None:
    put(tmp_path, "a.png", "a.tags", "a.txt")
    found = scan(tmp_path, 0, caption_extension=setting)
    assert found.pairing.captions == {"a.png": ("a.tags",)}
    assert found.suffixes == {".txt": 1}


def test_tables_are_listed(tmp_path: Path) -> None:
    put(tmp_path, "metadata.jsonl", "sub/metadata.csv", "sub/a.png")
    assert scan(tmp_path, 0).tables == ("metadata.jsonl", "sub/metadata.csv")


def test_link_loops_end_and_no_folder_is_walked_twice(tmp_path: Path) -> None:
    put(tmp_path, "z/a.png")
    (tmp_path / "z/up").symlink_to(tmp_path)
    (tmp_path / "a link").symlink_to(tmp_path / "z")
    assert paths(tmp_path) == ["z/a.png"]


def test_a_link_out_of_the_folder_is_followed(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/a.png", "data/b.png")
    (tmp_path / "data/more").symlink_to(tmp_path / "elsewhere")
    assert paths(tmp_path / "data") == ["b.png", "more/a.png"]


def test_a_link_to_nothing_is_a_picture_to_report(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to(tmp_path / "gone")
    assert paths(tmp_path) == ["a.png"]


def test_a_pipe_with_a_picture_name_is_a_picture_to_report(tmp_path: Path) -> None:
    for name in ("a.png", "a.txt", "b"):
        os.mkfifo(tmp_path / name)
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == ["a.png"]
    assert found.ignored == {"named pipe": 2}
    assert found.pairing.captions == {}


def test_a_link_that_leads_to_itself_is_a_picture_to_report(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    assert paths(tmp_path) == ["a.png", "b.png"]


def test_a_file_deleted_while_its_folder_is_read_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "d/a.png", "d/b.png", "c.png")
    listed = os.scandir

    def scandir(folder: Path) -> object:
        with listed(folder) as listing:
            entries = list(listing)
        if folder.name == "d":
            (folder / "a.png").unlink()
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    found = scan(tmp_path, 0)
    assert [picture.path for picture in found.pictures] == ["c.png", "d/b.png"]
    assert found.unreadable == ()


def test_work_folders_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "work/x/previews/b.png", "old/validate/fixed/c.png")
    put(tmp_path, "old/validate/manifest.jsonl", "old/validate/report.json")
    assert paths(tmp_path, excluded=[tmp_path / "work" / "x"]) == ["a.png"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        scan(tmp_path / "my pictures", 0)
    assert "my pictures" in str(caught.value)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.zip")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        scan(tmp_path / "a.zip", 0)


def test_ids_hold_across_unicode_forms_and_never_look_like_numbers() -> None:
    assert record_id(f"{NFC}.png") == record_id(f"{NFD}.png")
    assert record_id("a/b.png") == "p88f7ec7982e1b5d"
    assert len(record_id("\udcff.png")) == 16


def test_colliding_ids_are_told_apart_and_the_first_keeps_its_own() -> None:
    found = [
        FoundPicture(source, path, path, 1, 1)
        for source, path in [(1, "a.png"), (0, "a.png"), (0, f"{NFD}.png"), (0, f"{NFC}.png")]
    ]
    ids = assign_ids(found)
    assert len(set(ids.values())) == 4
    assert ids[0, "a.png"] == record_id("a.png")
    assert ids[0, f"{NFD}.png"] == record_id(f"{NFD}.png")  # "e" sorts before "é"
    assert assign_ids(reversed(found)) == ids


def test_twins_are_told() -> None:
    names = ["a.png", "A.png", f"{NFC}.png", f"{NFD}.png", "b.png"]
    assert name_twins(names) == [("a.png", "A.png"), (f"{NFC}.png", f"{NFD}.png")]
    assert stem_twins(["a.png", "a.jpg", "d/a.png", "a.b.png"]) == [("a.png", "a.jpg")]


def test_only_the_last_ending_counts() -> None:
    assert [suffix_of(name) for name in ("a.PNG", "a.b.c", "png", ".png")] == [".png", ".c", "", ""]
    assert [stem_key(name) for name in ("a.b.c", "png", ".png")] == ["a.b", "png", ".png"]


def test_brands_tell_avif_from_heic() -> None:
    def box(major: bytes, *others: bytes) -> bytes:
        size = 16 + 4 * len(others)
        return size.to_bytes(4, "big") + b"ftyp" + major + bytes(4) + b"".join(others)

    assert content_kind(box(b"avif", b"mif1")) == "AVIF"
    assert content_kind(box(b"mif1", b"avif", b"miaf")) == "AVIF"
    assert content_kind(box(b"heic", b"mif1")) == "HEIC"
    assert content_kind(box(b"isom", b"mp41")) == ""


def test_a_misspelt_folder_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "my-dog").mkdir()
    with pytest.raises(UsageError) as caught:
        scan(tmp_path / "my-dgo", 0)
    assert "my-dog" in caught.value.fix


def test_the_fingerprint_of_a_scan_follows_every_file(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "a.txt")
    before = scan(tmp_path, 0).fingerprint
    assert scan(tmp_path, 0).fingerprint == before
    put(tmp_path, "a.txt", content=b"other")
    assert scan(tmp_path, 0).fingerprint != before
