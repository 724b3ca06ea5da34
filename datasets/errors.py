"""The failures that a person can act on, one class per exit code."""


class LatentmillError(Exception):
    """A failure that explains itself: what happened, where, what was expected, what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", expected: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way back from a worker process: keyword arguments are lost by default."""
        return _rebuild, (type(self), self.what, self.where, self.expected, self.fix)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where:    {self.where}")
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.fix:
            lines.append(f"  do next:  {self.fix}")
        return "\n".join(lines)


def _rebuild(
    kind: type[LatentmillError], what: str, where: str, expected: str, fix: str
) -> LatentmillError:
    return kind(what, where=where, expected=expected, fix=fix)


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
