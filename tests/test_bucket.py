import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from latentmill.cache.files import write_text
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, Report, record_to_json
from latentmill.pipeline.config import Request, load_config
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
    assert report.counts == counts | {"small_buckets": 0}
    assert report.exit_code == 0


def test_what_suffers_is_named(tmp_path: Path) -> None:
    problems = {(one.code, one.path): one for one in _finish(_stage(tmp_path)).problems}
    assert set(problems) == {("cropped-much", "strip.png"), ("upscaled", "s")}
    assert "87% of 9000x300" in problems["cropped-much", "strip.png"].message
    assert "enlarged 56.89 times" in problems["upscaled", "s"].message
    assert {one.level for one in problems.values()} == {"warning"}


def test_small_buckets_are_kept_and_a_merge_is_offered(tmp_path: Path) -> None:
    stage = replace(_stage(tmp_path), batch_size=3)
    report = _finish(stage)
    small = [one for one in report.problems if one.code == "bucket-small"]
    assert [one.message.split(",")[0].split(" of ")[0] for one in small] == [
        "512x512 has 2",
        "1024x256 has 2",
    ]
    assert {one.level for one in small} == {"advice"}
    assert "merge it into 960x256" in small[1].fix
    (setting,) = re.findall(r"--set '(.*)'", small[1].fix)
    merged = load_config(Request(data="x", assignments=(setting,))).bucket
    assert merged.without == ("1024x256",)
    _finish(replace(stage, settings=merged))
    lines = [json.loads(line) for line in (tmp_path / "bucket/buckets.jsonl").open()]
    assert [line["bucket"] for line in lines] == ["512x512", "960x256", "960x256", "512x512"]
    assert "2 batches" not in (tmp_path / "bucket/buckets.svg").read_text()


def test_repeats_count_as_sights_of_a_batch(tmp_path: Path) -> None:
    stage = replace(_stage(tmp_path), sources=(Source(path="data", repeats=4),), batch_size=3)
    report = _finish(stage)
    assert report.counts["small_buckets"] == 0
    assert "3 batches, 0% cut away" in (tmp_path / "bucket/buckets.svg").read_text()


def test_the_worst_cropped_come_first(tmp_path: Path) -> None:
    settings = BucketSettings(shape="square")
    cropped = [one for one in _finish(_stage(tmp_path, settings)).problems if "cut" in one.message]
    assert [one.path for one in cropped] == ["strip.png", "wide.png"]


def test_padding_cuts_nothing_and_says_how_much_is_grey(tmp_path: Path) -> None:
    report = _finish(_stage(tmp_path, BucketSettings(shape="square", fit="pad")))
    assert report.counts["cropped_much"] == 0
    lines = [json.loads(line) for line in (tmp_path / "bucket/buckets.jsonl").open()]
    assert lines[1]["padded"] == 0.75
    assert "padded" not in lines[0]
    assert "% grey" in (tmp_path / "bucket/buckets.svg").read_text()


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
