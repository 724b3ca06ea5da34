"""The console script: from arguments to an exit code."""

import os
import signal
import sys
import traceback

import typer

from latentmill.datasets.errors import UsageError
from latentmill.pipeline.commands import app
from latentmill.pipeline.console import open_console, print_failure
from latentmill.pipeline.failures import explain_failure

INTERRUPTED = 130
BUG = 1


def main() -> None:
    """Run one command and exit with its code (0, 1 to 7 or 130)."""
    # Read when torch is loaded. By default its threads spin while they wait for each other: with
    # fewer free cores than threads a training step then takes 30 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command in `arguments` and return its exit code; prints instead of raising."""
    console = open_console()
    stage = arguments[0] if arguments else ""
    try:
        return int(
            app(args=arguments or ["--help"], prog_name="latentmill", standalone_mode=False) or 0
        )
    except (KeyboardInterrupt, typer.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        again = "`latentmill train --resume`" if stage == "train" else "the same command"
        console.print(f"interrupted; {again} goes on where it stopped")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # The command line library ends so at a closed pipe.
        _silence()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where anything becomes an exit code
        if (usage := _usage_error(error)) is not None:
            print_failure(console, usage)
            return usage.exit_code
        failure = explain_failure(error, stage)
        if failure is not None:
            print_failure(console, failure)
            return failure.exit_code
        console.print("".join(traceback.format_exception(error)), markup=False)
        console.print(
            "latentmill: this is a fault in latentmill itself; nothing already written is lost. "
            "Please report the lines above."
        )
        return BUG


def _silence() -> None:
    """Nobody reads on (`| head`): let what is still to be written go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _usage_error(error: Exception) -> UsageError | None:
    """A wrong flag or command, as the argument parser found it."""
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    return UsageError(message(), fix="`latentmill --help` and `latentmill COMMAND --help` show all")
