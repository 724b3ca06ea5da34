"""Next commands are complete, quoted, and in the form that the person uses."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.next_steps import Command
from latentmill.pipeline.invocation import Invocation, read_flags, read_invocation

CACHE = "cache --data 'my dog' --work=w --set bucket.area=64 --set train.rank=4 --json"
UNSEEN = Command("cache", settings=("caption.accept_drafts=true",))


def _called(line: str, **environment: str) -> Invocation:
    return read_invocation("latentmill", shlex.split(line), environment)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (Command("train"), "train --data 'my dog' --work w"),
        (Command("train", ("--resume",)), "train --data 'my dog' --work w --resume"),
        (Command("train", ("--data", "DIR")), "train --data DIR --work w"),
    ],
)
def test_the_paths_and_settings_of_the_call_are_kept(command: Command, line: str) -> None:
    settings = "--set bucket.area=64 --set train.rank=4"
    assert _called(CACHE).spell(command) == f"latentmill {line} {settings}"


def test_a_setting_that_the_command_names_replaces_the_one_given() -> None:
    line = _called(CACHE).spell(Command("train", settings=("train.rank=8",)))
    assert line.endswith("--set bucket.area=64 --set train.rank=8")


def test_the_same_command_keeps_its_own_flags() -> None:
    again = _called("sample --run 3 --work w").spell(Command(settings=("sample.device=cpu",)))
    assert again == "latentmill sample --work w --run 3 --set sample.device=cpu"


def test_make_gets_its_own_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    called = _called("cache --data 'my dog' --set a=b", LATENTMILL_MAKE_FROM=str(tmp_path))
    assert called.spell(Command("train")) == "make train DATA='my dog' ARGS='--set a=b'"
    assert called.spell(Command("approve", ("--all-drafts",))) == (
        "make approve DATA='my dog' ARGS='--set a=b'"
    )
    assert called.spell(Command("config")).startswith("latentmill config --data")


def test_make_from_elsewhere_and_with_another_venv_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    called = _called("cache --data d", LATENTMILL_MAKE_FROM="/", VENV="/my venv")
    assert called.spell(Command("train")) == (
        f"make -C {shlex.quote(str(tmp_path))} VENV='/my venv' train DATA=d"
    )


@pytest.mark.parametrize("line", ["", "--help", "cache --data", "cache --set", "cache --data= -x"])
def test_wrong_command_lines_are_read_too(line: str) -> None:
    assert _called(line).spell(Command("train")).startswith("latentmill train")


@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=4, max_size=4))
def test_a_shell_reads_back_what_was_given(values: list[str]) -> None:
    data, model, work, text = values
    called = Invocation(
        "cache",
        (("--data", data), ("--model", model), ("--work", work)),
        (f"sample.negative={text}",),
    )
    words = shlex.split(called.spell(UNSEEN))
    given_back = read_flags(words[2:])
    assert words[:2] == ["latentmill", "cache"]
    assert dict(given_back.paths) == {"--data": data, "--model": model, "--work": work}
    assert given_back.settings == (f"sample.negative={text}", "caption.accept_drafts=true")
