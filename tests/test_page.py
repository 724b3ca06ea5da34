"""The report page: what it shows, how it stays small, and that nothing in it can act."""

import base64
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from latentmill.datasets.images import LoadRules
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Problem, Record, Report
from latentmill.stages.checking.facts import histograms
from latentmill.stages.checking.groups import Group
from latentmill.stages.checking.page import render
from latentmill.stages.checking.page_sections import Found
from latentmill.stages.checking.thumbnails import SAMPLE, Thumbnails, sample_ids
from latentmill.stages.settings import Source, ValidateSettings
from latentmill.stages.validate import Validate

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'& \u202edrow"


def photo(path: Path, seed: int = 0) -> Path:
    bands = [Image.effect_noise((90, 70), 20 + 3 * seed + band) for band in range(3)]
    Image.merge("RGB", bands).save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        photo(folder / f"{number}.png", number)
        (folder / f"{number}.txt").write_text(f"number {number}")
    return folder


def stage_for(data: Path, **settings: object) -> Validate:
    values = ValidateSettings(**settings)  # type: ignore[arg-type]
    return Validate(Layout(data.parent / "work"), (Source(path=str(data)),), values)


def page(stage: Validate) -> str:
    stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])
    return (stage.layout.work / "validate" / "report.html").read_text("utf-8")


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_no_text_of_a_user_becomes_markup(data: Path) -> None:
    (data / "0.txt").write_text(EVIL)
    photo(data / "<b onload=x> \u202egnp.png", 9)
    (data / "<i>.png").touch()
    (data / os.fsdecode(b"\xff\n.txt")).write_text("nobody")
    html = page(stage_for(data))
    found = Tags(html)
    assert not {"script", "b onload", "i onload", "link", "iframe"} & set(found.tags)
    assert not any(name.startswith("on") for name, _ in found.attributes)
    links = [value for name, value in found.attributes if name in ("src", "href")]
    assert all(value and value.startswith(("data:image/jpeg;base64,", "#")) for value in links)
    assert "\u202e" not in html
    assert r"\u202egnp" in html
    assert "&lt;/script&gt;" in html
    assert "default-src 'none'" in html


def test_it_is_for_phones_and_for_the_night(data: Path) -> None:
    html = page(stage_for(data))
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "prefers-color-scheme: dark" in html


def test_the_ledger_stands_on_top_and_closes(data: Path) -> None:
    (data / "bad.png").touch()
    html = page(stage_for(data))
    text = re.sub(r"<[^>]+>", "", html[html.index("<header>") : html.index("</header>")])
    assert "4 found = 3 usable + 1 rejected" in text
    assert "3with a caption" in text
    assert html.index("found =") < html.index('id="problems"')


def test_each_next_step_is_one_item_with_its_command_as_code(data: Path) -> None:
    (data / "bad.png").touch()
    html = page(stage_for(data))
    steps = html[html.index("<ul>") : html.index("</ul>")].split("<li>")[1:]
    assert len(steps) == 2
    assert steps[1] == (
        "<bdi>or go on without them:</bdi><br>"
        "<code><bdi>latentmill validate --set validate.max_rejects=1</bdi></code></li>"
    )


def test_alike_pictures_stand_side_by_side_with_the_one_to_keep(data: Path) -> None:
    (data / "copy.png").write_bytes((data / "0.png").read_bytes())
    html = page(stage_for(data))
    section = html[html.index('id="alike"') : html.index('id="spread"')]
    assert section.count("<figure") == section.count("<img") == 2
    assert section.count("keep this one") == 1
    best = section[section.index('class="best"') :]
    assert best.index("number 0") < best.index("no caption")


def test_repairs_show_before_and_after(data: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    bands = [Image.effect_noise((90, 70), 99 + band) for band in range(3)]
    Image.merge("RGB", bands).save(data / "turned.jpg", exif=exif)
    html = page(stage_for(data, fix="needed"))
    section = html[html.index('id="repairs"') : html.index('id="spread"')]
    urls = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', section)
    before, after = (Image.open(io.BytesIO(base64.b64decode(url))).size for url in urls)
    assert (before[0] > before[1], after[0] < after[1]) == (True, True)
    assert "JPEG (RGB), 90 x 70 px" in section
    assert "PNG (RGB), 70 x 90 px" in section


def test_captions_to_confirm_are_shown_with_their_picture(data: Path) -> None:
    (data / "0.txt").write_bytes("微笑".encode("gbk"))
    html = page(stage_for(data))
    section = html[html.index('id="captions"') : html.index('id="spread"')]
    assert section.count("<img") == 1
    assert "微笑" in section
    assert "encoding-double-meaning" in section


def test_a_page_of_a_great_many_stays_small(tmp_path: Path) -> None:
    number = 3000
    records = tuple(
        Record(f"p{n:015x}", 0, f"{n}.png", "gone", 1, 1, "PNG", 512, 512, str(n), "x" * 5000)
        for n in range(number)
    )
    problems = tuple(
        Problem(one.id, one.path, "caption-missing", "m" * 2000, "f", "warning") for one in records
    )
    groups = tuple(Group("near", (one.id, records[0].id), one.id) for one in records)
    counts = {"found": number, "usable": number, "rejected": 0}
    found = Found(
        records, records, groups, (), {}, sample_ids(one.id for one in records), histograms(records)
    )
    html = render(
        Report("validate", True, counts, problems), found, Thumbnails(tmp_path, LoadRules())
    )
    assert len(html) < 400_000
    assert f"and {number - 50} more, in report.json" in html
    assert f"40 of {number} captions" in html
    assert f"40 of {number} groups" in html


def test_thumbnails_stay_few_and_removing_pictures_removes_nothing_else(data: Path) -> None:
    for number in range(3, SAMPLE + 20):
        photo(data / f"{number}.png", number)
    stage = stage_for(data)
    page(stage)
    folder = stage.layout.work / "validate" / "thumbnails"
    assert len(list(folder.iterdir())) == SAMPLE
    (folder / "mine.jpg").touch()
    for path in data.glob("*[13579].png"):
        path.unlink()
    page(stage)
    left = {path.name for path in folder.iterdir()}
    assert "mine.jpg" in left
    assert len(left) == 1 + len(list(data.glob("*.png")))
    assert stage.plan() == []


def test_a_thumbnail_shows_the_picture_as_it_is_now(data: Path) -> None:
    (data / "copy.png").write_bytes((data / "0.png").read_bytes())
    stage = stage_for(data)
    before = set(re.findall(r"base64,[^\"]+", page(stage)))
    photo(data / "0.png", 50)
    (data / "copy.png").write_bytes((data / "0.png").read_bytes())
    after = set(re.findall(r"base64,[^\"]+", page(stage)))
    assert len(before) == len(after) == 3
    assert len(before & after) == 2
