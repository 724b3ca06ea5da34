"""A function from text to text, called in a child process: a crash or a hang there costs one call.

The child is kept from call to call and replaced when it has ended. What it prints goes to a file
of its own, so that C libraries cannot write between the program's lines.
"""

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from latentmill.datasets.errors import LatentmillError

Function = Callable[[str], str]

_START_SECONDS = 120.0  # For an interpreter and its imports, on a busy machine with a slow disk.
_GRACE_SECONDS = 5.0
_PRINTED_BYTES = 4096
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from latentmill.datasets.isolation import serve; serve(json.loads(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may take: seconds by the clock, and bytes of its process's memory."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the function returned, and the last line that was printed meanwhile."""

    text: str
    printed: str


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer: the code `decoder-crashed`, `out-of-memory` or `too-slow`, and what was seen."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class _Child:
    process: "subprocess.Popen[bytes]"
    replies: "queue.SimpleQueue[str | None]"
    printed: IO[bytes]


class Isolated:
    """One function of a module, called in a child process under limits, one call at a time."""

    def __init__(self, function: Function, limits: Limits) -> None:
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._limits = limits
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def __call__(self, line: str) -> Answer | Failure:
        """Return what the function makes of `line`, which holds no line end, or why nothing came.

        Raise the function's OSError as it was; LatentmillError for any other, and when no child
        can be started.
        """
        with self._lock:
            child = self._living_child()
            try:
                return self._ask(child, line)
            except BaseException:  # Also Ctrl-C: the child would answer the next call with this.
                self._end(child)
                raise

    def close(self) -> None:
        """End the child; a later call starts another."""
        with self._lock:
            if self._child is not None:
                self._end(self._child)

    def _living_child(self) -> _Child:
        if self._child is not None and self._child.process.poll() is not None:
            self._end(self._child)
        if self._child is None:
            self._child = _start(self._name, self._limits)
        return self._child

    def _ask(self, child: _Child, line: str) -> Answer | Failure:
        assert child.process.stdin is not None
        with contextlib.suppress(OSError):  # It has just died: the missing reply says so.
            child.process.stdin.write(line.encode() + b"\n")
            child.process.stdin.flush()
        try:
            reply = child.replies.get(timeout=self._limits.seconds)
        except queue.Empty:
            self._end(child)
            return Failure("too-slow", f"Not done after {self._limits.seconds:g} seconds")
        if reply is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(_GRACE_SECONDS)  # Before `_end` kills it: for its own status.
            self._end(child)
            return _cause_of_death(child)
        return self._read(json.loads(reply), child)

    def _read(self, reply: dict[str, Any], child: _Child) -> Answer | Failure:
        if "text" in reply:
            return Answer(reply["text"], _last_line(child.printed))
        if "file_error" in reply:
            raise OSError(*reply["file_error"])
        if "bug" in reply:
            raise LatentmillError(f"{self._name} failed in its process\n{reply['bug']}")
        self._end(child)  # What is left of it may be short of memory, too.
        gigabytes = self._limits.bytes / 2**30
        return Failure(
            "out-of-memory", f"It needs more memory than {gigabytes:g} GiB, or than is free"
        )

    def _end(self, child: _Child) -> None:
        self._child = None
        child.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # Stuck in the kernel: left behind.
            child.process.wait(_GRACE_SECONDS)
        assert child.process.stdin is not None
        with contextlib.suppress(OSError):
            child.process.stdin.close()


def _start(name: str, limits: Limits) -> _Child:
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
    task = json.dumps({"function": name, "seconds": limits.seconds, "bytes": limits.bytes})
    process = subprocess.Popen(
        [sys.executable, "-c", _BOOT, json.dumps(sys.path), task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=printed,
        start_new_session=True,  # Ctrl-C is the parent's to hear.
    )
    replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(process.stdout, replies), daemon=True).start()
    child = _Child(process, replies, printed)
    with contextlib.suppress(queue.Empty):
        if replies.get(timeout=_START_SECONDS) is not None:
            return child
    process.kill()
    raise LatentmillError(
        "the process that decodes pictures does not start",
        where=sys.executable,
        expected=_last_line(printed) or f"an answer within {_START_SECONDS:g} seconds",
        fix="free some memory, and check that this Python starts and finds latentmill",
    )


def _pass_on(stream: IO[bytes], replies: "queue.SimpleQueue[str | None]") -> None:
    with stream:
        for line in stream:
            if line.endswith(b"\n"):  # Else it died while it wrote.
                replies.put(line.decode())
    replies.put(None)


def _cause_of_death(child: _Child) -> Failure:
    status, words = child.process.returncode, _last_line(child.printed)
    said = f"; its last words: {words}" if words else ""
    if status == -getattr(signal, "SIGKILL", 9):
        return Failure(
            "out-of-memory",
            "The process that decoded it was killed (SIGKILL), as systems do that are short of "
            f"memory{said}",
        )
    if "bad_alloc" in words:
        return Failure("out-of-memory", f"The decoder found no memory{said}")
    return Failure("decoder-crashed", f"The decoder crashed with {_status_name(status)}{said}")


def _status_name(status: int | None) -> str:
    if status is None:
        return "no exit status"
    if status >= 0:
        return f"exit code {status if status < 2**16 else hex(status)}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    return f"{name} ({signal.strsignal(-status)})"


def _last_line(printed: IO[bytes]) -> str:
    size = printed.seek(0, os.SEEK_END)
    if not size:
        return ""
    printed.seek(max(0, size - _PRINTED_BYTES))
    lines = printed.read().decode("utf-8", "replace").splitlines()
    return next((line.strip()[-300:] for line in reversed(lines) if line.strip()), "")


def serve(task: dict[str, Any]) -> None:
    """Answer line by line until the parent closes the pipe or is gone: the child's whole life."""
    module, _, name = task["function"].partition(":")
    requests, replies = _take_pipes()
    _protect(task["bytes"])
    function: Function = getattr(importlib.import_module(module), name)
    replies.write("ready\n")
    replies.flush()
    for line in requests:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)
        _set_alarm(task["seconds"] + _GRACE_SECONDS)
        replies.write(json.dumps(_answer(function, line.rstrip("\n"))) + "\n")
        replies.flush()
        _set_alarm(0)


def _take_pipes() -> tuple[IO[str], IO[str]]:
    """Keep the two pipes for us; what libraries print joins standard error."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(requests, encoding="utf-8"), os.fdopen(replies, "w", encoding="utf-8")


def _protect(num_bytes: int) -> None:
    """Limit memory and leave no core file; be the first to go when the system is short of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        import resource
    except ImportError:  # Windows has no such limits.
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # RLIMIT_DATA, not RLIMIT_AS: threads reserve addresses by the gigabyte and never use them.
    with contextlib.suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _set_alarm(seconds: float) -> None:
    """Die after `seconds` even while a decoder keeps Python from running and the parent is gone."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _answer(function: Function, line: str) -> dict[str, Any]:
    try:
        return {"text": function(line)}
    except MemoryError:
        return {"no_memory": True}
    except OSError as error:
        return {"file_error": [error.errno, error.strerror, error.filename]}
    except Exception:  # noqa: BLE001 - a bug of ours: told in the parent with its traceback
        return {"bug": traceback.format_exc()}
