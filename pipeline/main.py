"""The console script: nothing is imported before an interruption ends it in one line."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Run one command and exit with its code (0, 1 to 7, or 130 when interrupted)."""
    heard = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) != signal.SIG_IGN  # As `nohup` and `&` in scripts leave it.
    ]
    for number in heard:
        signal.signal(number, _leave)
    # Read when torch is loaded. By default its threads spin while they wait for each other: with
    # fewer free cores than threads a training step then takes 30 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import latentmill.pipeline.running  # noqa: F401 - now, while an interruption loses nothing

    for number in heard:
        signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command in `arguments` and return its exit code; prints instead of raising."""
    from latentmill.pipeline.running import run_command

    return run_command(arguments)


def _leave(number: int, frame: object) -> None:  # noqa: ARG001
    """End at once: an exception amid an import may come out as another one, or as none."""
    os.write(2, b"interrupted before anything was done\n")
    os._exit(INTERRUPTED)
