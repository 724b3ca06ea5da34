"""The flags that commands share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from latentmill.datasets.next_steps import Spell
from latentmill.pipeline.config import Request
from latentmill.pipeline.invocation import Invocation


@dataclass(frozen=True, slots=True)
class Shared:
    """What every command takes; the context knows how latentmill was called."""

    context: typer.Context
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")
    ] = None
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of pictures; only read.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="ID", help="Hub id, diffusers folder or .safetensors file."
        ),
    ] = None
    work: Annotated[
        str | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Folder for results; alone, it remembers data and model "
            "[default: work/NAME of the data].",
        ),
    ] = None
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting, such as train.rank=16."),
    ] = None

    @property
    def invocation(self) -> Invocation:
        """How latentmill was called."""
        return self.context.find_object(Invocation) or Invocation()

    def request(self, *more: str) -> Request:
        """What was said about settings, and `more` assignments after them."""
        assignments = (*(self.assignments or ()), *more)
        return Request(self.config, self.data, self.model, self.work, assignments)


@dataclass(frozen=True, slots=True)
class Asked:
    """How a stage is to be run and reported."""

    console: Console
    spell: Spell
    as_json: bool
    dry_run: bool = False


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the report as JSON on standard output.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")
]
RunOption = Annotated[
    str,
    typer.Option(
        "--run", metavar="RUN", help="Run folder, or LoRA file [default: the latest run]."
    ),
]


def with_shared(command: Callable[..., int]) -> Callable[..., int]:
    """Turn `command(shared, own...)` into a command with the flags of `Shared` before its own."""
    hints = get_type_hints(Shared, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            field.name,
            kind,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(Shared)
    ]
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters += [parameter.replace(kind=kind) for parameter in own]

    def run(**values: Any) -> int:
        given = {field.name: values.pop(field.name) for field in fields(Shared)}
        return command(Shared(**given), **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = command.__doc__
    return run
