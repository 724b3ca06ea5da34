import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from latentmill.cache.files import write_text
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, Report, record_to_json
from latentmill.stages.bucket import Bucket
from latentmill.stages.settings import BucketSettings, Source

SIZES = {"square.png": (512, 512), "wide.png": (4000, 1000), "strip.png": (9000, 300), "s": (9, 9)}


def _stage(work: Path, settings: BucketSettings | None = None) -> Bucket:
    layout = Layout(work)
    lines = []
    for number, (name, (width, height)) in enumerate(SIZES.items()):
        record = Record(f"p{number}", 0, name, name, 1, 1, "PNG", width, height, "hash")
        lines.append(record_to_json(record) + "\n")
    write_text(layout.manifest, "".join(lines))
    return Bucket(layout, (Source(path="data"),), settings or BucketSettings())


def _finish(stage: Bucket) -> Report:
    assert stage.plan() == ()
    return stage.finish([])


def test_every_picture_stands_in_the_table(tmp_path: Path) -> None:
    report = _finish(_stage(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "bucket/buckets.jsonl").open()]
    assert [line["id"] for line in lines] == ["p0", "p1", "p2", "p3"]
    assert lines[0] == {
        "id": "p0",
        "path": "square.png",
        "bucket": "512x512",
        "resized": [512, 512],
        "crop": [0, 0, 512, 512],
        "cropped": 0,
        "scale": 1,
    }
    assert lines[2]["bucket"] == "1024x256"
    assert lines[2]["crop"] == [3328, 0, 1024, 256]
    counts = {"pictures": 4, "buckets": 2, "untouched": 1, "upscaled": 1, "cropped_much": 1}
    assert report.counts == counts
    assert report.exit_code == 0


def test_what_suffers_is_named(tmp_path: Path) -> None:
    problems = {(one.code, one.path): one for one in _finish(_stage(tmp_path)).problems}
    assert set(problems) == {("cropped-much", "strip.png"), ("upscaled", "s")}
    assert "87% of 9000x300" in problems["cropped-much", "strip.png"].message
    assert "enlarged 56.89 times" in problems["upscaled", "s"].message
    assert {one.level for one in problems.values()} == {"warning"}


def test_never_names_every_enlarged_picture(tmp_path: Path) -> None:
    stage = _stage(tmp_path, BucketSettings(upscale="never"))
    assert [one.path for one in _finish(stage).problems if one.code == "upscaled"] == ["s"]


def test_the_chart_is_one_svg_that_loads_nothing(tmp_path: Path) -> None:
    _finish(_stage(tmp_path))
    text = (tmp_path / "bucket/buckets.svg").read_text()
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert "4 pictures in 2 buckets" in text
    assert "1024x256" in text
    assert "href" not in text


def test_running_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    stage = _stage(tmp_path)
    reports = [_finish(stage) for _ in range(2)]
    assert reports[0] == reports[1]
    other = replace(stage, settings=BucketSettings(area=768))
    assert _finish(other).fingerprint != reports[0].fingerprint


@pytest.mark.parametrize("content", ["{", '{"id": 1}\n', "\x00"])
def test_a_damaged_manifest_asks_for_validate(tmp_path: Path, content: str) -> None:
    stage = _stage(tmp_path)
    write_text(stage.layout.manifest, content)
    with pytest.raises(DataError) as caught:
        stage.finish([])
    assert caught.value.run == (Command("validate"),)


def test_without_a_manifest_validate_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Bucket(Layout(tmp_path), (), BucketSettings()).finish([])
    assert caught.value.run == (Command("validate"),)
