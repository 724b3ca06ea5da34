import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.stages.training.run_folder import (
    create_run,
    cut_metrics,
    environment,
    find_run,
    list_runs,
    slug,
    write_snapshot,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("My Dog", "my-dog"),
        ("猫 写真 🐱", "猫-写真"),
        ("Ame\u0301lie", "amélie"),
        ("../a/b\\c", "a-b-c"),
        ("🐱", "run"),
        ("", "run"),
        ("bad\udcff name", "bad-name"),
        ("x" * 300, "x" * 60),
        ("猫" * 90, "猫" * 20),
        ("snake_case", "snake-case"),
    ],
)
def test_slugs(name: str, expected: str) -> None:
    assert slug(name) == expected


@given(st.text())
def test_any_name_gives_a_folder_name(name: str) -> None:
    made = slug(name)
    assert made
    assert len(made.encode("utf-8")) <= 60
    assert not {*made} & {"/", "\\", ".", " ", "\0", ":", "*", "?"}


def test_runs_are_numbered_in_order(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    names = [create_run(layout, "dog").name for _ in range(2)]
    (layout.runs / "999-old").mkdir()
    (layout.runs / "notes").mkdir()
    names += [create_run(layout, name).name for name in ("cat", "cat")]
    assert names == ["001-dog", "002-dog", "1000-cat", "1001-cat"]
    assert [run.name for run in list_runs(layout)] == [
        *("001-dog", "002-dog", "999-old", "1000-cat", "1001-cat")
    ]


def test_a_run_is_found_by_folder_name_number_and_ending(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    dog, cat = create_run(layout, "dog"), create_run(layout, "cat")
    assert find_run(layout, None) == cat
    for wanted in (dog, Path("001-dog"), Path("1"), Path("001"), Path("dog")):
        assert find_run(layout, wanted) == dog


def test_a_run_s_name_goes_before_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / "work")
    dog = create_run(layout, "dog")
    (tmp_path / "dog").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_run(layout, Path("dog")) == dog


def test_unknown_and_ambiguous_runs_are_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(UsageError, match="no run to go on with"):
        find_run(layout, None)
    for _ in range(2):
        create_run(layout, "dog")
    with pytest.raises(UsageError, match="more than one run") as raised:
        find_run(layout, Path("dog"))
    assert "001-dog, 002-dog" in raised.value.expected
    with pytest.raises(UsageError, match="no run is called bird"):
        find_run(layout, Path("bird"))


def test_the_snapshot_holds_what_there_is(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.manifest.parent.mkdir()
    layout.manifest.write_bytes(b"{}\n")
    layout.review.write_bytes(b"\xef\xbb\xbfid\r\n")
    run = create_run(layout, "dog")
    write_snapshot(run, layout, "[train]\n")
    assert (run / "config.toml").read_text() == "[train]\n"
    assert (run / "snapshot" / "manifest.jsonl").read_bytes() == b"{}\n"
    assert (run / "snapshot" / "review.csv").read_bytes() == b"\xef\xbb\xbfid\r\n"
    assert not (run / "snapshot" / "cache-index.json").exists()
    assert json.loads((run / "snapshot" / "environment.json").read_text()) == environment()


def test_metrics_are_cut_after_a_step(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    cut_metrics(file, 2)
    assert file.read_text() == '{"step": 1}\n{"step": 2}\n'
    cut_metrics(file, 0)
    assert file.read_text() == ""
    cut_metrics(tmp_path / "absent.jsonl", 0)
    assert not (tmp_path / "absent.jsonl").exists()
