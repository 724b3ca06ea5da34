"""Whatever a report rests on, a change of it is never answered with the last report."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.datasets.review_memory import memory_file
from latentmill.stages.checking import last_run
from latentmill.stages.checking.set_advice import Plan
from latentmill.stages.settings import Source, ValidateSettings
from latentmill.stages.validate import Validate

pytestmark = pytest.mark.slow

GBK = "一只猫坐在窗边看着外面的风景".encode("gb18030")


def picture(path: Path, seed: int) -> None:
    levels = hashlib.shake_128(f"{seed}".encode()).digest(35)
    image = Image.frombytes("L", (7, 5), levels).resize((80, 72), Image.Resampling.NEAREST)
    image.convert("RGB").save(path)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures, captions and a table, as if they had lain here for long."""
    monkeypatch.setattr(last_run, "_SETTLING_NS", -(10**18))
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        picture(folder / f"{number}.png", number)
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"number {number}")
    (folder / "metadata.csv").write_text("file_name,text\n3.png,number 3\n")
    Image.open(folder / "0.png").transpose(Image.Transpose.ROTATE_90).save(
        folder / "turned.jpg", exif=_turned()
    )
    return folder


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def stage_for(data: Path, **settings: object) -> Validate:
    values = {"target_side": 64, "fix": "needed", **settings}
    source = Source(path=str(data), trigger="sks")
    work = Layout(data.parent / "work")
    return Validate(work, (source,), ValidateSettings(**values))  # type: ignore[arg-type]


def run(stage: Validate) -> Report:
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])


def is_given_again(stage: Validate) -> bool:
    """Whether the report is the last one: a run anew would put the mark away."""
    page = stage.layout.work / "validate" / "report.html"
    before = page.stat().st_mtime_ns if page.is_file() else 0
    run(stage)
    return page.stat().st_mtime_ns == before


def test_the_last_report_is_given_again_whole_without_reading_a_file(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "bad.png").touch()
    stage = stage_for(data)
    first = run(stage)
    assert first.next_steps
    assert first.facts
    monkeypatch.setattr("latentmill.stages.validate.judge", None)
    again = run(stage)
    expected = replace(first, counts={**first.counts, "decoded": 0})
    assert json.dumps(again.to_json()) == json.dumps(expected.to_json())
    assert again == replace(expected, facts=again.facts)


def _rewrite_in_place(path: Path) -> None:
    """Write other content of the same size and put the time back."""
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content.swapcase())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


INPUTS: dict[str, Callable[[Path], object]] = {
    "a caption of another length": lambda data: (data / "0.txt").write_text("something else"),
    "a caption of the same size and time": lambda data: _rewrite_in_place(data / "0.txt"),
    "a table of the same size and time": lambda data: _rewrite_in_place(data / "metadata.csv"),
    "a picture's time": lambda data: os.utime(data / "0.png", ns=(1, 1)),
    "a picture more": lambda data: picture(data / "new.png", 99),
    "a picture less": lambda data: (data / "1.png").unlink(),
    "a caption less": lambda data: (data / "1.txt").unlink(),
    "a renamed caption": lambda data: (data / "1.txt").rename(data / "other.txt"),
    "a hidden file more": lambda data: (data / ".hidden.png").touch(),
    "a hidden folder more": lambda data: (data / ".git").mkdir() or (data / ".git/x.png").touch(),
    "a system file more": lambda data: (data / "Thumbs.db").touch(),
    "a file of no known use": lambda data: (data / "notes.xyz").write_text("x"),
    "review.csv": lambda data: (data.parent / "work/review.csv").write_text("id\n"),
    "what was written into review.csv": lambda data: _remember(data.parent / "work"),
}


def _remember(work: Path) -> None:
    path = memory_file(Layout(work))
    path.parent.mkdir(parents=True)
    path.write_text("{}")


@pytest.mark.parametrize("change", INPUTS.values(), ids=INPUTS)
def test_any_change_of_an_input_is_judged_anew(
    data: Path, change: Callable[[Path], object]
) -> None:
    stage = stage_for(data)
    run(stage)
    assert is_given_again(stage)
    change(data)
    assert not is_given_again(stage)
    assert is_given_again(stage)


