"""Which findings end with exit 3, and what a person's answers in `review.csv` settle."""

from pathlib import Path

import pytest
from PIL import Image

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import step_lines
from latentmill.datasets.records import Report
from latentmill.stages.approve import approve
from latentmill.stages.caption import Caption
from latentmill.stages.checking.findings import FINDINGS, LOADER_REJECTS
from latentmill.stages.checking.settings_check import require_known_codes
from latentmill.stages.settings import CaptionSettings, Source, ValidateSettings
from latentmill.stages.validate import Validate

UNSURE = "长发".encode("gbk")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two pictures, the caption of one in GBK, and too short to be sure of."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number, caption in enumerate((UNSURE, b"a plain caption")):
        Image.effect_noise((80, 72), 20 + number).convert("RGB").save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_bytes(caption)
    return folder


def validated(data: Path, **settings: object) -> Report:
    stage = Validate(
        Layout(data.parent / "work"),
        (Source(path=str(data)),),
        ValidateSettings(**{"target_side": 64, **settings}),  # type: ignore[arg-type]
    )
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])


def levels(report: Report) -> set[str]:
    return {one.level for one in report.problems}


def captioned(data: Path) -> Layout:
    layout = Layout(data.parent / "work")
    sources = (Source(path=str(data)),)
    stage = Caption(layout, sources, CaptionSettings(), ValidateSettings())
    stage.finish([])
    return layout


def test_an_unsure_caption_needs_a_person_and_the_ways_on_are_named(data: Path) -> None:
    report = validated(data)
    assert (report.exit_code, report.ok, report.counts["unsure"]) == (3, False, 1)
    steps = "\n".join(
        line for step in report.next_steps for line in step_lines(step.text, step.commands)
    )
    assert "1 caption is unsure: confirm or correct in the review:\n  latentmill caption" in steps
    assert "--set validate.encoding=gb18030" in steps
    assert "--set validate.fail_on=" in steps


def test_an_answer_in_the_review_settles_it(data: Path) -> None:
    validated(data)
    layout = captioned(data)
    assert validated(data).exit_code == 3
    (waiting,) = [
        row for row in layout.review.read_text("utf-8-sig").splitlines() if "check" in row
    ]
    approve(layout, (waiting.split(",")[0],), all_drafts=False)
    report = validated(data)
    assert (report.exit_code, report.counts["unsure"], levels(report)) == (0, 0, {"advice"})


def test_an_answer_holds_for_the_caption_it_was_given_for(data: Path) -> None:
    validated(data)
    layout = captioned(data)
    approve(layout, (), all_drafts=True)
    rows = layout.review.read_text("utf-8-sig").splitlines()
    ids = tuple(row.split(",")[0] for row in rows if "check" in row)
    approve(layout, ids, all_drafts=False)
    assert validated(data).exit_code == 0
    (data / "0.txt").write_bytes("红色".encode("gbk"))
    assert validated(data).exit_code == 3


def test_a_review_that_cannot_be_read_settles_nothing(data: Path) -> None:
    validated(data)
    captioned(data).review.write_bytes(b"\x00\xff rubbish")
    report = validated(data)
    assert (report.exit_code, report.counts["unsure"]) == (3, 1)


def test_the_named_encoding_settles_it(data: Path) -> None:
    report = validated(data, encoding="gb18030")
    assert (report.exit_code, levels(report)) == (0, {"advice"})


@pytest.mark.parametrize(
    ("fail_on", "max_rejects", "exit_code"),
    [
        ((), 1, 0),
        ((), 0, 3),
        (("truncated",), 1, 0),
        (("zero-bytes",), 1, 3),
        (("reject",), 1, 3),
        (("encoding-unsure",), 1, 3),
        (("encoding-guessed",), 1, 0),
        (("check",), 1, 3),
        (("warning",), 1, 0),
        (("warning", "caption-orphan", "check"), 1, 3),
    ],
)
def test_what_is_named_ends_with_exit_3(
    data: Path, fail_on: tuple[str, ...], max_rejects: int, exit_code: int
) -> None:
    (data / "bad.png").touch()
    report = validated(data, fail_on=fail_on, max_rejects=max_rejects)
    assert (report.exit_code, report.ok) == (exit_code, exit_code == 0)
    assert report.counts["unsure"] == report.counts["rejected"] == 1


def test_a_named_warning_says_so(data: Path) -> None:
    (data / "orphan.txt").write_bytes(b"nobody")
    report = validated(data, fail_on=["caption-orphan"])
    assert report.exit_code == 3
    assert any("caption-orphan" in step.text for step in report.next_steps)


@pytest.mark.parametrize(
    ("name", "near"),
    [("trunkated", "truncated"), ("encoding-unsur", "encoding-unsure"), ("warn", "warning")],
)
def test_an_unknown_code_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_known_codes(("check", name))
    assert f'"{name}" is no problem code' in str(caught.value)
    assert f"did you mean {near}?" in str(caught.value)


def test_every_code_and_kind_may_be_named() -> None:
    require_known_codes([*FINDINGS, *LOADER_REJECTS, "reject", "check", "warning", "advice"])


@pytest.mark.parametrize(
    ("text", "codes"),
    [("", ()), ("truncated", ("truncated",)), (" a , b,", ("a", "b")), (["a"], ("a",))],
)
def test_codes_come_as_a_list_or_with_commas(text: object, codes: tuple[str, ...]) -> None:
    assert ValidateSettings(fail_on=text).fail_on == codes  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "kind"), [(True, "needed"), (False, "no"), ("all", "all")])
def test_fix_may_be_true(value: object, kind: str) -> None:
    assert ValidateSettings(fix=value).fix == kind  # type: ignore[arg-type]
