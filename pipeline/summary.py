"""A report -> one screen of text, worst first; what does not fit is counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from latentmill.datasets.display import visible
from latentmill.datasets.next_steps import NextStep, Spell, step_lines
from latentmill.datasets.records import Problem, Report, count_codes
from latentmill.datasets.words import count_phrases

LEVELS = ("reject", "check", "warning", "advice")
STYLES = {"reject": "red", "check": "yellow", "warning": "yellow", "advice": "cyan"}
LINES = 24
_LEAST_PROBLEM_LINES = 6
_LEAST_QUIET_LINES = 4
_MOST_NAMES = 8
"""Names shown of one code: enough to see what they have in common."""


@dataclass(frozen=True, slots=True)
class _Group:
    """All problems of one code."""

    code: str
    problems: tuple[Problem, ...]

    @property
    def level(self) -> str:
        """How bad they are."""
        return self.problems[0].level

    @property
    def is_listed(self) -> bool:
        """Whether each file is named, as far as there is room: a person must go to it."""
        return self.level in ("reject", "check")


def summary(report: Report, width: int, spell: Spell = str) -> list[Text]:
    """Lines of at most `width` cells, next steps aside: those are whole, to be copied."""
    head = _head(report, width)
    steps = [line for step in report.next_steps for line in _step_lines(step, spell)]
    taken = sum(1 + (line.cell_len - 1) // width for line in (*head, *steps))
    room = max(_LEAST_PROBLEM_LINES, LINES - 1 - taken)  # One line is the prompt's.
    return [*head, *_problem_lines(_groups(report.problems), width, room), *steps]


def _step_lines(step: NextStep, spell: Spell) -> Iterator[Text]:
    """The words behind an arrow, and each command on a line of its own."""
    first, *commands = step_lines(step.text, step.commands, spell)
    yield Text.assemble("  ", ("->", "bold"), f" {visible(first)}")
    for command in commands:
        yield Text(f"     {visible(command)}")


def fit(text: str, width: int) -> str:
    """Return `text` in at most `width` cells, its end cut away if need be."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def shorten_middle(path: str, width: int) -> str:
    """Return a path in at most `width` cells: its beginning and its end, where the name is."""
    if cell_len(path) <= width:
        return path
    front = set_cell_size(path, (width - 1) // 3)
    room, end = width - 1 - cell_len(front), len(path)
    while end > 0 and cell_len(path[end - 1 :]) <= room:
        end -= 1
    return f"{front}…{path[end:]}"


def _head(report: Report, width: int) -> list[Text]:
    state = ("done", "green") if report.exit_code == 0 else ("needs a person", "yellow")
    first = Text.assemble((report.stage, "bold"), " ", state, f" in {report.seconds:.1f} s")
    counts = report.account or ", ".join(count_phrases(report.counts))
    if not counts:
        return [first]
    if first.cell_len + 2 + len(counts) <= width:
        return [first.append(f": {counts}")]
    return [first, Text(f"  {counts}")]


def _groups(problems: Sequence[Problem]) -> list[_Group]:
    groups = []
    for level in LEVELS:
        chosen = [one for one in problems if one.level == level]
        for code in count_codes(chosen):
            groups.append(_Group(code, tuple(one for one in chosen if one.code == code)))
    return groups


def _problem_lines(groups: Sequence[_Group], width: int, room: int) -> Iterator[Text]:
    """One line for each code; names of files below those that a person must go to."""
    listed = [group for group in groups if group.is_listed]
    quiet = [group for group in groups if not group.is_listed]
    wanted = sum(len(group.problems[:_MOST_NAMES]) + (len(group.problems) > 1) for group in listed)
    room_quiet = min(len(quiet), max(_LEAST_QUIET_LINES, room - wanted))
    blocks = [*_blocks(listed, room - room_quiet), *_blocks(quiet, room_quiet)]
    left = room - sum(block.num_lines for block in blocks)
    names = _shared_out([group for block in blocks for group in block.shown], left)
    for block in blocks:
        for group in block.shown:
            yield _code_line(group, names[group.code], width)
            for one in group.problems[: names[group.code]]:
                yield _name_line(one, width)
        if block.rest:
            yield _rest_line(block.rest, width)


@dataclass(frozen=True, slots=True)
class _Block:
    """The codes of one level: those with a line of their own, and the rest in one line."""

    shown: tuple[_Group, ...]
    rest: tuple[_Group, ...]

    @property
    def num_lines(self) -> int:
        """Lines it takes, names aside."""
        return len(self.shown) + bool(self.rest)


def _blocks(groups: Sequence[_Group], room: int) -> Iterator[_Block]:
    """Cut each level to its share of `room`; a later level keeps two lines at least."""
    levels = [list(one) for _, one in groupby(groups, key=lambda group: group.level)]
    for position, level in enumerate(levels):
        later = sum(min(2, len(one)) for one in levels[position + 1 :])
        allowed = max(1, room - later)
        cut = len(level) if len(level) <= allowed else max(1, allowed - 1)
        block = _Block(tuple(level[:cut]), tuple(level[cut:]))
        room -= block.num_lines
        yield block


def _shared_out(groups: Sequence[_Group], room: int) -> dict[str, int]:
    """How many names of each code are shown: one in turn while room is left; a lone one has none.

    A lone problem stands in the line of its code.
    """
    numbers = {group.code: 0 for group in groups}
    for turn in range(_MOST_NAMES):
        for group in groups:
            if room > 0 and group.is_listed and turn < len(group.problems) > 1:
                numbers[group.code] += 1
                room -= 1
    return numbers


def _code_line(group: _Group, num_names: int, width: int) -> Text:
    count, first = len(group.problems), group.problems[0]
    line = Text("  ").append(f"{group.level} {group.code}", STYLES[group.level])
    room = width - line.cell_len
    if group.level == "advice" or (group.is_listed and count == 1):
        message = visible(first.message)
        name = shorten_middle(visible(first.path), max(room // 2, room - 4 - cell_len(message)))
        return line.append(fit(f": {name}: {message}" if name else f": {message}", room))
    if num_names:
        part = f", {num_names} shown" if num_names < count else ""
        return line.append(fit(f" ({count}{part}): {visible(first.fix)}", room))
    name = shorten_middle(visible(first.path), max(12, room - 20))
    such = (f", such as {name}" if count > 1 else f": {name}") if name else ""
    return line.append(fit(f" ({count}){such}", room))


def _rest_line(groups: Sequence[_Group], width: int) -> Text:
    count = sum(len(group.problems) for group in groups)
    codes = ", ".join(f"{group.code} ({len(group.problems)})" for group in groups)
    kinds = "1 more kind" if len(groups) == 1 else f"{len(groups)} more kinds"
    return Text(fit(f"  and {count} of {kinds} of {groups[0].level}: {codes}", width))


def _name_line(one: Problem, width: int) -> Text:
    message = visible(one.message)
    room = max(width // 2, width - 6 - cell_len(message))
    name = shorten_middle(visible(one.path), room - 4)
    return Text(fit(f"    {name}: {message}" if name else f"    {message}", width))
