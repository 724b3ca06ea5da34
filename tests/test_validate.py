import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from PIL import Image

from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, Report, read_manifest
from latentmill.datasets.sources import FoundPicture, record_id
from latentmill.stages.checking import found_captions
from latentmill.stages.checking.decoded import content_hash
from latentmill.stages.settings import Source, ValidateSettings
from latentmill.stages.validate import UNIT_SIZE, Validate


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (80, 72)) -> Path:
    """Write a picture that no other seed gives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = hashlib.shake_128(f"{seed}".encode()).digest(35)
    image = Image.frombytes("L", (7, 5), levels).resize(size, Image.Resampling.NEAREST)
    image.convert("RGB").save(path)
    return path


def caption(path: Path, text: str | bytes) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three pictures with captions."""
    folder = tmp_path / "data"
    for number in range(3):
        picture(folder / f"{number}.png", number)
        caption(folder / f"{number}.txt", f"number {number}")
    return folder


def stage_for(*folders: Path, **settings: object) -> Validate:
    work = folders[0].parent / "work"
    sources = tuple(Source(path=str(folder)) for folder in folders)
    settings = {"target_side": 64, **settings}
    return Validate(Layout(work), sources, ValidateSettings(**settings))  # type: ignore[arg-type]


def run(stage: Validate) -> Report:
    """Run the stage; advice on the size of these small sets is left out."""
    report = stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])
    kept = (one for one in report.problems if one.code not in ("few-pictures", "small-pictures"))
    return replace(report, problems=tuple(kept))


def records(stage: Validate) -> dict[str, Record]:
    return {record.path: record for record in read_manifest(stage.layout.manifest)}


def codes(report: Report) -> dict[str, str]:
    return {problem.code: problem.path for problem in report.problems}


def test_a_sound_folder_gives_one_record_each_and_no_problem(data: Path) -> None:
    stage = stage_for(data)
    report = run(stage)
    assert report.problems == ()
    assert report.exit_code == 0
    assert report.counts == {
        "found": 3,
        "usable": 3,
        "rejected": 0,
        "ignored": 0,
        "repaired": 0,
        "warned": 0,
        "captioned": 3,
        "uncaptioned": 0,
        "unsure": 0,
        "decoded": 3,
    }
    first = records(stage)["0.png"]
    assert (first.id, first.caption, first.caption_file) == (
        record_id("0.png"),
        "number 0",
        "0.txt",
    )
    assert (first.width, first.height, first.format) == (80, 72, "PNG")
    assert Path(first.file) == data / "0.png"
    assert first.caption_encoding == "ascii"


