"""What a person can do next: words, and the commands that do it."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command of latentmill, or with an empty `stage` the same command once more.

    It names only what is new: the person's own data, model, work folder and settings are added by
    whoever shows it. `flags` are as typed (`--resume`), `settings` are assignments for `--set`;
    words in capitals (`DIR`) stand for what the person fills in.
    """

    stage: str = ""
    flags: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The command on its own, quoted for a shell."""
        assignments = [part for setting in self.settings for part in ("--set", setting)]
        return shlex.join(["latentmill", self.stage or "COMMAND", *self.flags, *assignments])


Spell = Callable[[Command], str]
"""Writes a command out as the person at hand would type it."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """One thing to do: what and why in words without a command, and the commands, in order."""

    text: str
    commands: tuple[Command, ...] = ()


def step(text: str, *commands: Command) -> NextStep:
    """A step with the commands that do it."""
    return NextStep(text, commands)


def step_lines(text: str, commands: tuple[Command, ...], spell: Spell = str) -> list[str]:
    """The words, ending in a colon when commands follow, and each command on a line of its own."""
    if not commands:
        return [text]
    return [f"{text}:", *(f"  {spell(command)}" for command in commands)]
