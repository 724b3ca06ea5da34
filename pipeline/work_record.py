"""`WORK/work.json`: which pictures and which model a work folder belongs to."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from latentmill.cache.files import write_json
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, read_manifest
from latentmill.stages.settings import ModelSettings, Source

NAME: Final = "work.json"


class WorkRecord(BaseModel):
    """What a stage last ran with: sources by absolute path, `folders` their real ones.

    `model` is None where nobody named one.
    """

    model_config = ConfigDict(frozen=True)

    data: tuple[Source, ...]
    folders: tuple[str, ...]
    model: ModelSettings | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A command's wish to use a work folder. `named`: by a person, not after the data folder."""

    layout: Layout
    sources: tuple[Source, ...]
    named: bool


def read_record(work: Path) -> WorkRecord | None:
    """The record of a work folder; None without one; raises UsageError when it is damaged."""
    path = work / NAME
    try:
        return WorkRecord.model_validate(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, ValidationError):
        raise UsageError(
            "the work folder's record of its data and model cannot be read",
            where=str(path),
            fix="move this file away and name data and model again: it is written anew",
            run=(Command(flags=("--data", "DIR", "--model", "ID")),),
        ) from None


def write_record(work: Path, sources: Sequence[Source], model: ModelSettings | None) -> None:
    """Remember what `work` is used with; a record that says the same is left alone."""
    record = WorkRecord(
        data=tuple(
            source.model_copy(update={"path": str(Path(source.path).expanduser().absolute())})
            for source in sources
        ),
        folders=tuple(_real(source) for source in sources),
        model=_located(model),
    )
    values = record.model_dump(mode="json")
    path = work / NAME
    if not path.is_file() or json.loads(path.read_bytes()) != values:
        write_json(path, values)


def _located(model: ModelSettings | None) -> ModelSettings | None:
    """The model by its absolute path where it is a file or folder."""
    path = Path(model.id).expanduser() if model else None
    if model is None or path is None or not path.exists():
        return model
    return model.model_copy(update={"id": str(path.absolute())})


def fill_in(values: dict[str, Any], work: Path) -> Iterator[str]:
    """Put the recorded data and model where `values` have none; yield what was put in, in words."""
    record = read_record(work)
    if record is None:
        return
    if not values.get("data"):
        values["data"] = [source.model_dump() for source in record.data]
        yield "data " + ", ".join(source.path for source in record.data)
    model = values.setdefault("model", {})
    if record.model is not None and isinstance(model, dict) and "id" not in model:
        values["model"] = record.model.model_dump() | model
        yield f"model {record.model.id}"


def require_own(claim: Claim) -> str:
    """Refuse a work folder named after its data that belongs to other data; nothing is written.

    Belonging: one folder in common, or the recorded folder is gone and its pictures are in the new
    one. A work folder that a person named may change hands; returns what to say of it, or "".
    """
    work = claim.layout.work
    record = read_record(work)
    if record is None or not claim.sources or not _is_used(claim.layout):
        return ""
    now = [_real(source) for source in claim.sources]
    if any(_is_same(old, new) for old in record.folders for new in now):
        return ""
    old, new = ", ".join(record.folders), ", ".join(now)
    if claim.named:
        return f"{work} held the pictures of {old} until now; those of {new} take their place"
    if not any(Path(folder).exists() for folder in record.folders) and _have_moved(claim):
        return f"the pictures of {work} moved from {old} to {new}"
    raise UsageError(
        f"{work} belongs to other pictures, in a folder of the same name",
        where=f"it was made from {old}, now {new} is given",
        expected="one work folder for each set of pictures",
        fix="give these pictures a work folder of their own, the same for every command",
        run=(Command(flags=("--work", str(_free(work)))),),
    )


def _is_used(layout: Layout) -> bool:
    return any(path.exists() for path in (layout.manifest, layout.review, layout.runs))


def _have_moved(claim: Claim) -> bool:
    """Whether at least half of the validated pictures lie in the new folders, size for size."""
    try:
        records = read_manifest(claim.layout.manifest)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    found = sum(_is_there(record, claim.sources) for record in records)
    return bool(records) and 2 * found >= len(records)


def _is_there(record: Record, sources: Sequence[Source]) -> bool:
    files = (Path(source.path).expanduser() / record.path for source in sources)
    return any(file.is_file() and file.stat().st_size == record.bytes for file in files)


def _real(source: Source) -> str:
    return str(Path(source.path).expanduser().resolve())


def _is_same(one: str, other: str) -> bool:
    """Whether two paths are one folder, on a disk that ignores letter case too."""
    if one == other:
        return True
    paths = Path(one), Path(other)
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])


def _free(work: Path) -> Path:
    numbers = iter(range(2, 10_000))
    return next(path for number in numbers if not (path := Path(f"{work}-{number}")).exists())
