"""The review page in a real browser: what a person does by keyboard stands in review.csv."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.chromium import PROGRAM, Browser
from tests.conftest import PHOTOS

from latentmill.datasets.layout import Layout
from latentmill.datasets.review import format_review
from latentmill.datasets.review_memory import Memory, read_against, read_memory, read_review
from latentmill.pipeline.main import run
from latentmill.stages.captioning.review_file import save_review

pytest.importorskip("uvicorn", reason="the extra `review` is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="chromium is not installed"),
]
HOSTILE = "<img src=x onerror=\"document.title='broken'\"></textarea><script>1</script> \u202e cat"
LONG = "a red house by the sea, " * 16
CAPTION = "document.getElementById('caption')"


@dataclass
class Review:
    """A work folder and the page that is served for it."""

    layout: Layout
    process: subprocess.Popen[str]
    address: str

    def rows(self):
        return {row.image: row for row in read_review(self.layout)}

    def end(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


def start(work: Path) -> Review:
    code = "import sys; from latentmill.pipeline.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "review", "--work", str(work), "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"http://127\.0\.0\.1:\d+/\w+/", line):
            return Review(Layout(work), process, found.group())
    raise AssertionError(said)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine photographs: two drafts, a hostile caption in doubt, a long one, a copy, others ok."""
    package = pytest.importorskip("skimage")
    root = tmp_path_factory.mktemp("photos 写真")
    data, layout = root / "data", Layout(root / "work")
    data.mkdir()
    for name, caption in {**PHOTOS, "chelsea copy.png": "the same tabby cat"}.items():
        original = Path(package.__file__).parent / "data" / name.replace(" copy", "")
        shutil.copy(original, data / name)
        if not name.startswith(("coffee", "rocket")):
            (data / name).with_suffix(".txt").write_text(caption, encoding="utf-8")
    shared = ["--data", str(data), "--work", str(layout.work)]
    assert run(["validate", *shared]) == 0
    assert run(["caption", *shared, "--set", "caption.model=none"]) == 3
    memory = read_memory(layout)
    reading = read_against(layout, memory)
    assert reading is not None
    rows = [changed(row) for row in reading.rows]
    known = {row.id: replace(memory.rows[row.id], row=row) for row in rows}
    save_review(layout, rows, Memory(known), reading)
    return layout.work


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Path:
    """A copy to change; the pictures are the same."""
    return Path(shutil.copytree(made, tmp_path / "work"))


def changed(row):
    if row.image.startswith(("coffee", "rocket")):
        text = f"a draft of a {row.image.split('.')[0]}"
        return replace(row, caption=text, draft=text, flags=(), clip_score=0.25)
    if row.image.startswith("grass"):
        return replace(row, caption=HOSTILE, draft=HOSTILE, status="check")
    return replace(row, caption=LONG) if row.image.startswith("hubble") else row


@pytest.fixture
def review(work: Path) -> Iterator[Review]:
    review = start(work)
    yield review
    if review.process.poll() is None:
        review.end(signal.SIGKILL)


@pytest.fixture
def browser(tmp_path: Path, review: Review) -> Iterator[Browser]:
    browser = Browser(tmp_path / "profile")
    browser.open(review.address)
    browser.wait(f"{CAPTION} && {CAPTION}.value")
    yield browser
    browser.close()


def choose(browser: Browser, control: str, value: str, event: str = "change") -> None:
    browser.value(
        f"document.getElementById('{control}').value = '{value}';"
        f"document.getElementById('{control}').dispatchEvent(new Event('{event}'))"
    )


def shown(browser: Browser, element: str) -> str:
    return str(browser.value(f"document.getElementById('{element}').textContent"))


def test_a_person_edits_approves_and_sets_aside_by_keyboard_and_finds_it_again(
    review: Review, browser: Browser
) -> None:
    assert shown(browser, "reviewed") == "6 of 9 reviewed"
    assert browser.value(f"{CAPTION}.value") == "a draft of a coffee"
    browser.press("a")
    browser.wait("document.getElementById('reviewed').textContent === '7 of 9 reviewed'")
    assert (review.rows()["coffee.png"].status, review.rows()["coffee.png"].source) == (
        "ok",
        "blip",
    )

    browser.wait(f"{CAPTION}.value.startsWith('<img')")
    browser.press("e")
    browser.wait(f"document.activeElement === {CAPTION}")
    browser.value(f"{CAPTION}.select()")
    browser.type("=short, green grass & “more” 草")
    browser.press("Enter", modifiers=2)
    browser.wait("document.getElementById('reviewed').textContent === '8 of 9 reviewed'")
    row = review.rows()["grass.png"]
    assert (row.caption, row.status, row.source) == (
        *("=short, green grass & “more” 草", "ok", "person"),
    )

    browser.press("Escape")
    browser.press("s")
    browser.wait("document.getElementById('reviewed').textContent === '9 of 9 reviewed'")
    assert review.rows()["rocket.jpg"].status == "skip"
    browser.press("u")
    browser.wait("document.getElementById('reviewed').textContent === '8 of 9 reviewed'")
    assert review.rows()["rocket.jpg"].status == "draft"

    browser.open(review.address)
    browser.wait(f"{CAPTION}.value === 'a draft of a rocket'")
    assert shown(browser, "reviewed") == "8 of 9 reviewed"
    assert browser.complaints == []
    assert "1 row waits" in review.end()


