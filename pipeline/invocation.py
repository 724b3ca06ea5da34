"""How latentmill was called, so that the next command is written as the person would type it."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latentmill.datasets.next_steps import Command
from latentmill.pipeline.stages import ORDER

VARIABLES: Final = {"--config": "CONFIG", "--data": "DATA", "--model": "MODEL", "--work": "WORK"}
"""The flags of every command that the Makefile has variables for."""
TARGETS: Final = (*ORDER, "review", "approve", "status", "demo")
"""The commands that the Makefile has targets for."""
MADE: Final = "LATENTMILL_MAKE_FROM"
"""Set by the Makefile to the folder that make was started in."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """The command at hand: shared flags as typed, and the other flags of this command in `own`.

    `make` is empty for the console script, else how make was called up to its target.
    """

    stage: str = ""
    paths: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    program: str = "latentmill"
    make: str = ""

    def spell(self, command: Command) -> str:
        """Write out `command` with the paths and settings of this one, quoted for a shell."""
        stage, own = command.stage or self.stage, () if command.stage else self.own
        given = read_flags(command.flags)
        paths = dict(self.paths) | dict(given.paths)
        settings = _merged(self.settings, command.settings)
        flags = (*own, *given.own, *(part for one in settings for part in ("--set", one)))
        if self.make and stage in TARGETS:
            return self._spell_target(stage, paths, flags)
        named = [part for flag in VARIABLES if flag in paths for part in (flag, paths[flag])]
        return " ".join([shlex.quote(self.program), shlex.join([stage, *named, *flags]).strip()])

    def _spell_target(self, stage: str, paths: Mapping[str, str], flags: Sequence[str]) -> str:
        words = [self.make, stage]
        words += [
            f"{name}={shlex.quote(paths[flag])}"
            for flag, name in VARIABLES.items()
            if flag in paths
        ]
        if stage == "approve":
            flags = [flag for flag in flags if flag != "--all-drafts"]  # The target's own default.
        if flags:  # They go through make, then through a shell.
            words.append("ARGS=" + shlex.quote(shlex.join(flags).replace("$", "$$")))
        return " ".join(words)


def read_invocation(
    program: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> Invocation:
    """Read a command line, right or wrong, and whether the Makefile called it."""
    stage = next(iter(arguments), "")
    given = read_flags(arguments[1:])
    return Invocation(
        stage, given.paths, given.settings, given.own, _program(program), _make(environment)
    )


def read_flags(words: Sequence[str]) -> Invocation:
    """Sort flags into those that all commands share and the rest; the last one of a kind holds."""
    paths: dict[str, str] = {}
    settings: list[str] = []
    own: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in (*VARIABLES, "--set"):
            own.append(word)
            continue
        value = value if equals else rest.pop(0) if rest else ""
        if flag == "--set":
            settings.append(value)
        else:
            paths[flag] = value
    return Invocation(paths=tuple(paths.items()), settings=tuple(settings), own=tuple(own))


def _merged(settings: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    changed = {change.partition("=")[0] for change in changes}
    return (*(one for one in settings if one.partition("=")[0] not in changed), *changes)


def _program(path: str) -> str:
    """`latentmill` where the shell finds it under this name, else the path as it was typed."""
    found = shutil.which("latentmill")
    if Path(path).stem != "latentmill" or not Path(path).exists():
        return "latentmill"
    return "latentmill" if found and Path(found).samefile(path) else path


def _make(environment: Mapping[str, str]) -> str:
    if MADE not in environment:
        return ""
    start = environment[MADE]
    here = Path.cwd()
    is_here = bool(start) and Path(start).is_dir() and Path(start).samefile(here)
    words = ["make"] if is_here else ["make", "-C", shlex.quote(str(here))]
    if environment.get("VENV"):
        words.append(f"VENV={shlex.quote(environment['VENV'])}")
    return " ".join(words)
