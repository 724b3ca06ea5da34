"""What is known of a picture after validation, and what is wrong with one."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from latentmill.datasets.next_steps import Command, NextStep

Level = Literal["reject", "check", "warning", "advice"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `code` is a stable kebab-case word; `id` is empty when no picture is meant.

    Levels: `reject` (the picture is not used), `check` (a person must decide), `warning` (used,
    but look), `advice` (about the whole set).
    """

    id: str
    path: str
    code: str
    message: str
    fix: str
    level: Level = "warning"


@dataclass(frozen=True, slots=True)
class Record:
    """A usable picture with its caption: one line of `manifest.jsonl`.

    `path` is relative to the source, as it is on disk, with `/`. `file` is the absolute path to
    read pixels from. `width` and `height` are upright, in px. `pixels` is the XXH3-128 of the
    decoded upright RGB picture. `caption` is None when there is none. `codes` are the codes of
    the warnings, `checks` the codes that a person must settle in the review.
    """

    id: str
    source: int
    path: str
    file: str
    bytes: int
    modified_ns: int
    format: str
    width: int
    height: int
    pixels: str
    caption: str | None = None
    caption_file: str = ""
    caption_encoding: str = ""
    codes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a stage says at its end; `report.json` holds the same, `exit_code` aside.

    `facts` are what else a stage found out, as JSON takes it. `account` says the counts in one
    line where they add up to something; empty lists them.
    """

    stage: str
    ok: bool
    counts: Mapping[str, int]
    problems: tuple[Problem, ...] = ()
    fingerprint: str = ""
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    next_steps: tuple[NextStep, ...] = ()
    account: str = ""
    exit_code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object of `report.json`."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        del values["exit_code"]
        return values | {
            "problems": [_plain(one) for one in self.problems],
            "next_steps": [asdict(one) for one in self.next_steps],
        }


def report_from_json(values: Mapping[str, Any], exit_code: int) -> Report:
    """The report of what `to_json` made; raise TypeError or KeyError for anything else."""
    steps = (
        NextStep(one["text"], tuple(_command(each) for each in one["commands"]))
        for one in values["next_steps"]
    )
    problems = tuple(Problem(**one) for one in values["problems"])
    nested = {"problems": problems, "next_steps": tuple(steps), "exit_code": exit_code}
    return Report(**{**values, **nested})


def _command(values: Mapping[str, Any]) -> Command:
    return Command(values["stage"], tuple(values["flags"]), tuple(values["settings"]))


def _plain(one: Problem | Record) -> dict[str, Any]:
    """Name the fields of a flat dataclass: `asdict` copies each value and takes far longer."""
    return {each.name: getattr(one, each.name) for each in fields(one)}


def record_to_json(record: Record) -> str:
    """One line of `manifest.jsonl`, keys sorted, ASCII (a file name may hold lone surrogates)."""
    return json.dumps(_plain(record), sort_keys=True)


def record_from_json(line: str) -> Record:
    """The record of one line of `manifest.jsonl`."""
    values = json.loads(line)
    values["codes"] = tuple(values["codes"])
    values["checks"] = tuple(values["checks"])
    return Record(**values)


def read_manifest(path: Path) -> list[Record]:
    """All usable pictures of a validated set, in the order of the manifest (source, path)."""
    with path.open(encoding="utf-8") as lines:
        return [record_from_json(line) for line in lines]


def count_codes(problems: Iterable[Problem]) -> dict[str, int]:
    """How often each code occurs, most frequent first, then by name."""
    counts: dict[str, int] = {}
    for problem in problems:
        counts[problem.code] = counts.get(problem.code, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
