"""The command line: one command per stage, with the same flags for all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from latentmill.datasets.records import Report
from latentmill.datasets.versions import versions
from latentmill.pipeline.config import Config, Request, load_config
from latentmill.pipeline.config_text import config_text
from latentmill.pipeline.console import open_console, print_report, set_up_logging
from latentmill.pipeline.engines import choose_engine, serial
from latentmill.pipeline.run import Driver, open_work_folder
from latentmill.pipeline.stages import ORDER, Choice, make_stage

app = typer.Typer(
    name="latentmill",
    help="Turn a folder of pictures and captions into a Stable Diffusion LoRA.\n\n"
    "In order: validate, caption (then review WORK/review.csv), cache, train, sample. "
    "Run again, each does only what is new or changed; train makes a new run, or goes on with "
    "--resume. `latentmill demo` "
    "shows the whole way with a small model, without any download.\n\n"
    "Exit codes: 0 done, 1 internal error, 2 usage or configuration, 3 the data needs a person, "
    "4 out of memory, 5 out of disk, 6 training diverged, 7 model unreadable, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigOption = Annotated[str | None, typer.Option("--config", help="TOML file with settings.")]
DataOption = Annotated[str | None, typer.Option("--data", help="Folder of pictures; only read.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Hub id, diffusers folder or .safetensors file.")
]
WorkOption = Annotated[
    str | None, typer.Option("--work", help="Folder for results [default: work/NAME of the data].")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One setting, such as train.rank=16."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the report as JSON on standard output.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")
]
RunOption = Annotated[
    str, typer.Option("--run", help="Run folder (or LoRA file) [default: the latest run].")
]
SMALL_BUCKETS = "--set bucket.area=64 --set bucket.step=16 --set bucket.min=32 --set bucket.max=128"
REDO = "Draft this row again, or with `drafts` all that nobody touched; may be repeated."
FIX = "Write repaired copies under WORK/validate/fixed and go on with those (validate.fix)."
FAIL_ON = "Codes or kinds that end with exit 3, besides too many rejects [default: check]."
MAX_REJECTS = "Rejected pictures that do not end with exit 3 [default: 0]."
RESUME = "Go on with the latest run (or --run) from its last saved state."


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    if version:
        typer.echo(versions()["latentmill"])
        raise typer.Exit


def _request(
    config: str | None,
    data: str | None,
    model: str | None,
    work: str | None,
    assignments: list[str] | None,
) -> Config:
    return load_config(Request(config, data, model, work, tuple(assignments or ())))


def _path(name: str) -> Path | None:
    return Path(name).expanduser() if name else None


def _run_stage(stage_name: str, choice: Choice, as_json: bool, dry_run: bool) -> int:
    console = open_console()
    set_up_logging(console, quiet=False)
    stage = make_stage(stage_name, choice)
    if dry_run:
        units = stage.plan()
        size = sum(unit.size for unit in units)
        console.print(f"{stage_name}: {len(units)} units, {size} pictures or steps to do")
        return 0
    engine = choose_engine(choice.config.engine) if stage_name in ("validate", "cache") else serial
    report = Driver(choice.config.layout(), engine, console).run(stage)
    return _end(report, as_json)


def _end(report: Report, as_json: bool) -> int:
    if as_json:
        typer.echo(json.dumps(report.to_json(), sort_keys=True))
    return report.exit_code


def _add_stage(name: str) -> Callable[..., int]:
    @app.command(name, help=ORDER[name], short_help=ORDER[name])
    def command(
        config: ConfigOption = None,
        data: DataOption = None,
        model: ModelOption = None,
        work: WorkOption = None,
        assignments: SetOption = None,
        as_json: JsonOption = False,
        dry_run: DryRunOption = False,
    ) -> int:
        """Run the stage; its help is the text in `ORDER`."""
        return _run_stage(
            name, Choice(_request(config, data, model, work, assignments)), as_json, dry_run
        )

    return command


@app.command("validate", help=ORDER["validate"], short_help=ORDER["validate"])
def validate(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    fix: Annotated[bool, typer.Option("--fix", help=FIX)] = False,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", metavar="CODE,...", help=FAIL_ON)
    ] = None,
    max_rejects: Annotated[
        int | None, typer.Option("--max-rejects", metavar="N", help=MAX_REJECTS)
    ] = None,
) -> int:
    """Check pictures and captions."""
    chosen = {
        "validate.fix": "needed" if fix else None,
        "validate.fail_on": fail_on,
        "validate.max_rejects": max_rejects,
    }
    extra = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    settings = _request(config, data, model, work, [*(assignments or ()), *extra])
    return _run_stage("validate", Choice(settings), as_json, dry_run)


@app.command("caption", help=ORDER["caption"], short_help=ORDER["caption"])
def caption(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    redo: Annotated[
        list[str] | None, typer.Option("--redo", metavar="ID|drafts", help=REDO)
    ] = None,
) -> int:
    """Draft captions and merge the review."""
    settings = _request(config, data, model, work, assignments)
    return _run_stage("caption", Choice(settings, redo=tuple(redo or ())), as_json, dry_run)


for _name in ("bucket", "cache"):
    _add_stage(_name)


@app.command("train", help=ORDER["train"], short_help=ORDER["train"])
def train(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME)] = False,
    run: RunOption = "",
) -> int:
    """Train a LoRA from the shards."""
    settings = _request(config, data, model, work, assignments)
    return _run_stage("train", Choice(settings, _path(run), resume), as_json, dry_run)


@app.command("sample", help=ORDER["sample"], short_help=ORDER["sample"])
def sample(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    run: RunOption = "",
) -> int:
    """Make pictures with and without the LoRA."""
    settings = _request(config, data, model, work, assignments)
    return _run_stage("sample", Choice(settings, _path(run)), as_json, dry_run)


@app.command("export", help=ORDER["export"], short_help=ORDER["export"])
def export(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    run: RunOption = "",
    layout: Annotated[str, typer.Option("--layout", help="kohya, diffusers or peft.")] = "",
    output: Annotated[str, typer.Option("--output", help="File or folder to write.")] = "",
) -> int:
    """Write the LoRA in another layout."""
    chosen = {"export.layout": layout, "export.output": output}
    extra = [f"{name}={value}" for name, value in chosen.items() if value]
    settings = _request(config, data, model, work, [*(assignments or ()), *extra])
    return _run_stage("export", Choice(settings, _path(run)), as_json, False)


@app.command("approve")
def approve(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Approve this row of review.csv.")
    ] = None,
    all_drafts: Annotated[
        bool, typer.Option("--all-drafts", help="Approve every draft that has a text.")
    ] = False,
) -> int:
    """Approve captions in review.csv without opening it."""
    from latentmill.stages.approve import approve as approve_rows

    settings = _request(config, data, model, work, assignments)
    console, encoding = open_console(), settings.caption.review_encoding
    open_work_folder(settings.layout())
    report = approve_rows(settings.layout(), tuple(ids or ()), all_drafts, encoding)
    print_report(console, report)
    return _end(report, as_json)


@app.command("config")
def show_config(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
) -> None:
    """Print every setting with its value and meaning, as a TOML file for --config."""
    typer.echo(config_text(_request(config, data, model, work, assignments)), nl=False)


@app.command("status")
def status(
    config: ConfigOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    work: WorkOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the ledger of pictures and what each stage has still to do."""
    from latentmill.pipeline.status import print_status, read_status

    state = read_status(_request(config, data, model, work, assignments))
    print_status(open_console(), state)
    if as_json:
        typer.echo(json.dumps(state.to_json(), sort_keys=True))
    return 0


@app.command("demo")
def demo(
    work: WorkOption = None,
    model_only: Annotated[
        str, typer.Option("--model-only", metavar="DIR", help="Only write the small model to DIR.")
    ] = "",
    random: Annotated[
        bool, typer.Option("--random", help="With --model-only: untrained weights.")
    ] = False,
) -> int:
    """Show the whole way on drawn pictures with a small model: no download, some minutes."""
    from latentmill.pipeline.demo import run_demo, write_demo_model

    console = open_console()
    set_up_logging(console, quiet=True)
    if model_only:
        write_demo_model(model_only, random)
        console.print(f"wrote the small model: use it with --model {escape(model_only)}")
        console.print("  and small buckets, the same for each stage, such as " + SMALL_BUCKETS)
        return 0
    return run_demo(work or "work/demo", console)
