"""A share of a plan: which part of how many this process is, as told or as its launcher says."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from latentmill.datasets.errors import UsageError

MOST: Final = 1000
"""Parts of one plan: each has a lock of its own."""


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables with this process's number and the number of processes."""

    name: str
    number: str
    count: str


_PROCESSES: Final = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE"),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
)
_JOBS: Final = (
    _Launcher("a Kubernetes indexed job", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"),
    _Launcher("a Slurm array", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int

    @property
    def label(self) -> str:
        """How it is called in file names: `part-2-of-4`."""
        return f"part-{self.number}-of-{self.count}"

    def takes(self, place: int) -> bool:
        """Whether the unit at this place of the whole plan, from 0, belongs to this part."""
        return place % self.count == self.number - 1


def read_part(text: str, environment: Mapping[str, str]) -> Part | None:
    """Read `2/4`, or `auto`: what the launcher set. Empty is no part, the whole plan.

    Raises UsageError for anything else, and for `auto` where no launcher is known.
    """
    if not text:
        return None
    if text == "auto":
        return _launched(environment)
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text.strip())
    if match is None:
        raise _wrong(f"--part {text} is not a part")
    return _checked(int(match[1]), int(match[2]), f"--part {text}")


def _launched(environment: Mapping[str, str]) -> Part:
    """What the launcher of processes says, or that of jobs; both only when one has one part."""
    found = [_first(launchers, environment) for launchers in (_PROCESSES, _JOBS)]
    parts = list(dict.fromkeys(part for part in found if part is not None))
    several = [part for part in parts if part.count > 1]
    if len(several) > 1:
        raise _wrong(
            f"--part auto finds two launchers that differ: {several[0].label} of processes, "
            f"{several[1].label} of jobs"
        )
    if not parts:
        raise _wrong(f"--part auto finds no launcher: {_wanted(environment)}")
    return (several or parts)[0]


def _first(launchers: Sequence[_Launcher], environment: Mapping[str, str]) -> Part | None:
    for one in launchers:
        if one.number in environment and one.count in environment:
            names = f"{one.name}: {one.number}, {one.count}"
            number = _whole(environment[one.number], names)
            count = _whole(environment[one.count], names)
            is_array = one.number == "SLURM_ARRAY_TASK_ID"
            start = _array_start(environment, count) if is_array else 0
            return _checked(number - start + 1, count, names)
    return None


def _wanted(environment: Mapping[str, str]) -> str:
    for one in (*_JOBS, *_PROCESSES):
        if one.number in environment:
            return f"{one.number} is set, {one.count} (the number of parts) is not"
    names = ", or ".join(f"{one.number} and {one.count}" for one in (*_PROCESSES, *_JOBS))
    return f"expected {names} in the environment"


def _array_start(environment: Mapping[str, str], count: int) -> int:
    """The first number of a Slurm array, which may be any; steps other than 1 are refused."""
    lowest, highest = (
        _whole(environment.get(f"SLURM_ARRAY_TASK_{end}", ""), f"SLURM_ARRAY_TASK_{end}")
        for end in ("MIN", "MAX")
    )
    if highest - lowest + 1 != count:
        raise _wrong(f"the Slurm array from {lowest} to {highest} has gaps: {count} tasks")
    return lowest


def _whole(text: str, names: str) -> int:
    if not re.fullmatch(r"[0-9]+", text.strip()):
        raise _wrong(f"{names}: {text!r} is no number")
    return int(text)


def _checked(number: int, count: int, told: str) -> Part:
    if not 1 <= number <= count <= MOST:
        raise _wrong(f"{told}: there is no part {number} of {count}")
    return Part(number, count)


def _wrong(what: str) -> UsageError:
    return UsageError(
        what,
        expected=f"NUMBER/COUNT such as 2/4 (from 1 up to {MOST} parts), or `auto` under torchrun, "
        "in a Slurm array or a Kubernetes indexed job",
        fix="give each process its part: --part 1/2 to one, --part 2/2 to the other",
    )
