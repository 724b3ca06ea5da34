"""What the command line answers to mistakes: one message, the right exit code, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from latentmill.datasets.errors import Stopped
from latentmill.datasets.next_steps import Command
from latentmill.pipeline.main import run
from latentmill.pipeline.stages import ORDER

STAGES_FROM_DATA = ("validate", "caption", "bucket", "cache", "train")


def _answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = run([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return code, said


def _picture(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((96, 96), 40 + seed).convert("RGB").save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for number in range(3):
        _picture(data / f"{number}.png", number).with_suffix(".txt").write_text(f"noise {number}")
    return data


def test_help_names_every_stage_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    said = capsys.readouterr().out
    places = [said.index(f"  {stage} ") for stage in ORDER]
    assert places == sorted(places)


@pytest.mark.parametrize("stage", [*ORDER, "approve", "status", "config", "demo"])
def test_every_command_has_help(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([stage, "--help"]) == 0
    assert "--help" in capsys.readouterr().out


@pytest.mark.parametrize("stage", STAGES_FROM_DATA)
def test_no_data_is_a_usage_error(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _answer(capsys, stage)
    assert code == 2
    assert "--data DIR" in said


@pytest.mark.parametrize("stage", STAGES_FROM_DATA[1:])
def test_a_stage_before_its_turn_names_the_one_to_run(
    stage: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = _answer(capsys, stage, "--data", folder, "--work", tmp_path / "w")
    assert code == 2
    assert f"latentmill {'cache' if stage == 'train' else 'validate'}" in said


def test_a_missing_data_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _answer(capsys, "validate", "--data", tmp_path / "没有", "--work", tmp_path / "w")
    assert code == 2
    assert "没有" in said


def test_an_empty_folder_and_one_without_pictures_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "a.mp4").write_bytes(b"x")
    empty, said_empty = _answer(
        capsys, "validate", "--data", tmp_path / "empty", "--work", tmp_path / "w"
    )
    films, said_films = _answer(
        capsys, "validate", "--data", tmp_path / "films", "--work", tmp_path / "w"
    )
    assert empty in (2, 3)
    assert films in (2, 3)
    assert ".mp4" in said_films
    assert said_empty != said_films


def test_pictures_without_any_caption_stop_before_the_cache(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _picture(tmp_path / "data" / "a.png")
    flags = ("--data", tmp_path / "data", "--work", tmp_path / "w", "--model", small_model)
    assert _answer(capsys, "validate", *flags)[0] == 0
    code, said = _answer(capsys, "cache", *flags)
    assert code == 3
    assert "latentmill caption" in said


def test_a_broken_picture_is_a_reject_and_the_rest_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:200])
    (folder / "page.jpg").write_bytes(b"<html>")
    code, said = _answer(capsys, "validate", "--data", folder, "--work", tmp_path / "w")
    assert code == 3
    assert "broken.png" in said
    assert "page.jpg" in said
    report = json.loads((tmp_path / "w" / "validate" / "report.json").read_text())
    assert (report["counts"]["usable"], report["counts"]["rejected"]) == (3, 2)


def test_flags_of_validate_decide_the_exit_code_and_the_repair(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("validate", "--data", folder, "--work", tmp_path / "w")
    (folder / "broken.png").touch()
    (folder / "0.txt").write_bytes(b"\xef\xbb\xbfa cat")
    assert _answer(capsys, *flags)[0] == 3
    assert _answer(capsys, *flags, "--max-rejects", "1", "--fix")[0] == 0
    assert len(list((tmp_path / "w" / "validate" / "fixed").glob("*-0.*"))) == 2
    code, said = _answer(capsys, *flags, "--max-rejects", "1", "--fail-on", "zero-byte,check")
    assert code == 2
    assert "did you mean zero-bytes?" in said
    assert _answer(capsys, *flags, "--max-rejects", "1", "--fail-on", "zero-bytes,check")[0] == 3


@pytest.fixture
def reviewed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str | Path]:
    flags: list[str | Path] = ["--data", folder, "--work", tmp_path / "w"]
    assert _answer(capsys, "validate", *flags)[0] == 0
    return [*flags, "--set", "bucket.area=64", "--set", "bucket.min=32", "--set", "bucket.step=16"]


def test_a_model_without_a_unet_is_named(
    reviewed: list[str | Path],
    small_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _answer(capsys, "cache", *reviewed, "--model", small_model)[0] == 0
    (tmp_path / "m" / "vae").mkdir(parents=True)
    code, said = _answer(capsys, "train", *reviewed, "--model", tmp_path / "m")
    assert code == 7
    assert "unet" in said


def test_a_model_that_cannot_be_fetched_says_where_to_put_a_copy(
    reviewed: list[str | Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = _answer(capsys, "cache", *reviewed, "--model", "nobody/no-such-model")
    assert code == 7
    assert "nobody/no-such-model" in said
    assert "--model" in said


def test_a_pickle_checkpoint_is_refused_with_the_reason(
    reviewed: list[str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.ckpt").write_bytes(b"\x80\x04")
    code, said = _answer(capsys, "cache", *reviewed, "--model", tmp_path / "model.ckpt")
    assert code == 7
    assert "safetensors" in said


def test_a_work_folder_that_cannot_be_made_is_a_usage_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    code, said = _answer(capsys, "validate", "--data", folder, "--work", tmp_path / "file" / "w")
    assert code == 2
    assert "--work DIR" in said


def test_a_second_cache_on_the_same_work_leaves_with_the_owner(
    reviewed: list[str | Path],
    small_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "w" / "cache" / "lock"
    code = (
        "import sys; from pathlib import Path; from latentmill.cache.lock import held\n"
        "with held(Path(sys.argv[1]), 'latentmill cache'): print('held', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    code_busy, said = _answer(capsys, "cache", *reviewed, "--model", small_model)
    other.kill()
    other.wait()
    assert code_busy == 2
    assert str(other.pid) in said
    assert _answer(capsys, "cache", *reviewed, "--model", small_model)[0] == 0


def test_a_dry_run_writes_no_manifest(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = _answer(
        capsys, "validate", "--data", folder, "--work", tmp_path / "w", "--dry-run"
    )
    assert code == 0
    assert "validate: 3 pictures to do" in said
    assert not (tmp_path / "w" / "validate" / "manifest.jsonl").exists()


@pytest.mark.parametrize("error", [BrokenPipeError(), SystemExit(1)])
def test_a_reader_that_goes_away_is_no_fault(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr("latentmill.pipeline.running.app", broken)
    monkeypatch.setattr("latentmill.pipeline.running._silence", lambda: None)
    assert run(["config"]) == 130
    assert capsys.readouterr().err == ""


def test_processes_write_what_serial_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for work, kind in (("a", "serial"), ("b", "processes")):
        flags = ("--work", tmp_path / work, "--set", f"engine.kind={kind}")
        assert _answer(capsys, "validate", "--data", folder, *flags)[0] == 0
    manifests = [(tmp_path / work / "validate" / "manifest.jsonl").read_bytes() for work in "ab"]
    assert manifests[0] == manifests[1]


def test_status_shows_a_review_that_cannot_be_read_as_blocked(
    reviewed: list[str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w" / "review.csv").write_bytes(b"PK\x03\x04 xl/workbook.xml")
    code, said = _answer(capsys, "status", *reviewed)
    assert code == 0
    assert "caption   blocked  review.csv is no CSV file but an Excel workbook (.xlsx)" in said


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (KeyboardInterrupt(), "latentmill validate "),
        (Stopped(Command("train", ("--resume",))), "latentmill train "),
    ],
)
def test_an_interruption_says_how_to_go_on(
    error: BaseException,
    again: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    def interrupted(*_: object) -> int:
        raise error

    monkeypatch.setattr("latentmill.pipeline.commands.run_stage", interrupted)
    monkeypatch.setattr("latentmill.pipeline.running.signal.signal", lambda *_: None)
    code, said = _answer(capsys, "validate", "--data", folder, "--work", folder.parent)
    assert code == 130
    assert said.startswith("interrupted; to go on where it stopped:")
    assert again in said


def test_approve_is_refused_while_another_command_may_write_the_review(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentmill.cache.lock import held

    with held(tmp_path / "w" / "caption" / "lock", "latentmill review"):
        assert run(["approve", "--work", str(tmp_path / "w"), "--all-drafts"]) == 2
    assert "latentmill review (process" in capsys.readouterr().err
