import re
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `review` is not installed")

from starlette.testclient import TestClient

from latentmill.cache.files import write_json
from latentmill.datasets.images import LoadRules
from latentmill.datasets.records import read_manifest
from latentmill.datasets.review import ReviewRow, format_review
from latentmill.datasets.review_memory import Memory, Written, read_review
from latentmill.stages.captioning.review_file import save_review
from latentmill.stages.checking.duplicates import Group, Member, groups_to_json, read_groups
from latentmill.stages.reviewing import requests
from latentmill.stages.reviewing.app import Site, make_app
from latentmill.stages.reviewing.pictures import Pictures
from latentmill.stages.reviewing.store import Setting, Store

TOKEN, PORT = "0123abcd", 8765
HOSTILE = "</script><img src=x onerror=alert(1)> \u202e {{ 7 * 7 }} &amp; 'quoted' \"quoted\""
STATIC = Path(requests.__file__).parent


@dataclass
class Page:
    """A page over three pictures: an approved caption, a draft, a hostile text in doubt."""

    layout: object
    records: list
    client: TestClient

    def ids(self):
        return [record.id for record in self.records]

    def rows(self):
        return {row["id"]: row for row in self.client.get("rows").json()["rows"]}

    def change(self, identity, **wanted):
        body = {"id": identity, "version": self.rows()[identity]["version"], **wanted}
        return self.client.post("change", json={"changes": [body]})


@pytest.fixture
def page(tmp_path):
    from tests.conftest import PictureSet

    pictures = PictureSet(tmp_path, tmp_path)
    for number in range(3):
        pictures.draw(f"{number}.png", f"caption {number}", (400, 300), seed=number)
    layout = pictures.validated().layout
    records = read_manifest(layout.manifest)
    first, second, third = (record.id for record in records)
    rows = [
        ReviewRow(first, "0.png", "a red house by the sea", "ok"),
        ReviewRow(second, "1.png", "a blue house", "draft", "blip", draft="a blue house"),
        ReviewRow(third, "2.png", HOSTILE, "check", flags=("encoding-unsure",), draft=HOSTILE),
    ]
    pixels = {record.id: record.pixels for record in records}
    save_review(layout, rows, Memory({row.id: Written(row, pixels[row.id]) for row in rows}), None)
    by_id = {record.id: record for record in records}
    setting = Setting(layout, by_id, {first: "", second: "zwx", third: ""})
    groups = (Group(first, (Member(first, "0.png", "best", 0), Member(third, "2.png", "near", 3))),)
    site = Site(
        *("my <set>", setting, Store(setting)),
        Pictures(layout.stage("caption"), by_id, LoadRules()),
        *(groups, TOKEN, PORT),
    )
    client = TestClient(make_app(site), base_url=f"http://127.0.0.1:{PORT}/{TOKEN}/")
    return Page(layout, records, client)


