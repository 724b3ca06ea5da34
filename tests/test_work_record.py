"""A work folder knows its data and model: neither is mixed up, nor asked for twice."""

import json
import shutil
from pathlib import Path

import pytest

from latentmill.datasets.errors import UsageError
from latentmill.pipeline.config import Request, load_config, recall_config
from latentmill.pipeline.main import run
from latentmill.pipeline.run import claim_work, remember
from latentmill.pipeline.work_record import NAME


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _pictures(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


def _used(request: Request) -> Path:
    """Make the work folder as `validate` leaves it."""
    config = load_config(request)
    claim_work(config)
    layout = config.layout()
    layout.manifest.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            **{"id": path.name, "source": 0, "path": path.name, "file": str(path), "bytes": 5},
            **{"modified_ns": 1, "format": "PNG", "width": 1, "height": 1, "pixels": "x"},
            **{"codes": [], "checks": []},
        }
        for path in sorted(Path(config.data[0].path).iterdir())
    ]
    layout.manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    remember(config)
    return layout.work


def test_other_data_of_the_same_name_is_refused_with_both_folders_and_the_way_on() -> None:
    a, b = _pictures(Path("a/dog"), "1.png"), _pictures(Path("b/dog"), "2.png")
    work = _used(Request(data=str(a)))
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    with pytest.raises(UsageError) as raised:
        claim_work(load_config(Request(data=str(b))))
    assert str(a.resolve()) in raised.value.where
    assert str(b.resolve()) in raised.value.where
    assert [command.flags for command in raised.value.run] == [("--work", "work/dog-2")]
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before


def test_the_command_line_refuses_it_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = _pictures(Path("a/dog"), "1.png"), _pictures(Path("b/dog"), "2.png")
    _used(Request(data=str(a)))
    for stage in ("validate", "caption", "approve", "cache", "train", "status"):
        assert run([stage, "--data", str(b)]) == 2
        assert "latentmill " + stage + " --data b/dog --work work/dog-2" in capsys.readouterr().err


@pytest.mark.parametrize("spelling", ["a/dog/", "./a/dog", "a/../a/dog", "link/dog", "ABSOLUTE"])
def test_every_spelling_of_the_same_folder_is_the_same(spelling: str) -> None:
    _pictures(Path("a/dog"), "1.png")
    Path("link").symlink_to("a")
    _used(Request(data="a/dog"))
    given = str(Path("a/dog").absolute()) if spelling == "ABSOLUTE" else spelling
    assert claim_work(load_config(Request(data=given))) == ""


def test_a_source_may_be_added() -> None:
    _pictures(Path("a/dog"), "1.png")
    _pictures(Path("more"), "2.png")
    _used(Request(data="a/dog"))
    Path("run.toml").write_text('[[data]]\npath = "a/dog"\n[[data]]\npath = "more"\n')
    assert claim_work(load_config(Request(config="run.toml"))) == ""


def test_a_moved_data_folder_keeps_its_work() -> None:
    _pictures(Path("a/dog"), "1.png", "2.png")
    _used(Request(data="a/dog"))
    shutil.move("a", "b")
    assert "moved" in claim_work(load_config(Request(data="b/dog")))


def test_other_pictures_where_the_first_are_gone_are_no_move() -> None:
    _pictures(Path("a/dog"), "1.png")
    _used(Request(data="a/dog"))
    shutil.rmtree("a")
    _pictures(Path("b/dog"), "2.png")
    with pytest.raises(UsageError, match="belongs to other pictures"):
        claim_work(load_config(Request(data="b/dog")))


def test_a_work_folder_that_was_named_may_change_hands_and_it_is_said() -> None:
    _pictures(Path("a/dog"), "1.png")
    _pictures(Path("b/dog"), "2.png")
    _used(Request(data="a/dog", work="w"))
    assert "take their place" in claim_work(load_config(Request(data="b/dog", work="w")))


def test_a_work_folder_in_which_nothing_was_made_is_free() -> None:
    _pictures(Path("a/dog"))
    _pictures(Path("b/dog"))
    Path("work/dog").mkdir(parents=True)
    remember(load_config(Request(data="a/dog")))
    assert claim_work(load_config(Request(data="b/dog"))) == ""


def test_the_work_folder_alone_gives_back_data_and_model_and_says_so() -> None:
    _pictures(Path("a/dog"), "1.png")
    _used(Request(data="a/dog", model="m", work="w", assignments=("data.trigger=zwx",)))
    recalled = recall_config(Request(work="w"))
    (source,) = recalled.config.data
    assert (source.path, source.trigger) == (str(Path("a/dog").absolute()), "zwx")
    assert recalled.config.model.id == "m"
    assert "model m" in recalled.note
    assert str(Path("a/dog").absolute()) in recalled.note


def test_what_a_person_says_wins_over_what_is_recorded() -> None:
    _pictures(Path("a/dog"), "1.png")
    _used(Request(data="a/dog", model="m", work="w"))
    Path("run.toml").write_text('work = "w"\n[[data]]\npath = "b"\n[model]\nid = "n"\n')
    recalled = recall_config(Request(config="run.toml"))
    assert (recalled.config.data[0].path, recalled.config.model.id) == ("b", "n")
    assert recalled.note == ""


def test_settings_of_a_source_go_to_the_recorded_one() -> None:
    _pictures(Path("a/dog"), "1.png")
    _used(Request(data="a/dog", work="w"))
    config = load_config(Request(work="w", assignments=("data.trigger=x", "model.revision=r")))
    assert (config.data[0].trigger, config.model.revision) == ("x", "r")


def test_a_model_that_nobody_named_is_not_recorded() -> None:
    _pictures(Path("a/dog"), "1.png")
    work = _used(Request(data="a/dog"))
    assert json.loads((work / NAME).read_bytes())["model"] is None
    assert "model" not in recall_config(Request(data="a/dog")).note


def test_a_damaged_record_is_a_usage_error_that_names_it() -> None:
    _pictures(Path("a/dog"), "1.png")
    work = _used(Request(data="a/dog"))
    (work / NAME).write_text("{")
    with pytest.raises(UsageError, match="cannot be read") as raised:
        load_config(Request(data="a/dog"))
    assert raised.value.where == str(work / NAME)
