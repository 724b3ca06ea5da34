"""`--set NAME=VALUE` becomes a value in the nested tables of a configuration."""

import tomllib
from collections.abc import Callable
from typing import Any

from latentmill.datasets.errors import UsageError
from latentmill.datasets.next_steps import Command


def assign(values: dict[str, Any], assignment: str, is_text: Callable[[str], bool]) -> None:
    """Put one assignment into nested tables; `is_text` names the keys whose text is no number."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {assignment} is not an assignment",
            expected="SECTION.NAME=VALUE, such as train.rank=16",
        )
    key = key.strip()
    set_path(values, key, text if is_text(key) else _parse_value(text))


def set_path(values: dict[str, Any], key: str, value: Any) -> None:
    """Put a value under a dotted key; `data.NAME` goes to every source."""
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
            fix="name the folder too",
            run=(Command(flags=("--data", "DIR")),),
        )
    for source in chosen:
        source[rest[0]] = value


def _parse_value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str | list | dict) else text
