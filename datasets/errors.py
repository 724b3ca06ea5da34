"""The failures that a person can act on, one class per exit code."""

from typing import Any

from latentmill.datasets.next_steps import Command, Spell, step_lines


class LatentmillError(Exception):
    """A failure that explains itself: what happened, where, what was expected, what to do next.

    `run` are the commands that do what `fix` says.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        fix: str = "",
        run: tuple[Command, ...] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.fix = fix
        self.run = run

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way back from a worker process: keyword arguments are lost by default."""
        return _rebuild, (type(self), self.what, self.where, self.expected, self.fix, self.run)

    def __str__(self) -> str:
        return self.explained(str)

    def explained(self, spell: Spell) -> str:
        """The failure in its lines, with commands as `spell` writes them."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where:    {self.where}")
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.fix or self.run:
            steps = "\n            ".join(step_lines(self.fix or "run", self.run, spell))
            lines.append(f"  do next:  {steps}")
        return "\n".join(lines)


def _rebuild(kind: type[LatentmillError], what: str, *rest: Any) -> LatentmillError:
    where, expected, fix, run = rest
    return kind(what, where=where, expected=expected, fix=fix, run=run)


class UsageError(LatentmillError):
    """The command, a path or a setting is wrong."""

    exit_code = 2


class DataError(LatentmillError):
    """The data needs a person: rejects, captions to review, files that changed."""

    exit_code = 3


class OutOfMemoryError(LatentmillError):
    """The card or the host ran out of memory."""

    exit_code = 4


class DiskFullError(LatentmillError):
    """A volume has no room for what must be written."""

    exit_code = 5


class DivergedError(LatentmillError):
    """Training produced non-finite numbers and cannot go on."""

    exit_code = 6


class ModelError(LatentmillError):
    """The model cannot be had or cannot be read."""

    exit_code = 7


class Stopped(KeyboardInterrupt):
    """An interruption after which `run` goes on from what was saved."""

    def __init__(self, *run: Command) -> None:
        super().__init__()
        self.run = run


class Interrupted(Exception):  # noqa: N818 - like KeyboardInterrupt, which is its cause
    """An interruption on its way through a library that has plans of its own for it."""