def test_the_page_loads_nothing_from_elsewhere_and_holds_no_script_of_its_own(page):
    answer = page.client.get("")
    assert answer.status_code == 200
    assert "my &lt;set&gt;" in answer.text
    sources = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert sources
    for source in sources:
        assert page.client.get(source).status_code == 200
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", answer.text)
    scripts = "".join(path.read_text("utf-8") for path in (STATIC / "static").glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", scripts)
    assert not re.search(r"https?://", scripts)


def test_every_module_that_a_script_imports_is_served(page):
    for path in (STATIC / "static").glob("*.js"):
        for name in re.findall(r'from "\./([\w.]+)"', path.read_text("utf-8")):
            assert page.client.get(f"static/{name}").status_code == 200


def test_rows_pictures_and_copies_are_told(page):
    values = page.client.get("rows").json()
    first, second, third = page.ids()
    assert [row["id"] for row in values["rows"]] == [first, second, third]
    assert values["rows"][2]["caption"] == HOSTILE
    assert values["pictures"][second] == {
        "width": 400,
        "height": 300,
        "pixels": page.records[1].pixels[:16],
    }
    assert [one["id"] for one in values["groups"][0]] == [first, third]
    assert values["stamp"] == page.client.get("stamp").json()["stamp"]


def test_a_change_is_on_disk_and_undone(page):
    first, second, _ = page.ids()
    values = page.change(second, status="ok").json()
    assert [row["status"] for row in values["rows"] if row["id"] == second] == ["ok"]
    assert (values["steps"], values["refused"]) == (1, {})
    assert {row.id: row.status for row in read_review(page.layout)}[second] == "ok"
    values = page.client.post("undo", json={}).json()
    assert values["steps"] == 0
    assert {row.id: row.status for row in read_review(page.layout)}[second] == "draft"
    assert page.rows()[first]["status"] == "ok"


def test_a_stale_version_is_refused_with_what_stands_there_now(page):
    first = page.ids()[0]
    body = {"id": first, "version": "0", "caption": "mine"}
    values = page.client.post("change", json={"changes": [body]}).json()
    assert list(values["refused"]) == [first]
    assert values["rows"][0]["caption"] == "a red house by the sea"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"changes": [{}]},
        {"changes": [{"id": "x", "version": "v", "status": "draft"}]},
        {"changes": [{"id": "x", "version": "v", "caption": 1}]},
        {"changes": [{"id": "x", "version": "v", "path": "/etc/passwd"}]},
    ],
)
def test_a_body_that_is_none_of_the_page_is_refused(page, body):
    before = page.layout.review.read_bytes()
    answer = page.client.post("change", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert page.layout.review.read_bytes() == before


def test_an_endless_body_is_refused(page, monkeypatch):
    monkeypatch.setattr(requests, "MOST_BYTES", 100)
    assert page.client.post("change", json={"changes": ["x" * 200]}).status_code == 413


def test_a_broken_file_is_explained(page):
    page.layout.review.write_bytes(b"no table at all")
    for answer in (page.client.get("rows"), page.client.post("undo", json={})):
        assert answer.status_code == 409
        assert "review.csv" in answer.json()["error"]


def test_an_edit_in_a_spreadsheet_changes_the_stamp(page):
    before = page.client.get("stamp").json()
    rows = read_review(page.layout)
    page.layout.review.write_bytes(format_review(reversed(rows)))
    assert page.client.get("stamp").json() != before
    assert [row["id"] for row in page.client.get("rows").json()["rows"]] == page.ids()[::-1]


@pytest.mark.parametrize(("size", "longest"), [("small", 192), ("large", 400)])
def test_pictures_are_made_once_and_kept(page, size, longest):
    import io

    from PIL import Image

    first = page.ids()[0]
    answer = page.client.get(f"picture/{first}/{size}")
    assert answer.headers["content-type"] == "image/jpeg"
    assert max(Image.open(io.BytesIO(answer.content)).size) == longest
    Path(page.records[0].file).unlink()
    assert page.client.get(f"picture/{first}/{size}").content == answer.content


def test_a_picture_that_changed_since_it_was_validated_is_not_shown(page):
    first, second = page.records[:2]
    Path(first.file).write_bytes(Path(second.file).read_bytes())
    answer = page.client.get(f"picture/{first.id}/large")
    assert answer.status_code == 404
    assert "changed since it was validated" in answer.json()["error"]
    assert not list(page.layout.stage("caption").glob("thumbnails/*"))


def test_a_picture_that_cannot_be_read_is_explained(page):
    Path(page.records[0].file).write_bytes(b"")
    answer = page.client.get(f"picture/{page.records[0].id}/small")
    assert answer.status_code == 404
    assert "0.png" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "picture/p000000000000000/small",
        "picture/{id}/huge",
        "picture/..%2F..%2Fetc%2Fpasswd/small",
        "picture/{id}/..%2F..%2F..%2Freview.csv",
        "static/..%2Fapp.py",
        "static/%2e%2e/app.py",
        "static/..%5Capp.py",
        "static//etc/passwd",
        "review.csv",
    ],
)
def test_only_what_is_listed_can_be_asked_for(page, path):
    answer = page.client.get(path.replace("{id}", page.ids()[0]))
    assert answer.status_code == 404


def test_tokens_are_counted_with_the_trigger_and_the_cut_part_is_told(page):
    first, second, _ = page.ids()
    values = page.client.post("tokens", json={"id": second, "caption": "a house"}).json()
    assert values == {"tokens": 7, "most": 77, "read": "zwx, a house", "cut": ""}
    text = "red " * 75 + "blue house"
    values = page.client.post("tokens", json={"id": first, "caption": text}).json()
    assert (values["tokens"], values["cut"]) == (79, "blue house")
    assert values["read"] + values["cut"] == text


def test_replacing_is_shown_first_and_leaves_a_draft_a_draft(page):
    first, second, third = page.ids()
    rule = {"find": "house", "by": "home", "regex": False}
    body = {"rule": rule, "ids": [first, second, third]}
    found = page.client.post("replacements", json=body).json()["found"]
    assert [(one["id"], one["after"]) for one in found] == [
        (first, "a red home by the sea"),
        (second, "a blue home"),
    ]
    assert page.rows()[second]["caption"] == "a blue house"
    changes = [
        {"id": one["id"], "version": one["version"], "caption": one["after"], "reword": True}
        for one in found
    ]
    page.client.post("change", json={"changes": changes})
    rows = {row.id: (row.caption, row.status) for row in read_review(page.layout)}
    assert rows[first] == ("a red home by the sea", "ok")
    assert rows[second] == ("a blue home", "draft")
    assert page.client.post("undo", json={}).json()["steps"] == 0
    assert page.rows()[first]["caption"] == "a red house by the sea"


def test_a_wrong_pattern_is_explained(page):
    rule = {"find": "(", "by": "", "regex": True}
    answer = page.client.post("replacements", json={"rule": rule, "ids": page.ids()})
    assert answer.status_code == 422
    assert "regular expression" in answer.json()["error"]


def test_only_rows_that_are_shown_are_replaced_and_none_is_left_empty(page):
    rule = {"find": "a red house by the sea", "by": "", "regex": False}
    body = {"rule": rule, "ids": page.ids()}
    assert page.client.post("replacements", json=body).json()["found"] == []
    body = {"rule": {"find": "house", "by": "home"}, "ids": page.ids()[:1]}
    assert len(page.client.post("replacements", json=body).json()["found"]) == 1


def test_groups_are_read_back_and_a_damaged_list_is_named(tmp_path):
    from latentmill.datasets.errors import DataError

    path = tmp_path / "duplicates.json"
    assert read_groups(path) == ()
    groups = (Group("p1", (Member("p1", "1.png", "best", 0), Member("p2", "2.png", "near", 4))),)
    write_json(path, groups_to_json(groups))
    assert read_groups(path) == groups
    path.write_text('{"groups": [{"id": 1}]}')
    with pytest.raises(DataError, match="duplicates is damaged"):
        read_groups(path)
