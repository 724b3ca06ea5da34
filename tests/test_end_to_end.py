"""From a folder of real photographs to a LoRA, through the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from latentmill.pipeline.main import run

SMALL = (
    "bucket.area=64",
    "bucket.step=16",
    "bucket.min=32",
    "bucket.max=128",
    "train.epochs=2",
    "train.save_every=2",
    "sample.steps=2",
    "sample.num_prompts=2",
)


def _arguments(stage: str, data: Path, model: Path, work: Path, *more: str) -> list[str]:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    paths = ["--data", str(data), "--model", str(model), "--work", str(work)]
    return [stage, *paths, *settings, *more]


def _report(
    capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int = 0
) -> dict[str, Any]:
    code = run([*arguments, "--json"])
    captured = capsys.readouterr()
    assert code == exit_code, captured.err
    assert "Traceback" not in captured.err
    return dict(json.loads(captured.out))


def _content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_photographs_become_a_lora_and_nothing_is_encoded_twice(
    photos: Path, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, before = tmp_path / "work 作", _content(photos)

    validated = _report(capsys, _arguments("validate", photos, small_model, work))
    assert validated["counts"]["found"] == validated["counts"]["usable"] == 8
    captioned = _report(capsys, _arguments("caption", photos, small_model, work))
    assert (captioned["counts"]["drafted"], captioned["counts"]["from_files"]) == (0, 8)
    bucketed = _report(capsys, _arguments("bucket", photos, small_model, work))
    assert bucketed["ok"]
    first = _report(capsys, _arguments("cache", photos, small_model, work))["counts"]
    assert (first["samples"], first["encoded_latents"], first["encoded_texts"]) == (8, 8, 8)

    shards = _content(work / "cache" / "shards")
    again = _report(capsys, _arguments("cache", photos, small_model, work))["counts"]
    assert (again["encoded_latents"], again["encoded_texts"], again["shards_written"]) == (0, 0, 0)
    assert _content(work / "cache" / "shards") == shards

    lean = tmp_path / "lean"
    shutil.copytree(small_model, lean)
    for part in ("vae", "text_encoder", "tokenizer"):
        shutil.rmtree(lean / part)
    trained = _report(capsys, _arguments("train", photos, lean, work))["counts"]
    assert (trained["samples"], trained["held_out"], trained["samples_seen"]) == (8, 0, 16)

    _report(capsys, _arguments("sample", photos, small_model, work))
    (comparison,) = work.glob("runs/*/samples/**/comparison.png")
    assert min(Image.open(comparison).size) > 64
    _report(capsys, ["export", "--data", str(photos), "--work", str(work)])
    assert list(work.glob("runs/*/export/**/*.safetensors"))
    status = _report(capsys, _arguments("status", photos, small_model, work))
    assert status["closes"]
    assert [stage["state"] for stage in status["stages"]] == ["fresh"] * 5
    assert _content(photos) == before

    (photos / "grass.txt").write_text("a lawn", encoding="utf-8")
    for stage in ("validate", "caption", "cache"):
        _report(capsys, _arguments(stage, photos, small_model, work))
    status = _report(capsys, _arguments("status", photos, small_model, work))
    assert [stage["state"] for stage in status["stages"]] == ["fresh"] * 4 + ["stale"]


def _cached(photos: Path, model: Path, work: Path) -> None:
    for stage in ("validate", "caption", "cache"):
        assert run(_arguments(stage, photos, model, work)) == 0


@pytest.mark.slow
def test_a_shard_cut_by_hand_is_named_before_training_and_mended_by_cache(
    photos: Path, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    _cached(photos, small_model, work)
    shard = max((work / "cache" / "shards").glob("*.tar"), key=lambda path: path.stat().st_size)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-700])
    capsys.readouterr()

    assert run(_arguments("train", photos, small_model, work)) == 3
    said = capsys.readouterr().err
    assert shard.name in said
    assert "latentmill cache" in said
    assert run(_arguments("cache", photos, small_model, work)) == 0
    assert shard.read_bytes() == whole