def test_hostile_text_is_shown_as_text(browser: Browser) -> None:
    choose(browser, "search", "onerror", "input")
    browser.wait(f"{CAPTION}.value.startsWith('<img')")
    assert browser.value(f"{CAPTION}.value") == HOSTILE
    assert browser.value("document.querySelectorAll('#room img, #twins img').length") == 1
    assert browser.value("document.title").startswith("Review: ")
    assert browser.complaints == []


def test_tokens_are_counted_while_typing_and_the_end_is_struck_through(browser: Browser) -> None:
    choose(browser, "status", "")
    choose(browser, "search", "hubble", "input")
    browser.wait("document.getElementById('tokens').textContent === '114 of 77 tokens'")
    assert browser.value("document.querySelector('#trained del').textContent").startswith(
        "sea, a red"
    )
    browser.press("e")
    browser.value(f"{CAPTION}.select()")
    browser.type("many galaxies")
    browser.wait("document.getElementById('tokens').textContent === '4 of 77 tokens'")
    assert browser.value("document.querySelector('#trained del').textContent") == ""


def test_what_was_typed_is_saved_without_any_button_and_survives_a_kill(
    review: Review, browser: Browser
) -> None:
    browser.press("e")
    browser.value(f"{CAPTION}.select()")
    browser.type("a cup of coffee on a table")
    browser.wait("document.getElementById('saved').textContent === 'saved'")
    review.end(signal.SIGKILL)
    row = review.rows()["coffee.png"]
    assert (row.caption, row.status) == ("a cup of coffee on a table", "ok")
    again = start(review.layout.work)
    assert again.rows()["coffee.png"].caption == "a cup of coffee on a table"
    again.end()


def test_leaving_the_page_saves_what_was_just_typed(review: Review, browser: Browser) -> None:
    browser.press("e")
    browser.value(f"{CAPTION}.select()")
    browser.type("typed and left at once")
    browser.open("about:blank")
    browser.wait("document.title === ''")
    browser.open(review.address)
    browser.wait("document.getElementById('reviewed')?.textContent === '7 of 9 reviewed'")
    assert review.rows()["coffee.png"].caption == "typed and left at once"


def test_an_edit_outside_is_shown_and_one_of_the_open_row_is_asked_about(
    review: Review, browser: Browser
) -> None:
    rows = read_review(review.layout)
    assert rows is not None
    first = next(row for row in rows if row.image == "coffee.png")
    browser.press("e")
    browser.value(f"{CAPTION}.select()")
    edited = [replace(row, caption="theirs") if row == first else row for row in rows]
    review.layout.review.write_bytes(format_review(edited))
    browser.type("mine")
    browser.wait("!document.getElementById('conflict').hidden")
    assert "theirs" in shown(browser, "conflict")
    assert review.rows()["coffee.png"].caption == "theirs"
    browser.value("document.getElementById('keep-mine').click()")
    browser.wait("document.getElementById('saved').textContent === 'saved'")
    assert review.rows()["coffee.png"].caption == "mine"


def test_copies_stand_side_by_side(review: Review, browser: Browser) -> None:
    choose(browser, "status", "")
    choose(browser, "flag", "copies")
    browser.wait("document.querySelectorAll('#twins figure').length === 2")
    names = browser.value("[...document.querySelectorAll('#twins .quiet')].map(e => e.textContent)")
    assert sorted(names) == ["chelsea copy.png", "chelsea.png"]
    browser.value(
        "[...document.querySelectorAll('#twins figure:not(.here) button')].at(-1).click()"
    )
    browser.wait("document.querySelector('#twins p.skip')")
    statuses = {review.rows()[name].status for name in ("chelsea.png", "chelsea copy.png")}
    assert "skip" in statuses


def test_replacing_shows_each_change_first(review: Review, browser: Browser) -> None:
    browser.value("document.getElementById('open-replace').click()")
    browser.value("document.getElementById('find').value = 'draft'")
    browser.value("document.getElementById('by').value = 'photo'")
    browser.value("document.getElementById('preview').click()")
    browser.wait("document.querySelectorAll('#replacements li').length === 2")
    browser.value("document.querySelector('#replacements input').click()")
    browser.value("document.getElementById('replace-all').click()")
    browser.wait("document.getElementById('replace-says').textContent === '1 captions changed'")
    rows = review.rows()
    assert rows["coffee.png"].caption == "a draft of a coffee"
    assert (rows["rocket.jpg"].caption, rows["rocket.jpg"].status) == (
        *("a photo of a rocket", "draft"),
    )


def test_one_page_at_a_time_and_not_beside_caption(
    review: Review, capsys: pytest.CaptureFixture[str]
) -> None:
    work = str(review.layout.work)
    for command in (["review", "--no-browser"], ["caption", "--set", "caption.model=none"]):
        assert run([command[0], "--work", work, *command[1:]]) == 2
        assert "latentmill review (process" in capsys.readouterr().err
    assert "done" in review.end(signal.SIGINT)
