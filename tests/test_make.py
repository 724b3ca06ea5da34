"""What make hands to latentmill, byte for byte, and what latentmill says back in make's form."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from latentmill.datasets.next_steps import Command
from latentmill.pipeline.invocation import TARGETS, read_invocation

ROOT = Path(__file__).parent.parent
STUB = """#!/bin/sh
exec python3 -c 'import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["LATENTMILL_MAKE_FROM"]]))' "$@"
"""
ODD = (
    "plain",
    "two words",
    "it's",
    'a "quoted" name',
    "cost $5 $(HOME) ${HOME} $$",
    "back\\slash \\n",
    "写真 フォト 사진",
    "🐕 emoji 🐈‍⬛",
    "semi; colon & and | pipe",
    "star * ? [a] {b,c}",
    "hash # tag",
    "-dash",
    "~/home",
    "equals=sign",
    "`backtick`",
    "per%cent",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the Makefile with a set-up that is done, and a latentmill that shows arguments."""
    folder = tmp_path_factory.mktemp("make")
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    program = folder / ".venv" / "bin" / "latentmill"
    program.parent.mkdir(parents=True)
    program.write_text(STUB)
    program.chmod(0o755)
    (folder / ".venv" / ".set-up").touch()
    return folder


def _make(place: Path, *words: str, **environment: str) -> tuple[list[str], str]:
    """The arguments that latentmill gets, and the folder that make was started in."""
    clean = {name: at for name, at in os.environ.items() if name not in ("DATA", "WORK", "VENV")}
    done = subprocess.run(
        ["make", *words],
        cwd=place,
        env={**clean, "PWD": str(place), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, start = json.loads(done.stdout)
    return arguments, start


@pytest.mark.parametrize("text", ODD)
def test_data_and_work_arrive_as_they_are(place: Path, text: str) -> None:
    arguments, _ = _make(place, "cache", f"DATA={text}", f"WORK={text}/w")
    assert arguments == ["cache", "--data", text, "--work", f"{text}/w"]


def test_they_arrive_from_the_environment_too(place: Path) -> None:
    text = " ".join(ODD)
    arguments, _ = _make(place, "validate", DATA=text, MODEL=text, CONFIG=text)
    assert arguments == ["validate", "--config", text, "--data", text, "--model", text]


def test_arguments_are_words_of_a_shell(place: Path) -> None:
    arguments, _ = _make(place, "train", "ARGS=--set 'data.trigger=zwx dog' --resume")
    assert arguments == ["train", "--set", "data.trigger=zwx dog", "--resume"]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [("", ["--all-drafts"]), ("--id p1", ["--id", "p1"]), ("--json", ["--json", "--all-drafts"])],
)
def test_approve_takes_all_drafts_unless_ids_are_named(
    place: Path, given: str, arguments: list[str]
) -> None:
    assert _make(place, "approve", f"ARGS={given}")[0] == ["approve", *arguments]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_runs_its_command(place: Path, target: str) -> None:
    assert _make(place, target, "WORK=w")[0][:3] == [target, "--work", "w"]


@pytest.mark.parametrize("text", ODD)
def test_the_next_command_that_is_shown_can_be_pasted(
    place: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    called = read_invocation(
        "latentmill",
        ["cache", "--data", text, "--work", f"{text}/w"],
        {"LATENTMILL_MAKE_FROM": str(place)},
    )
    shown = called.spell(Command("train", settings=(f"data.trigger={text}",)))
    words = shlex.split(shown)
    assert words[:2] == ["make", "train"]
    arguments, start = _make(place, *words[1:])
    expected = ["train", "--data", text, "--work", f"{text}/w", "--set", f"data.trigger={text}"]
    assert (arguments, start) == (expected, str(place))
