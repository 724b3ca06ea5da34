"""From arguments to an exit code: whatever ends a command is explained once, here."""

import os
import signal
import sys
import traceback

import typer

from latentmill.datasets.errors import Interrupted, LatentmillError, Stopped, UsageError
from latentmill.datasets.next_steps import Command, step_lines
from latentmill.pipeline.commands import app
from latentmill.pipeline.console import open_console, print_failure
from latentmill.pipeline.failures import explain_failure
from latentmill.pipeline.invocation import Invocation, read_invocation
from latentmill.pipeline.main import INTERRUPTED

BUG = 1


def run_command(arguments: list[str]) -> int:
    """Run the command in `arguments` and return its exit code; prints instead of raising."""
    invocation = read_invocation(sys.argv[0], arguments, os.environ)
    try:
        return int(
            app(
                args=arguments or ["--help"],
                prog_name="latentmill",
                standalone_mode=False,
                obj=invocation,
            )
            or 0
        )
    except (KeyboardInterrupt, typer.Abort) as error:
        return _interrupted(error, invocation)
    except (BrokenPipeError, SystemExit):  # The command line library ends so at a closed pipe.
        _silence()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where anything becomes an exit code
        if is_interruption(error):
            return _interrupted(error, invocation)
        return _failed(error, invocation)


def _interrupted(error: BaseException, invocation: Invocation) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    stopped = error.__cause__ if isinstance(error, Interrupted) else error
    again = stopped.run if isinstance(stopped, Stopped) else (Command(),)
    console = open_console()
    for line in step_lines("interrupted; to go on where it stopped", again, invocation.spell):
        console.print(line, markup=False)
    return INTERRUPTED


def is_interruption(error: BaseException | None) -> bool:
    """Whether a library turned an interruption of its import or its loop into its own error.

    Causes and contexts may lead in a circle.
    """
    seen: list[BaseException] = []
    while error is not None and not any(error is one for one in seen):
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _failed(error: Exception, invocation: Invocation) -> int:
    console = open_console()
    failure = _usage_error(error) or explain_failure(error, invocation.stage)
    if failure is not None:
        print_failure(console, failure, invocation.spell)
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


def _usage_error(error: Exception) -> LatentmillError | None:
    """A wrong flag or command, as the argument parser found it."""
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    return UsageError(message(), fix="`latentmill --help` and `latentmill COMMAND --help` show all")
