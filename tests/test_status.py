"""Status tells today's state, why, and the command that is next."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from latentmill.pipeline.main import run


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my dog"
    folder.mkdir()
    for number in range(3):
        _draw(folder / f"{number}.png", number)
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:200])
    assert run(["validate", "--data", str(folder), "--set", "validate.max_rejects=1"]) == 0
    return folder


def _draw(path: Path, seed: int) -> None:
    Image.effect_noise((96, 96), 40 + seed).convert("RGB").save(path)
    path.with_suffix(".txt").write_text(f"noise {seed}", encoding="utf-8")


def _status(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    assert run(["status", "--set", "validate.max_rejects=1", "--json", *flags]) == 0
    said = capsys.readouterr()
    state = json.loads(said.out)
    return {stage["name"]: stage for stage in state["stages"]} | state, said.err


def test_a_validated_set_is_fresh_and_its_account_closes(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, said = _status(capsys, "--data", str(data))
    assert state["validate"]["state"] == "fresh"
    assert state["validate"]["note"] == "4 pictures: 3 usable, 1 rejected"
    assert "pictures: 4 found = 3 usable + 1 rejected" in said
    assert state["closes"]


def test_the_work_folder_alone_is_enough_and_changes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del data
    state, said = _status(capsys, "--work", "work/my dog")
    assert state["validate"]["state"] == "fresh"
    assert "as last used in work/my dog" in said


def test_a_removed_and_a_new_picture_are_told_with_the_command(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "0.png").unlink()
    state, said = _status(capsys, "--data", str(data))
    assert (state["validate"]["state"], state["validate"]["note"]) == ("stale", "1 picture removed")
    assert f"latentmill validate --data '{data}' --set validate.max_rejects=1" in said
    assert not state["closes"]
    _draw(data / "8.png", 8)
    _draw(data / "9.png", 9)
    state, _ = _status(capsys, "--data", str(data))
    assert state["validate"]["note"] == "2 pictures new or changed, 1 picture removed"


def test_a_changed_caption_is_no_picture(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "0.txt").write_text("something else", encoding="utf-8")
    state, _ = _status(capsys, "--data", str(data))
    assert state["validate"]["note"] == "captions or settings changed"


def test_every_stage_that_is_not_fresh_says_how_to_go_on(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "1.png").unlink()
    (data / "1.txt").unlink()
    state, said = _status(capsys, "--data", str(data), "--model", "no/such-model-here")
    for stage in state["stages"]:
        assert stage["state"] == "fresh" or stage["next"] or "--model DIR" in said


def test_the_statuses_of_the_review_are_counted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["caption", "--data", str(data)]) == 0
    review = Path("work/my dog/review.csv")
    review.write_bytes(review.read_bytes().replace(b",ok,", b",check,", 1))
    state, said = _status(capsys, "--data", str(data))
    assert state["review"]["state"] == "waiting"
    assert "0 draft, 1 check, 2 ok, 0 skip" in said
    assert state["cache"]["state"] == "blocked"
    assert "captions: 3 usable = 2 to train on + 0 set aside + 1 waiting" in said
