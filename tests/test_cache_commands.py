"""`latentmill cache` and its commands, as they are typed."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from latentmill.pipeline.main import run

if TYPE_CHECKING:
    from conftest import PictureSet

COMMANDS = ("verify", "stats", "gc", "export", "import-kohya")


@pytest.fixture
def flags(encoded_set: "PictureSet") -> list[str]:
    """The shared flags for the encoded set."""
    settings = ("cache.shard_size=2", "cache.device=cpu", "bucket.area=64", "bucket.step=16")
    more = ("bucket.min=32", "bucket.max=128", "validate.min_side=16")
    more = (*more, 'sample.prompts=["a red circle"]', "sample.negative=blurry")
    assignments = [part for one in (*settings, *more) for part in ("--set", one)]
    paths = [("--data", encoded_set.data), ("--model", encoded_set.model)]
    paths = [*paths, ("--work", encoded_set.layout.work)]
    return [*(str(part) for pair in paths for part in pair), *assignments]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_says_what_it_does(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out
    assert run(["cache", "--help"]) == 0
    assert f"  {command} " in capsys.readouterr().out


def test_flags_stand_before_or_after_the_command(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", "verify", *flags, "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert run(["cache", *flags, "--json", "verify"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["counts"] == after["counts"]
    assert after["counts"].items() >= {"shards": 3, "samples": 5, "damaged": 0}.items()
    assert (after["stage"], after["ok"]) == ("cache verify", True)


def test_damage_is_named_with_exit_code_3_and_the_way_on_mends_it(
    flags: list[str], encoded_set: "PictureSet", capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted(encoded_set.layout.shards.glob("*.tar"))[0]
    content = bytearray(path.read_bytes())
    content[777] ^= 4
    path.write_bytes(content)
    assert run(["cache", "verify", *flags]) == 3
    said = capsys.readouterr().err
    assert path.name in said
    assert "latentmill cache --data" in said
    assert "Traceback" not in said
    assert run(["cache", *flags]) == 0
    assert run(["cache", "verify", *flags]) == 0


def test_gc_tells_before_it_deletes(
    flags: list[str], encoded_set: "PictureSet", capsys: pytest.CaptureFixture[str]
) -> None:
    (encoded_set.data / "4.png").unlink()
    (encoded_set.data / "3.png").unlink()
    encoded_set.cached()
    num = len(encoded_set.shard_bytes())
    capsys.readouterr()
    assert run(["cache", "gc", *flags]) == 0
    said = capsys.readouterr().err
    assert said.count("no work uses it") == 2
    assert "gc --yes" in said
    assert len(encoded_set.shard_bytes()) == num
    assert run(["cache", "gc", *flags, "--yes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["deleted"] == len(report["problems"]) == 3
    assert len(encoded_set.shard_bytes()) == num - 2


def test_gc_waits_for_a_running_cache(
    flags: list[str], encoded_set: "PictureSet", capsys: pytest.CaptureFixture[str]
) -> None:
    from latentmill.cache.lock import held
    from latentmill.cache.part import Part

    for part in (None, Part(2, 3)):
        lock = encoded_set.layout.cache_folder / "lock"
        with held(lock, "latentmill cache", part):
            assert run(["cache", "gc", *flags, "--yes"]) == 2
        assert f"latentmill cache (process {os.getpid()}" in capsys.readouterr().err


def test_stats_are_told_and_given_as_json(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", "stats", *flags, "--json"]) == 0
    said = capsys.readouterr()
    assert "this work:   3 shards, 5 samples" in said.err
    assert json.loads(said.out)["counts"]["used_shards"] == 3


def test_an_export_stays_out_of_the_data_folder(
    flags: list[str],
    encoded_set: "PictureSet",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["cache", "export", str(tmp_path / "out"), *flags]) == 0
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 6
    assert run(["cache", "export", str(encoded_set.data / "out"), *flags]) == 2
    assert "read only" in capsys.readouterr().err
    assert not (encoded_set.data / "out").exists()


def test_parts_are_run_by_the_flag_and_by_the_launcher(
    flags: list[str],
    encoded_set: "PictureSet",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, index = encoded_set.shard_bytes(), encoded_set.layout.cache_index.read_bytes()
    for path in (*encoded_set.layout.shards.iterdir(), encoded_set.layout.cache_index):
        path.unlink()
    assert run(["cache", *flags, "--part", "2/2"]) == 0
    assert "run once" in capsys.readouterr().err
    assert not encoded_set.layout.cache_index.exists()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["cache", *flags, "--part", "auto"]) == 0
    assert encoded_set.shard_bytes() == whole
    assert encoded_set.layout.cache_index.read_bytes() == index
    assert run(["cache", *flags, "--part", "3/2"]) == 2
    assert run(["cache", *flags, "--part", "1/2", "verify"]) == 2
