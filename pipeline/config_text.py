"""A configuration becomes a commented TOML file that loads to the same configuration."""

from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from latentmill.pipeline.config import Config
from latentmill.stages.settings import Source


def config_text(config: Config) -> str:
    """The effective configuration, every setting with its meaning above it."""
    lines = [*_comment(Config.model_fields["work"]), f"work = {_value(config.work)}"]
    for source in config.data:
        lines += ["", *_comment(Config.model_fields["data"]), "[[data]]", *_settings(source)]
    if not config.data:
        lines += ["", *(f"# {line}" for line in ["[[data]]", *_settings(Source(path="DIR"))])]
    for name, field in Config.model_fields.items():
        section = getattr(config, name)
        if isinstance(section, BaseModel):
            heading = (type(section).__doc__ or "").strip()
            lines += ["", f"# {heading}", f"[{field.alias or name}]", *_settings(section)]
    return "\n".join(lines) + "\n"


def _settings(section: BaseModel) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        lines += [*_comment(field), f"{name} = {_value(getattr(section, name))}"]
    return lines


def _comment(field: FieldInfo) -> list[str]:
    return [f"# {field.description}"] if field.description else []


def _value(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return f"[{', '.join(_table(one) for one in value)}]"
    return str(tomlkit.item(list(value) if isinstance(value, tuple) else value).as_string())


def _table(value: BaseModel) -> str:
    cells = (f"{name} = {_value(cell)}" for name, cell in value.model_dump().items())
    return f"{{ {', '.join(cells)} }}"
