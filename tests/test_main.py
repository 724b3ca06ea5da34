"""An interruption ends a command in plain lines and with exit code 130, at any moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latentmill.datasets.errors import Stopped
from latentmill.datasets.next_steps import Command
from latentmill.pipeline.main import run

ROOT = Path(__file__).parent.parent
ENTRY = "from latentmill.pipeline.main import main; main()"
AT_IMPORT = "import os, time; os.kill(os.getpid(), {number}); time.sleep(60)"
AT_WORK = """
import os, sys, time
import latentmill.pipeline.running as running
from latentmill.pipeline.main import main

def work(**_):
    os.kill(os.getpid(), {number})
    time.sleep(60)

running.app = work
sys.argv[1:] = ["validate", "--data", "my dog"]
main()
"""


def _ended(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(path), str(ROOT / ".typing")])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_ends_in_one_line(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(AT_IMPORT.format(number=int(number)))
    done = _ended(ENTRY, tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted before anything was done\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_stage_names_the_command_that_goes_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    done = _ended(AT_WORK.format(number=int(number)), tmp_path)
    assert done.returncode == 130
    assert done.stderr == (
        "interrupted; to go on where it stopped:\n  latentmill validate --data 'my dog'\n"
    )


def _raising(error: BaseException, cause: BaseException | None = None) -> object:
    def app(**_: object) -> int:
        raise error from cause

    return app


@pytest.mark.parametrize(
    ("error", "cause", "command"),
    [
        (Stopped(Command("train", ("--resume",))), None, "latentmill train --work w --resume\n"),
        (ImportError("torch"), KeyboardInterrupt(), "latentmill train --work w\n"),
    ],
)
def test_what_was_saved_and_what_a_library_made_of_it_are_seen(
    error: BaseException,
    cause: BaseException | None,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("latentmill.pipeline.running.app", _raising(error, cause))
    try:
        assert run(["train", "--work", "w"]) == 130
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err.endswith(command)
