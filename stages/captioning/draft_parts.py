"""Drafts of one unit of work, kept on disk until they stand in `review.csv`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latentmill.cache.files import write_json
from latentmill.datasets.records import Problem
from latentmill.datasets.review_fresh import Draft


@dataclass(frozen=True, slots=True)
class DraftPart:
    """What a captioner made of some pictures; `recipe` names captioner and settings."""

    recipe: str
    drafts: tuple[Draft, ...]
    problems: tuple[Problem, ...] = ()


def write_part(folder: Path, name: str, part: DraftPart) -> None:
    """Commit one part."""
    write_json(folder / f"{name}.json", asdict(part))


def read_parts(folder: Path, recipe: str) -> list[DraftPart]:
    """The parts of this recipe that lie in `folder`, by name; others are stale and not read."""
    parts = [_part(json.loads(path.read_bytes())) for path in _files(folder)]
    return [part for part in parts if part.recipe == recipe]


def remove_parts(folder: Path) -> None:
    """Delete all parts: their drafts stand in `review.csv`, or belong to other settings."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def _files(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def _part(values: dict[str, Any]) -> DraftPart:
    drafts = [{**draft, "flags": tuple(draft["flags"])} for draft in values["drafts"]]
    return DraftPart(
        values["recipe"],
        tuple(Draft(**draft) for draft in drafts),
        tuple(Problem(**problem) for problem in values["problems"]),
    )
