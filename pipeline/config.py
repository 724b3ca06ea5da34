"""One TOML file, the command line's short flags and `--set` become one frozen configuration."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.pipeline.assignments import assign, set_path
from latentmill.pipeline.work_record import fill_in
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
        work = work or default_work(self.sources())
        for source in self.data:
            _require_apart(work, source, "work", Command(flags=("--work", "DIR")))
            _require_apart(shared, source, "cache", Command(settings=("cache.dir=DIR",)))
        return Layout(work, shared)

    def sources(self) -> tuple[Source, ...]:
        """The data folders; raises UsageError when there is none."""
        if not self.data:
            raise UsageError(
                "no folder of pictures was named",
                expected="a folder with pictures and, beside them, captions",
                fix="name it, as [[data]] in a configuration file or here; or name the work folder "
                "that was made from it",
                run=(Command(flags=("--data", "DIR")), Command(flags=("--work", "DIR"))),
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


@dataclass(frozen=True, slots=True)
class Recalled:
    """A configuration, and in words what of it was recalled from the work folder, if anything."""

    config: Config
    note: str


def default_work(sources: Sequence[Source]) -> Path:
    """The work folder of data for which nobody named one."""
    return Path("work") / data_name(sources)


def data_name(sources: Sequence[Source]) -> str:
    """The name of the first data folder, for folders and files named after it."""
    return Path(sources[0].path).expanduser().resolve().name or "pictures"


def _require_apart(folder: Path | None, source: Source, name: str, other: Command) -> None:
    data = Path(source.path).expanduser()
    if folder is not None and folder.exists() and data.exists() and folder.samefile(data):
        raise UsageError(
            f"the {name} folder is the data folder, which is read only",
            where=source.path,
            fix="choose another one",
            run=(other,),
        )


def load_config(request: Request) -> Config:
    """The configuration of `request`; raises UsageError naming each wrong key or value."""
    return recall_config(request).config


def recall_config(request: Request) -> Recalled:
    """The configuration of `request`, with data and model of the work folder where it names none.

    Raises UsageError naming each wrong key or value.
    """
    values = read_values(request)
    work = _work_of(values)
    remembered = tuple(fill_in(values, work)) if work is not None else ()
    for assignment in _of_sources(request.assignments):
        assign(values, assignment, _is_text)
    config = check_values(values, request.config or "the command line")
    note = f"{' and '.join(remembered)}: as last used in {work}" if remembered else ""
    return Recalled(config, note)


def resumed_config(request: Request, run: Path) -> Config:
    """The configuration that a run began with, and on top of it what `request` says.

    A data folder that is the run's own keeps the settings of its source. Raises UsageError.
    """
    values = read_toml(str(run / "config.toml"))
    said = read_values(request)
    if "data" in said:
        said["data"] = _with_known_settings(said["data"], values.get("data") or [])
    for name, value in said.items():
        is_section = isinstance(value, dict) and isinstance(values.get(name), dict)
        values[name] = {**values[name], **value} if is_section else value
    for assignment in _of_sources(request.assignments):
        assign(values, assignment, _is_text)
    return check_values(values, str(run / "config.toml"))


def _with_known_settings(sources: Any, known: Sequence[Any]) -> Any:
    if not isinstance(sources, list) or not all(isinstance(one, dict) for one in sources):
        return sources  # `check_values` says what is wrong with it.
    settings = {_folder(one.get("path")): one for one in known}
    return [{**settings.get(_folder(one.get("path")), {}), **one} for one in sources]


def _folder(path: Any) -> str:
    return str(Path(str(path)).expanduser().resolve())


def read_values(request: Request) -> dict[str, Any]:
    """What file, flags and assignments say, those for single sources aside; not checked yet."""
    values = read_toml(request.config) if request.config else {}
    if request.data is not None:
        values["data"] = [{"path": _not_blank(request.data, "--data")}]
    if request.model is not None:
        set_path(values, "model.id", _not_blank(request.model, "--model"))
    if request.work is not None:
        values["work"] = _not_blank(request.work, "--work")
    for assignment in request.assignments:
        if assignment not in _of_sources(request.assignments):
            assign(values, assignment, _is_text)
    return values


def check_values(values: Mapping[str, Any], where: str) -> Config:
    """The configuration that `values` describe; raises UsageError naming each wrong key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UsageError(
            "the configuration is wrong\n" + "\n".join(_explain(item) for item in error.errors()),
            where=where,
            fix="see every setting with its meaning",
            run=(Command("config"),),
        ) from None


def _of_sources(assignments: Sequence[str]) -> list[str]:
    return [one for one in assignments if one.strip().startswith("data.")]


def _work_of(values: Mapping[str, Any]) -> Path | None:
    """The work folder of unchecked values: the one named, or the one after the data folder."""
    named, data = values.get("work"), values.get("data")
    if isinstance(named, str) and named:
        return Path(named).expanduser()
    with suppress(TypeError, LookupError, AttributeError, ValueError):
        return default_work([Source(path=data[0]["path"])]) if data else None
    return None


def read_toml(name: str) -> dict[str, Any]:
    """The tables of a configuration file; raises UsageError when it cannot be read."""
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
