"""One TOML file, the command line's short flags and `--set` become one frozen configuration."""

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.stages.settings import (
    SECTION,
    BucketSettings,
    CacheSettings,
    CaptionSettings,
    EngineSettings,
    ExportSettings,
    ModelSettings,
    SampleSettings,
    Source,
    TrainSettings,
    ValidateSettings,
)


class Config(BaseModel):
    """Everything a run depends on."""

    model_config = SECTION

    work: str = Field("", description="Work folder; empty: work/NAME from the data folder's name.")
    data: tuple[Source, ...] = Field((), description="Folders of pictures, one table each.")
    model: ModelSettings = ModelSettings()
    validation: ValidateSettings = Field(ValidateSettings(), alias="validate")
    caption: CaptionSettings = CaptionSettings()
    bucket: BucketSettings = BucketSettings()
    cache: CacheSettings = CacheSettings()
    train: TrainSettings = TrainSettings()
    sample: SampleSettings = SampleSettings()
    export: ExportSettings = ExportSettings()
    engine: EngineSettings = EngineSettings()

    def layout(self) -> Layout:
        """The work folder's paths; raises UsageError without one, or when it is the data folder."""
        shared = Path(self.cache.dir).expanduser() if self.cache.dir else None
        work = Path(self.work).expanduser() if self.work else None
        work = work or Path("work") / data_name(self.sources())
        for source in self.data:
            _require_apart(work, source, "work", "--work DIR (make: WORK=DIR)")
            _require_apart(shared, source, "cache", "--set cache.dir=DIR")
        return Layout(work, shared)

    def sources(self) -> tuple[Source, ...]:
        """The data folders; raises UsageError when there is none."""
        if not self.data:
            raise UsageError(
                "no folder of pictures was named",
                expected="a folder with pictures and, beside them, captions",
                fix="give it with --data DIR (make: DATA=DIR), or as [[data]] in --config FILE",
            )
        return self.data


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line said about settings."""

    config: str | None = None
    data: str | None = None
    model: str | None = None
    work: str | None = None
    assignments: tuple[str, ...] = ()


def data_name(sources: Sequence[Source]) -> str:
    """The name of the first data folder, for folders and files named after it."""
    return Path(sources[0].path).expanduser().resolve().name or "pictures"


def _require_apart(folder: Path | None, source: Source, name: str, flag: str) -> None:
    data = Path(source.path).expanduser()
    if folder is not None and folder.exists() and data.exists() and folder.samefile(data):
        raise UsageError(
            f"the {name} folder is the data folder, which is read only",
            where=source.path,
            fix=f"choose another one with {flag}",
        )


def load_config(request: Request) -> Config:
    """The configuration of `request`; raises UsageError naming each wrong key or value."""
    values = _read_toml(request.config) if request.config else {}
    if request.data is not None:
        values["data"] = [{"path": _not_blank(request.data, "--data")}]
    if request.model is not None:
        _set_path(values, "model.id", _not_blank(request.model, "--model"))
    if request.work is not None:
        values["work"] = _not_blank(request.work, "--work")
    for assignment in request.assignments:
        _assign(values, assignment)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise UsageError(
            "the configuration is wrong\n" + "\n".join(_explain(item) for item in error.errors()),
            where=request.config or "the command line",
            fix="`latentmill config` prints every setting with its meaning",
        ) from None
    return config


def _read_toml(name: str) -> dict[str, Any]:
    path = Path(name).expanduser()
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"the configuration file cannot be read: {error.strerror}", where=name
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the configuration file is not UTF-8 (byte {error.start})",
            where=name,
            fix="save it again as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration file is not TOML: {error}", where=name) from None


def _not_blank(text: str, flag: str) -> str:
    if not text.strip():
        raise UsageError(f"{flag} is empty", expected="a name or a path")
    return text


def _assign(values: dict[str, Any], assignment: str) -> None:
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {assignment} is not an assignment",
            expected="SECTION.NAME=VALUE, such as train.rank=16",
        )
    key = key.strip()
    _set_path(values, key, text if _is_text(key) else _parse_value(text))


def _is_text(key: str) -> bool:
    """Whether the setting takes text as it stands: `train.name=2024` is no number."""
    section, _, name = key.partition(".")
    annotation = (
        Source.model_fields.get(name.rpartition(".")[2])
        if section == "data"
        else _section_fields(section).get(name)
    )
    return annotation is not None and annotation.annotation is str


def _section_fields(section: str) -> dict[str, Any]:
    for name, field in Config.model_fields.items():
        if section in (field.alias, name) and isinstance(field.default, BaseModel):
            return dict(type(field.default).model_fields)
    return {}


def _parse_value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str | list | dict) else text


def _set_path(values: dict[str, Any], key: str, value: Any) -> None:
    first, *rest = key.split(".")
    if first == "data" and rest:
        return _set_source(values, rest, value, key)
    target = values
    for name in [first, *rest][:-1]:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise UsageError(f"--set {key}: {name} is a value, not a section")
    target[[first, *rest][-1]] = value
    return None


def _set_source(values: dict[str, Any], rest: list[str], value: Any, key: str) -> None:
    """`data.trigger=x` sets it for every source, `data.1.trigger=x` for the second."""
    sources = values.setdefault("data", [])
    chosen = sources
    if rest[0].isdigit():
        chosen, rest = sources[int(rest[0]) : int(rest[0]) + 1], rest[1:]
    if not chosen or len(rest) != 1:
        raise UsageError(
            f"--set {key} names no data source",
            expected=f"data.NAME, or data.N.NAME with N below {len(sources)}",
            fix="give the folder with --data DIR first",
        )
    for source in chosen:
        source[rest[0]] = value


def _explain(item: Any) -> str:
    location = [str(part) for part in item["loc"] if not str(part).startswith("function-")]
    name = ".".join(location)
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _names_beside(location), n=1, cutoff=0.5)
        hint = f"; did you mean {'.'.join([*location[:-1], near[0]])}?" if near else ""
        return f"  {name}: there is no such setting{hint}"
    message = item["msg"].removeprefix("Value error, ")
    return f"  {name}: {message}, not {item['input']!r}" if name else f"  {message}"


def _names_beside(location: list[str]) -> list[str]:
    if len(location) == 1:
        return [field.alias or name for name, field in Config.model_fields.items()]
    if location[0] == "data":
        return list(Source.model_fields)
    return list(_section_fields(location[0]))
