"""A call that crashes, hangs, eats memory or prints costs that call only."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from latentmill.datasets.errors import LatentmillError
from latentmill.datasets.isolation import Answer, Failure, Isolated, Limits


def obey(line: str) -> str:
    """Do in the child what the test asks for."""
    order, _, what = line.partition(" ")
    return _ORDERS[order](what)


def _segfault(_: str) -> str:
    return repr(ctypes.string_at(0))


def _overflow(_: str) -> str:
    sys.setrecursionlimit(10**9)

    def deeper(depth: int) -> int:
        return len(sorted([0, 1], key=lambda _: deeper(depth + 1)))  # C frames between Python's.

    return str(deeper(0))


def _raise(signal_name: str) -> str:
    os.kill(os.getpid(), getattr(signal, signal_name))
    time.sleep(60)
    return "alive"


def _fail(name: str) -> str:
    raise {"disk": OSError(28, "No space left on device", "thumb.jpg"), "bug": ZeroDivisionError()}[
        name
    ]


def _print(text: str) -> str:
    sys.stdout.write(f"{text} on standard output\n")
    sys.stdout.flush()
    os.write(1, b"C on 1\n")
    os.write(2, f"{text}\n\n".encode())
    return "printed"


def _exit(code: str) -> str:
    os.write(2, b"last words\n")
    os._exit(int(code))


def _sleep_holding_python(_: str) -> str:
    ctypes.PyDLL(None).sleep(60)  # As a decoder that never lets another thread run.
    return ""


_ORDERS = {
    "echo": lambda what: what,
    "pid": lambda _: str(os.getpid()),
    "segfault": _segfault,
    "overflow": _overflow,
    "raise": _raise,
    "fail": _fail,
    "print": _print,
    "exit": _exit,
    "sleep": lambda what: str(time.sleep(float(what))),
    "hold": _sleep_holding_python,
    "eat": lambda what: str(len(bytearray(int(what)))),
}


@pytest.fixture
def call() -> Iterator[Isolated]:
    isolated = Isolated(obey, Limits(30, 2**30))
    yield isolated
    isolated.close()


def failure(outcome: Answer | Failure) -> Failure:
    assert isinstance(outcome, Failure)
    return outcome


def text(outcome: Answer | Failure) -> str:
    assert isinstance(outcome, Answer)
    return outcome.text


@pytest.mark.parametrize("words", ["", "猫 'x'", "\\ud800 \\n", "x" * 1_000_000])
def test_text_comes_back_as_it_went(call: Isolated, words: str) -> None:
    assert call(f"echo {words}") == Answer(words, "")


def test_one_child_answers_call_after_call(call: Isolated) -> None:
    pids = {text(call("pid")) for _ in range(5)}
    assert len(pids) == 1
    assert str(os.getpid()) not in pids


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("segfault", "SIGSEGV (Segmentation fault)"),
        ("overflow", "SIGSEGV (Segmentation fault)"),
        ("raise SIGABRT", "SIGABRT (Aborted)"),
        ("raise SIGFPE", "SIGFPE (Floating point exception)"),
        ("raise SIGBUS", "SIGBUS (Bus error)"),
        ("raise SIGTERM", "SIGTERM (Terminated)"),
        ("exit 3", "exit code 3; its last words: last words"),
        ("exit 0", "exit code 0; its last words: last words"),
    ],
)
def test_a_crash_is_told_by_its_signal_and_the_next_call_works(
    call: Isolated, order: str, said: str
) -> None:
    assert call(order) == Failure("decoder-crashed", f"The decoder crashed with {said}")
    assert text(call("echo next")) == "next"


def test_a_killed_child_is_taken_for_short_memory(call: Isolated) -> None:
    outcome = failure(call("raise SIGKILL"))
    assert outcome.code == "out-of-memory"
    assert "SIGKILL" in outcome.message


@pytest.mark.slow
def test_many_crashes_in_a_row_end(call: Isolated) -> None:
    codes = [failure(call("segfault")).code for _ in range(5)]
    assert codes == ["decoder-crashed"] * 5


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sleep 60", "hold", "raise SIGSTOP"])
def test_a_call_that_hangs_is_ended(order: str) -> None:
    call = Isolated(obey, Limits(0.5, 2**30))
    assert call(order) == Failure("too-slow", "Not done after 0.5 seconds")
    assert text(call("echo next")) == "next"
    call.close()


@pytest.mark.slow
def test_memory_is_limited_for_the_child_alone(call: Isolated) -> None:
    outcome = failure(call(f"eat {2**30}"))
    assert outcome == Failure("out-of-memory", "It needs more memory than 1 GiB, or than is free")
    assert text(call("eat 1000000")) == "1000000"
    assert len(bytearray(2**30)) == 2**30


def test_a_child_that_dies_between_calls_blames_no_call(call: Isolated) -> None:
    victim = psutil.Process(int(text(call("pid"))))
    victim.kill()
    psutil.wait_procs([victim], timeout=10)
    assert text(call("echo next")) == "next"


def test_what_is_printed_stays_inside_and_its_last_line_is_told(
    call: Isolated, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("print libtiff: bad strip") == Answer("printed", "libtiff: bad strip")
    assert call("echo quiet") == Answer("quiet", "")
    assert capfd.readouterr() == ("", "")


def test_a_full_disk_is_raised_as_it_was(call: Isolated) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        call("fail disk")
    assert (caught.value.errno, caught.value.filename) == (28, "thumb.jpg")
    assert text(call("echo next")) == "next"


def test_a_bug_is_raised_with_its_place(call: Isolated) -> None:
    with pytest.raises(LatentmillError, match="ZeroDivisionError"):
        call("fail bug")


def test_a_python_that_does_not_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(LatentmillError, match="does not start") as caught:
        Isolated(obey, Limits(1, 2**30))("echo x")
    assert "Error" in caught.value.expected


def _start_parent(tmp_path: Path, order: str) -> tuple["subprocess.Popen[bytes]", psutil.Process]:
    """Start a Python whose child does `order`; return both."""
    script = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from {obey.__module__} import obey
        from latentmill.datasets.isolation import Isolated, Limits
        call = Isolated(obey, Limits(60, 2**30))
        with open({str(tmp_path / "pid.new")!r}, "w") as file:
            file.write(call("pid").text)
        import os
        os.rename({str(tmp_path / "pid.new")!r}, {str(tmp_path / "pid")!r})
        call({order!r})
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=-3)
    while not (tmp_path / "pid").exists() and parent.poll() is None:
        time.sleep(0.02)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    time.sleep(0.2)  # Now it is at work.
    return parent, child


@pytest.mark.slow
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_working_child_ends_with_its_parent(tmp_path: Path, signal_name: str) -> None:
    parent, child = _start_parent(tmp_path, "sleep 60")
    parent.send_signal(getattr(signal, signal_name))
    parent.wait(20)
    _, alive = psutil.wait_procs([child], timeout=20)
    assert alive == []