def test_a_small_set_gets_advice_with_settings(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    problems = stage.finish([]).problems
    assert {one.code: one.level for one in problems} == {
        "few-pictures": "advice",
        "small-pictures": "advice",
    }
    assert "train.epochs=800" in problems[0].message


def test_every_found_picture_is_usable_or_a_reject_with_a_reason(data: Path) -> None:
    (data / "zero.jpg").touch()
    caption(data / "page.png", "<html>")
    (data / "cut.png").write_bytes((data / "0.png").read_bytes()[:150])
    picture(data / "tiny.png", size=(80, 10))
    picture(data / "long.png", size=(800, 80))
    Image.new("RGB", (80, 80), "#102030").save(data / "flat.png")
    stage = stage_for(data)
    report = run(stage)
    rejects = [json.loads(line) for line in stage.layout.rejects.read_text().splitlines()]
    assert {reject["path"]: reject["code"] for reject in rejects} == {
        "zero.jpg": "zero-bytes",
        "page.png": "not-a-picture",
        "cut.png": "truncated",
        "tiny.png": "too-small",
        "long.png": "extreme-aspect",
        "flat.png": "single-colour",
    }
    assert {reject["id"] for reject in rejects} == {record_id(reject["path"]) for reject in rejects}
    assert all(set(reject) == {"id", "path", "code", "message", "fix"} for reject in rejects)
    said = {reject["code"]: reject["message"] for reject in rejects}
    assert "40% and more" in said["extreme-aspect"]
    assert "#102030" in said["single-colour"]
    counts = report.counts
    assert (counts["found"], counts["usable"], counts["rejected"]) == (9, 3, 6)
    assert report.exit_code == 3
    assert not report.ok


def test_rejects_within_the_limit_let_the_rest_go_on(data: Path) -> None:
    (data / "zero.jpg").touch()
    assert run(stage_for(data)).exit_code == 3
    steps = run(stage_for(data)).next_steps
    assert Command("validate", settings=("validate.max_rejects=1",)) in steps[-1].commands
    assert run(stage_for(data, max_rejects=1)).exit_code == 0


def test_no_usable_picture_never_passes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").touch()
    report = run(stage_for(tmp_path / "data", max_rejects=99))
    assert report.exit_code == 3
    commands = [command for step in report.next_steps for command in step.commands]
    assert not any(command.settings for command in commands)


def test_the_data_folder_is_untouched(data: Path) -> None:
    caption(data / "0.txt", "猫, 长发".encode("gbk"))
    (data / "bad.png").touch()

    def state() -> list[tuple[str, bytes, int]]:
        files = sorted(path for path in data.rglob("*") if path.is_file())
        return [(str(path), path.read_bytes(), path.stat().st_mtime_ns) for path in files]

    before, folder_time = state(), data.stat().st_mtime_ns
    run(stage_for(data))
    assert state() == before
    assert data.stat().st_mtime_ns == folder_time


def test_an_unchanged_folder_has_nothing_left_to_do(data: Path) -> None:
    (data / "bad.png").touch()
    stage = stage_for(data)
    first = run(stage)
    manifest = stage.layout.manifest.read_bytes()
    assert stage.plan() == []
    second = run(stage)
    assert second.counts["decoded"] == 0
    assert {**second.counts, "decoded": 4} == first.counts
    assert second.fingerprint == first.fingerprint
    assert stage.layout.manifest.read_bytes() == manifest


def test_one_changed_picture_is_decoded_alone(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    before = records(stage)["1.png"].pixels
    picture(data / "1.png", 77)
    (unit,) = stage.plan()
    assert [item.found.path for item in unit.items] == ["1.png"]
    run(stage)
    assert records(stage)["1.png"].pixels != before


def test_a_touched_picture_with_equal_bytes_is_not_decoded_again(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    manifest = records(stage)
    os.utime(data / "1.png", ns=(7, 7))
    assert sum(len(unit.items) for unit in stage.plan()) == 1
    assert run(stage).counts["decoded"] == 0
    assert records(stage) == {**manifest, "1.png": replace(manifest["1.png"], modified_ns=7)}
    assert stage.plan() == []


def test_a_picture_of_the_same_size_and_other_bytes_is_decoded_again(data: Path) -> None:
    for number in range(3):
        Image.open(data / f"{number}.png").save(data / f"{number}.bmp")
        (data / f"{number}.png").unlink()
    stage = stage_for(data)
    run(stage)
    (data / "2.bmp").replace(data / "1.bmp")
    assert run(stage).counts["decoded"] == 1
    assert records(stage)["1.bmp"].pixels != records(stage)["0.bmp"].pixels


def test_a_touched_picture_whose_thumbnail_is_gone_is_decoded(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    os.utime(data / "1.png", ns=(7, 7))
    (thumbnail,) = (stage.layout.work / "validate").glob(f"thumbnails/{record_id('1.png')}.jpg")
    thumbnail.unlink()
    assert run(stage).counts["decoded"] == 1
    assert thumbnail.is_file()


def test_a_file_that_changes_while_it_is_decoded_keeps_no_hash(tmp_path: Path) -> None:
    found = FoundPicture(0, "a.png", str(picture(tmp_path / "a.png")), 1, 1)
    assert content_hash(found) == ""
    status = (tmp_path / "a.png").stat()
    same = replace(found, bytes=status.st_size, modified_ns=status.st_mtime_ns)
    assert content_hash(same) == xxhash.xxh3_128_hexdigest((tmp_path / "a.png").read_bytes())


def test_a_changed_caption_costs_no_decoding(data: Path) -> None:
    stage = stage_for(data)
    first = run(stage)
    caption(data / "1.txt", "another text")
    assert [unit.items for unit in stage.plan()] == [()]
    second = run(stage)
    assert second.counts["decoded"] == 0
    assert records(stage)["1.png"].caption == "another text"
    assert second.fingerprint != first.fingerprint
    assert stage.plan() == []


def test_removed_pictures_leave_the_manifest(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    (data / "1.png").unlink()
    report = run(stage)
    assert list(records(stage)) == ["0.png", "2.png"]
    assert codes(report) == {"caption-orphan": "1.txt"}


def test_other_loader_rules_decode_again_and_other_limits_do_not(data: Path) -> None:
    run(stage_for(data))
    assert sum(len(unit.items) for unit in stage_for(data, background="black").plan()) == 3
    stricter = stage_for(data, min_side=79)
    assert run(stricter).counts["rejected"] == 3
    assert run(stricter).counts["decoded"] == 0


def test_an_interrupted_run_keeps_what_it_decoded(data: Path) -> None:
    for number in range(3, UNIT_SIZE + 4):
        picture(data / f"{number}.png", number)
    stage = stage_for(data)
    first, second = stage.plan()
    stage.work(first, lambda _: None)
    (left,) = stage.plan()
    assert left == second
    report = stage.finish([stage.work(left, lambda _: None)])
    assert report.counts["usable"] == UNIT_SIZE + 4
    assert list((stage.layout.work / "validate").glob("parts/*")) == []
    assert stage.finish([]).counts["usable"] == UNIT_SIZE + 4


def test_the_manifest_does_not_depend_on_how_work_was_cut(data: Path, tmp_path: Path) -> None:
    serial = stage_for(data)
    run(serial)
    shuffled = Validate(Layout(tmp_path / "other"), serial.sources, serial.settings)
    elsewhere = pickle.loads(pickle.dumps(shuffled))  # noqa: S301
    for unit in reversed(pickle.loads(pickle.dumps(shuffled.plan()))):  # noqa: S301
        elsewhere.work(unit, lambda _: None)
    shuffled.finish([])
    assert shuffled.layout.manifest.read_bytes() == serial.layout.manifest.read_bytes()


def test_a_picture_that_was_never_decoded_is_not_lost(data: Path) -> None:
    report = stage_for(data).finish([])
    assert report.counts["rejected"] == report.counts["found"] == 3
    assert set(codes(report)) == {"changed-during-run"}


def test_the_same_pixels_are_told_with_the_other_name(data: Path) -> None:
    Image.open(data / "0.png").save(data / "copy.bmp")
    report = run(stage_for(data))
    (found,) = [one for one in report.problems if one.code == "duplicate-pixels"]
    assert found.path == "copy.bmp"
    assert "0.png" in found.message


def test_a_gbk_caption_is_read_and_told(data: Path) -> None:
    caption(data / "0.txt", "1girl, 红色连衣裙, 长发, 微笑, 户外".encode("gbk"))
    stage = stage_for(data)
    report = run(stage)
    record = records(stage)["0.png"]
    assert record.caption == "1girl, 红色连衣裙, 长发, 微笑, 户外"
    assert (record.checks, record.codes) == ((), ("encoding-guessed",))
    assert record.caption_encoding == "gb18030"
    (found,) = report.problems
    assert (found.level, found.path) == ("warning", "0.png")
    assert "gb18030" in found.message
    assert (report.exit_code, report.counts["unsure"]) == (0, 0)
    settled = stage_for(data, encoding="gb18030")
    assert run(settled).problems == ()
    assert records(settled)["0.png"].caption == record.caption


def test_empty_and_missing_captions_are_no_captions(data: Path) -> None:
    caption(data / "0.txt", " \r\n")
    (data / "1.txt").unlink()
    stage = stage_for(data)
    report = run(stage)
    assert codes(report) == {"caption-empty": "0.png", "caption-missing": "1.png"}
    assert [record.caption for record in records(stage).values()] == [None, None, "number 2"]
    assert (report.counts["captioned"], report.counts["uncaptioned"]) == (1, 2)
    assert report.exit_code == 0


def test_an_empty_txt_does_not_hide_a_caption_file(data: Path) -> None:
    caption(data / "0.txt", "")
    caption(data / "0.caption", "from the other")
    stage = stage_for(data)
    assert run(stage).problems == ()
    assert records(stage)["0.png"].caption_file == "0.caption"


def test_two_captions_that_differ_are_told_and_txt_holds(data: Path) -> None:
    caption(data / "0.caption", "something else")
    caption(data / "1.caption", "number 1\n")
    caption(data / "metadata.jsonl", '{"file_name": "2.png", "text": "from the table"}')
    stage = stage_for(data)
    report = run(stage)
    assert [one.path for one in report.problems] == ["0.png", "2.png"]
    assert {one.code for one in report.problems} == {"caption-conflict"}
    assert "metadata.jsonl" in report.problems[1].message
    assert records(stage)["2.png"].caption == "number 2"


def test_pictures_that_share_a_stem_share_the_caption_and_stay_apart(data: Path) -> None:
    picture(data / "0.bmp", 9)
    stage = stage_for(data)
    report = run(stage)
    shared = [one for one in report.problems if one.code == "caption-shared"]
    assert [one.path for one in shared] == ["0.bmp", "0.png"]
    assert "0.png" in shared[0].message
    both = records(stage)
    assert both["0.bmp"].caption == both["0.png"].caption == "number 0"
    assert both["0.bmp"].id != both["0.png"].id


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.jsonl", b'{"file_name": "a.png", "text": "hello"}\n'),
        ("metadata.csv", b"file_name,text\na.png,hello\n"),
        ("metadata.csv", "file_name\ttext\na.png\thello\n".encode("utf-16")),
        ("prompts.csv", b"\xef\xbb\xbffilename;prompt\na.png;hello\n"),
    ],
)
def test_tables_bring_captions(tmp_path: Path, name: str, content: bytes) -> None:
    picture(tmp_path / "data" / "sub" / "a.png")
    (tmp_path / "data" / "sub" / name).write_bytes(content)
    stage = stage_for(tmp_path / "data")
    assert run(stage).problems == ()
    record = records(stage)["sub/a.png"]
    assert (record.caption, record.caption_file) == ("hello", f"sub/{name}")


def test_what_is_wrong_with_a_table_is_told_by_line(data: Path) -> None:
    rows = '{"file_name": "0.png", "text": "number 0"}\n{"file_name": "gone.png", "text": "x"}\n{'
    caption(data / "metadata.jsonl", rows)
    caption(data / "metadata.json", "{}")
    report = run(stage_for(data))
    said = {one.code: (one.path, one.message) for one in report.problems}
    assert said["metadata-missing-picture"][1].startswith("Line 2")
    assert said["metadata-broken-row"][1].startswith("Line 3")
    assert said["metadata-name"][0] == "metadata.json"


def test_a_gbk_table_tells_only_of_rows_it_concerns(tmp_path: Path) -> None:
    for name in "ab":
        picture(tmp_path / "data" / f"{name}.png", ord(name))
    rows = "filename,prompt\na.png,a cat\nb.png,红色连衣裙 长发 微笑 户外\n"
    (tmp_path / "data" / "p.csv").write_bytes(rows.encode("gbk"))
    stage = stage_for(tmp_path / "data")
    run(stage)
    assert records(stage)["a.png"].codes == ()
    assert records(stage)["b.png"].codes == ("encoding-guessed",)
    assert records(stage)["b.png"].caption == "红色连衣裙 长发 微笑 户外"


def test_no_caption_at_all_names_what_was_looked_for_and_what_lies_there(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "a.png")
    caption(tmp_path / "data" / "a.tags", "a cat")
    report = run(stage_for(tmp_path / "data"))
    (found,) = report.problems
    assert (found.code, found.level) == ("no-captions", "advice")
    for word in (".txt", ".caption", ".tags (1)"):
        assert word in found.message
    assert report.exit_code == 0


def test_names_of_any_kind_reach_report_and_manifest(tmp_path: Path) -> None:
    names = ["<script>alert(1)<", "a [x]", "猫 🐈", os.fsdecode(b"\xff\xfe"), "&amp;"]
    for number, name in enumerate(names):
        picture(tmp_path / "data" / f"{name}.png", number)
        caption(tmp_path / "data" / f"{name}.txt", f"<i>{number}</i>")
    (tmp_path / "data" / os.fsdecode(b"bad\xff.png")).touch()
    stage = stage_for(tmp_path / "data")
    report = run(stage)
    assert report.counts["usable"] == len(names)
    assert {path.removesuffix(".png") for path in records(stage)} == set(names)
    page = (stage.layout.work / "validate" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<i>0" not in page
    assert "&lt;script&gt;" in page
    assert "猫" in page
    assert "://" not in page
    json.dumps(report.to_json()).encode("ascii")


def test_the_report_shows_pictures_and_the_ledger(data: Path) -> None:
    (data / "bad.png").touch()
    stage = stage_for(data)
    run(stage)
    page = (stage.layout.work / "validate" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 3
    assert "number 1" in page
    assert "zero-bytes" in page
    assert "prefers-color-scheme" in page or "color-scheme: light dark" in page


def test_several_sources_are_told_apart(tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two")):
        picture(tmp_path / name / "a.png", number)
        caption(tmp_path / name / "a.txt", name)
    (tmp_path / "two" / "bad.png").touch()
    stage = stage_for(tmp_path / "one", tmp_path / "two")
    report = run(stage)
    first, second = read_manifest(stage.layout.manifest)
    assert (first.source, first.caption, second.source, second.caption) == (0, "one", 1, "two")
    assert first.id == record_id("a.png") != second.id
    assert codes(report)["zero-bytes"] == f"{tmp_path / 'two'}/bad.png"


def test_a_work_folder_inside_the_data_is_not_scanned(data: Path) -> None:
    stage = Validate(Layout(data / "work"), (Source(path=str(data)),), ValidateSettings())
    run(stage)
    picture(data / "work" / "runs" / "preview.png", 50)
    assert run(stage).counts["found"] == 3


@pytest.mark.parametrize("size", [15_001, 2 << 20])
def test_a_file_too_long_for_a_caption_is_named_and_not_used(data: Path, size: int) -> None:
    caption(data / "1.txt", "x" * size)
    stage = stage_for(data)
    (told,) = [one for one in run(stage).problems if one.code == "caption-unreadable"]
    assert (told.path, told.fix) == ("1.txt", "Shorten it; CLIP reads 77 tokens, some 300 letters.")
    assert records(stage)["1.png"].caption is None


@pytest.mark.parametrize("name", ["base64", "idna", "klingon"])
def test_what_is_no_text_encoding_is_refused(data: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no text encoding"):
        stage_for(data, encoding=name).plan()


def test_a_missing_folder_and_one_without_pictures_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as missing:
        stage_for(tmp_path / "没有").plan()
    assert "没有" in str(missing.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="is empty"):
        stage_for(tmp_path / "empty").plan()
    caption(tmp_path / "empty" / "film.mp4", "x")
    caption(tmp_path / "empty" / "art.psd", "x")
    with pytest.raises(DataError, match=r"2 files and no picture: .*\.psd"):
        stage_for(tmp_path / "empty").plan()


@pytest.mark.parametrize("settings", [{"background": "nocolour"}, {"encoding": "klingon"}])
def test_settings_that_name_nothing_are_usage_errors(data: Path, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        stage_for(data, **settings).plan()


def test_planning_writes_nothing(data: Path) -> None:
    stage = stage_for(data)
    stage.plan()
    assert not stage.layout.work.exists()


def test_a_damaged_memory_costs_a_second_decoding_only(data: Path) -> None:
    stage = stage_for(data)
    run(stage)
    memory = stage.layout.work / "validate" / "decoded.jsonl"
    memory.write_bytes(memory.read_bytes()[:-40])
    assert sum(unit.size for unit in stage.plan()) == 1
    assert run(stage).counts["usable"] == 3


def test_validate_never_imports_torch(data: Path) -> None:
    code = f"""
import sys
from dataclasses import replace
from latentmill.datasets.layout import Layout
from latentmill.stages.settings import Source, ValidateSettings
from latentmill.stages.validate import Validate
from pathlib import Path
sources = (Source(path={str(data)!r}),)
stage = Validate(Layout(Path({str(data.parent / "w")!r})), sources, ValidateSettings())
stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


ODD_NAMES = ["new\nline.png", "bell\x07.png", "\udcff.png", f"{'n' * 251}.png", "猫" * 83 + ".png"]


def test_pictures_with_odd_names_are_used_and_reported(data: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        picture(data / name, 10 + number)
        (data / f"bad {number}").mkdir()
        (data / f"bad {number}" / name).touch()
    stage = stage_for(data)
    report = run(stage)
    assert set(ODD_NAMES) < set(records(stage))
    zero = [one.path for one in report.problems if one.code == "zero-bytes"]
    assert sorted(zero) == [f"bad {number}/{name}" for number, name in enumerate(ODD_NAMES)]


def test_what_is_no_file_is_a_reject_by_its_name(data: Path) -> None:
    os.mkfifo(data / "pipe.jpg")
    (data / "dead.png").symlink_to("gone")
    (data / ".hidden").mkdir()
    picture(data / ".hidden" / "a.png")
    stage = stage_for(data)
    report = run(stage)
    assert codes(report) == {
        "not-a-file": "pipe.jpg",
        "unreadable": "dead.png",
        "hidden-pictures": ".hidden",
    }
    assert report.counts["found"] == 5


def test_what_may_be_mended_outside_the_file_is_tried_again(data: Path) -> None:
    (data / "dead.png").symlink_to(data / "gone.png")
    stage = stage_for(data)
    assert codes(run(stage)) == {"unreadable": "dead.png"}
    (unit,) = stage.plan()
    assert [item.found.path for item in unit.items] == ["dead.png"]


def _vanish(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("moment", ["before decoding", "after decoding"])
@pytest.mark.parametrize(
    ("change", "code"),
    [(_vanish, None), (_cut, "changed-during-run"), (_become_pipe, "changed-during-run")],
)
def test_a_picture_that_changes_during_the_run_is_told(
    data: Path, moment: str, change: Callable[[Path], None], code: str | None
) -> None:
    stage = stage_for(data)
    units = stage.plan()
    if moment == "before decoding":
        change(data / "1.png")
    results = [stage.work(unit, lambda _: None) for unit in units]
    if moment == "after decoding":
        change(data / "1.png")
    report = stage.finish(results)
    assert [one.code for one in report.problems if one.level == "reject"] == [code] * bool(code)
    assert report.counts["found"] == 3 - (code is None)
    assert list(records(stage)) == ["0.png", "2.png"]


def test_a_table_too_large_to_read_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_captions, "MAX_TABLE_BYTES", 1 << 20)
    caption(data / "metadata.csv", b"file_name,text\n" + b"x" * (1 << 20))
    (told,) = [one for one in run(stage_for(data)).problems if one.code == "caption-unreadable"]
    assert (told.path, told.message) == ("metadata.csv", "A table above 1 MiB")


def test_a_table_that_cannot_be_read_is_told(data: Path) -> None:
    (data / "metadata.csv").symlink_to("gone")
    (told,) = [one for one in run(stage_for(data)).problems if one.code == "caption-unreadable"]
    assert told.path == "metadata.csv"


def test_quality_and_copies_are_told_in_the_report_and_beside_it(data: Path) -> None:
    Image.open(data / "0.png").resize((240, 216), Image.Resampling.NEAREST).save(data / "big.png")
    Image.open(data / "1.png").point(lambda level: level // 6).save(data / "night.png")
    picture(data / "small.png", 9, (70, 66))
    stage = stage_for(data, target_side=90, near_distance=2)
    report = run(stage)
    said = {(one.code, one.path): one.message for one in report.problems}
    big = record_id("big.png")
    assert f"of 64, group {big})" in said["near-duplicate", "0.png"]
    assert "level 4" in said["dark", "night.png"]
    assert "enlarged 1.3 times to train at 90 px" in said["upscaled", "small.png"]
    content = json.loads((stage.layout.work / "validate" / "duplicates.json").read_text())
    (group,) = [one for one in content["groups"] if one["id"] == big]
    assert [(one["path"], one["relation"]) for one in group["members"]] == [
        ("big.png", "best"),
        ("0.png", "near"),
    ]
    assert "near-duplicate" in records(stage)["0.png"].codes


def test_other_thresholds_decode_nothing(data: Path) -> None:
    assert run(stage_for(data)).problems == ()
    strict = run(stage_for(data, max_blur=0.01, dark_level=255, target_side=300))
    assert {one.code for one in strict.problems} >= {"dark", "upscaled"}
    assert strict.counts["decoded"] == 0