SETTINGS: dict[str, Callable[[Validate], Validate]] = {
    name: lambda stage, name=name, value=value: replace(  # type: ignore[misc]
        stage, settings=stage.settings.model_copy(update={name: value})
    )
    for name, value in {
        "target_side": 90,
        "min_side": 40,
        "near_distance": 3,
        "encoding": "cp1252",
        "fix": "no",
        "background": "#102030",
        "fail_on": ("reject",),
        "max_rejects": 7,
        "max_seconds": 99.0,
    }.items()
}
SETTINGS |= {
    f"source {name}": lambda stage, name=name, value=value: replace(  # type: ignore[misc]
        stage, sources=(stage.sources[0].model_copy(update={name: value}),)
    )
    for name, value in {
        "trigger": "other",
        "encoding": "cp1252",
        "repeats": 9,
        "caption_extension": "caption",
        "is_regularisation": True,
    }.items()
}
SETTINGS |= {
    "plan": lambda stage: replace(stage, set_plan=Plan(64, 99)),
    "review encoding": lambda stage: replace(stage, review_encoding="gb18030"),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_any_other_setting_is_judged_anew(
    data: Path, change: Callable[[Validate], Validate]
) -> None:
    stage = stage_for(data)
    run(stage)
    assert is_given_again(stage)
    assert not is_given_again(change(stage))


def test_another_program_judges_anew(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_for(data)
    run(stage)
    monkeypatch.setattr(last_run, "_code_fingerprint", lambda: "other code")
    assert not is_given_again(stage)
    monkeypatch.setattr(last_run, "versions", lambda _: {"pillow": "99"})
    assert not is_given_again(stage)
    monkeypatch.setattr(last_run, "installed_decoders", lambda: "another")
    assert not is_given_again(stage)


WRITTEN = (
    "manifest.jsonl",
    "rejects.jsonl",
    "report.html",
    "duplicates.json",
    "decoded.jsonl",
    "state",
    "fixed/*.png",
    "fixed/*.txt",
)


@pytest.mark.parametrize("pattern", [*WRITTEN, "thumbnails/*.jpg"])
def test_an_output_that_was_deleted_is_made_again(data: Path, pattern: str) -> None:
    path, content = _output_of(data, pattern)
    path.unlink()
    run(stage_for(data, encoding="gb18030"))
    assert path.read_bytes() == content


@pytest.mark.parametrize("pattern", WRITTEN)
def test_an_output_that_was_edited_is_made_again(data: Path, pattern: str) -> None:
    path, content = _output_of(data, pattern)
    path.write_bytes(content.swapcase() or b"x")
    run(stage_for(data, encoding="gb18030"))
    assert path.read_bytes() == content


def _output_of(data: Path, pattern: str) -> tuple[Path, bytes]:
    (data / "2.txt").write_bytes(GBK)
    stage = stage_for(data, encoding="gb18030")
    run(stage)
    assert is_given_again(stage)
    (path, *_) = sorted((stage.layout.work / "validate").glob(pattern))
    return path, path.read_bytes()


def test_what_chance_or_rights_decided_is_tried_again(data: Path) -> None:
    (data / "3.txt").symlink_to("gone")
    stage = stage_for(data)
    assert "caption-unreadable" in {one.code for one in run(stage).problems}
    assert not is_given_again(stage)


def test_a_caption_that_waits_for_a_person_is_judged_each_time(data: Path) -> None:
    (data / "0.txt").write_bytes("é à ü".encode("cp1252"))
    stage = stage_for(data)
    assert "check" in {one.level for one in run(stage).problems}
    assert not is_given_again(stage)


def test_files_changed_just_before_the_run_are_looked_at_once_more(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_run, "_SETTLING_NS", 10**18)
    stage = stage_for(data)
    run(stage)
    assert not is_given_again(stage)


def test_a_damaged_record_of_the_last_run_costs_nothing_but_time(data: Path) -> None:
    stage = stage_for(data)
    first = run(stage)
    path = stage.layout.work / "validate" / "last-run.jsonl"
    path.write_text(path.read_text()[:-40])
    assert run(stage).problems == first.problems
    path.write_bytes(b"\xff\xfe")
    assert run(stage).problems == first.problems
    assert is_given_again(stage)
