"""The command line: one command per stage, with the same flags for all."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

from latentmill.datasets.errors import Interrupted
from latentmill.datasets.versions import versions
from latentmill.datasets.words import counted
from latentmill.pipeline.asking import asked, end, opened, run_stage
from latentmill.pipeline.cache_commands import cache_app
from latentmill.pipeline.config import Config, resumed_config
from latentmill.pipeline.config_text import config_text
from latentmill.pipeline.console import open_console, print_report, set_up_logging
from latentmill.pipeline.invocation import Invocation
from latentmill.pipeline.options import (
    DryRunOption,
    JsonOption,
    RunOption,
    Shared,
    with_shared,
)
from latentmill.pipeline.run import lock_paths, open_work_folder
from latentmill.pipeline.stages import ORDER, Choice, make_stage


class _InOrder(typer.core.TyperGroup):
    """Lists the stages in the order of the pipeline, then the other commands as they are told."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names, in order."""
        told = super().list_commands(ctx)
        places = {name: place for place, name in enumerate(LISTED)}
        return sorted(told, key=lambda name: places.get(name, len(places)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interruption comes out as Interrupted, which typer leaves alone."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # Newer typer returns 130 and drops it.
            raise Interrupted from error


LISTED = (
    *("validate", "caption", "review", "approve", "bucket", "cache", "train", "sample", "export"),
)

app = typer.Typer(
    name="latentmill",
    cls=_InOrder,
    help="Turn a folder of pictures and captions into a Stable Diffusion LoRA.\n\n"
    "In order: validate, caption, review (or edit WORK/review.csv), cache, train, sample. "
    "Run again, each does only what is new or changed; train makes a new run, or goes on with "
    "--resume. `latentmill status` says what to run next. `latentmill demo` "
    "shows the whole way with a small model, without any download.\n\n"
    "Exit codes: 0 done, 1 internal error, 2 usage or configuration, 3 the data needs a person, "
    "4 out of memory, 5 out of disk, 6 training diverged, 7 model unreadable, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SMALL_BUCKETS = "--set bucket.area=64 --set bucket.step=16 --set bucket.min=32 --set bucket.max=128"
ENCODING = "Encoding of captions that are not UTF-8, such as gb18030 (short for validate.encoding)."
FIX = "Write repaired copies under WORK/validate/fixed and go on with those (validate.fix)."
FAIL_ON = "Codes or kinds that end with exit 3, besides too many rejects [default: check]."
MAX_REJECTS = "Rejected pictures that do not end with exit 3 [default: 0]."
REDO = "Draft this row again, or with `drafts` all that nobody touched; may be repeated."
MIN_CLIP_SCORE = "Approve the drafts whose CLIP score (-1 to 1, good ones near 0.3) is not lower."
NO_BROWSER = "Print the address only; a person opens it."
PORT = "Port of 127.0.0.1 to serve on [default: a free one]."
REVIEW = "Look at pictures and captions on a page of this machine: edit, approve, set aside."
STATUS = "Print where every picture went, and what to run next."
CONFIG = "Print every setting with its value and meaning."
DEMO = "Show the whole way with a small model, without any download."
DECODE = "Decode the previews that a run kept (train.preview_every) instead."
RESUME = "Go on with the latest run (or --run) from its last saved state, with its settings."


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    if version:
        typer.echo(versions()["latentmill"])
        raise typer.Exit


def _path(name: str) -> Path | None:
    return Path(name).expanduser() if name else None


def _resumed(shared: Shared, settings: Config, run: Path) -> Choice:
    """The run's own settings and what this command line changes of them, in this work folder."""
    known = resumed_config(shared.request(), run)
    config = known.model_copy(update={"work": settings.work, "data": known.data or settings.data})
    return Choice(config, run, resume=True)


def _add_stage(name: str) -> None:
    @app.command(name, help=ORDER[name], short_help=ORDER[name])
    @with_shared
    def command(shared: Shared, as_json: JsonOption = False, dry_run: DryRunOption = False) -> int:
        how = asked(shared, as_json, dry_run)
        return run_stage(name, Choice(opened(shared, how.console)), how)


@app.command("validate", help=ORDER["validate"], short_help=ORDER["validate"])
@with_shared
def validate(
    shared: Shared,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    encoding: Annotated[str, typer.Option("--encoding", metavar="NAME", help=ENCODING)] = "",
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
        "validate.encoding": encoding or None,
        "validate.fix": "needed" if fix else None,
        "validate.fail_on": fail_on,
        "validate.max_rejects": max_rejects,
    }
    extra = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    how = asked(shared, as_json, dry_run)
    return run_stage("validate", Choice(opened(shared, how.console, *extra)), how)


@app.command("caption", help=ORDER["caption"], short_help=ORDER["caption"])
@with_shared
def caption(
    shared: Shared,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    redo: Annotated[
        list[str] | None, typer.Option("--redo", metavar="ID|drafts", help=REDO)
    ] = None,
) -> int:
    """Draft captions and merge the review."""
    how = asked(shared, as_json, dry_run)
    choice = Choice(opened(shared, how.console), redo=tuple(redo or ()))
    code = run_stage("caption", choice, how)
    if dry_run and choice.config.caption.replace:
        _print_replacements(choice, how.console)
    return code


def _print_replacements(choice: Choice, console: Console) -> None:
    from latentmill.stages.caption import Caption

    stage = make_stage("caption", choice)
    assert isinstance(stage, Caption)
    changes = stage.preview()
    console.print(f"caption.replace changes {counted(len(changes), 'caption')}")
    for change in changes:
        console.print(f"  {escape(change)}")


@app.command("review", short_help=REVIEW)
@with_shared
def review(
    shared: Shared,
    as_json: JsonOption = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help=NO_BROWSER)] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help=PORT)] = 0,
) -> int:
    """Look at pictures and captions on a page of this machine: edit, approve, set aside.

    Every change is in WORK/review.csv at once; Ctrl-C ends it.
    """
    from latentmill.pipeline.reviewing import run_review

    how = asked(shared, as_json)
    report = run_review(opened(shared, how.console), how, port, opens_browser=not no_browser)
    return end(report, as_json)


@app.command("approve")
@with_shared
def approve(
    shared: Shared,
    as_json: JsonOption = False,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Approve this row of review.csv."),
    ] = None,
    all_drafts: Annotated[
        bool, typer.Option("--all-drafts", help="Approve every draft that has a text.")
    ] = False,
    min_clip_score: Annotated[
        float | None,
        typer.Option("--min-clip-score", metavar="X", help=MIN_CLIP_SCORE),
    ] = None,
) -> int:
    """Approve captions in review.csv without opening it."""
    from latentmill.cache.lock import held
    from latentmill.stages.approve import approve as approve_rows

    how = asked(shared, as_json)
    settings = opened(shared, how.console)
    layout, encoding = settings.layout(), settings.caption.review_encoding
    open_work_folder(layout)
    (lock,) = lock_paths(layout, "caption")  # Both write review.csv.
    with held(lock, "latentmill approve"):
        report = approve_rows(layout, tuple(ids or ()), all_drafts, encoding, min_clip_score)
    print_report(how.console, report, how.spell)
    return end(report, as_json)


_add_stage("bucket")
app.add_typer(cache_app, name="cache")


@app.command("train", help=ORDER["train"], short_help=ORDER["train"])
@with_shared
def train(
    shared: Shared,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME)] = False,
    run: RunOption = "",
) -> int:
    """Train a LoRA from the shards."""
    from latentmill.stages.training.run_folder import find_run

    how = asked(shared, as_json, dry_run)
    settings = opened(shared, how.console)
    if not (resume or run):
        return run_stage("train", Choice(settings), how)
    folder = find_run(settings.layout(), _path(run))
    return run_stage("train", _resumed(shared, settings, folder), how)


@app.command("sample", help=ORDER["sample"], short_help=ORDER["sample"])
@with_shared
def sample(
    shared: Shared,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    run: RunOption = "",
    decode: Annotated[bool, typer.Option("--decode", help=DECODE)] = False,
) -> int:
    """Make pictures with and without the LoRA."""
    how = asked(shared, as_json, dry_run)
    choice = Choice(opened(shared, how.console), _path(run))
    return run_stage("previews" if decode else "sample", choice, how)


@app.command("export", help=ORDER["export"], short_help=ORDER["export"])
@with_shared
def export(
    shared: Shared,
    as_json: JsonOption = False,
    run: RunOption = "",
    layout: Annotated[
        str, typer.Option("--layout", metavar="NAME", help="kohya, diffusers or peft.")
    ] = "",
    output: Annotated[
        str, typer.Option("--output", metavar="PATH", help="File or folder to write.")
    ] = "",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="float32, float16 or bfloat16.")
    ] = "",
    rank: Annotated[
        int, typer.Option("--rank", help="Shrink to this rank; says what is kept of the LoRA.")
    ] = 0,
    step: Annotated[
        int, typer.Option("--step", help="Take the saved state of this step of the run.")
    ] = 0,
    merge: Annotated[
        str,
        typer.Option("--merge", metavar="DIR", help="Write the whole model with the LoRA added."),
    ] = "",
) -> int:
    """Write the LoRA in another layout, smaller, or merged into its model."""
    chosen = {
        "export.layout": layout,
        "export.output": output,
        "export.dtype": dtype,
        "export.rank": rank,
        "export.step": step,
        "export.merge": merge,
    }
    extra = [f"{name}={value}" for name, value in chosen.items() if value]
    how = asked(shared, as_json)
    return run_stage("export", Choice(opened(shared, how.console, *extra), _path(run)), how)


@app.command("status", short_help=STATUS)
@with_shared
def status(shared: Shared, as_json: JsonOption = False) -> int:
    """Print where every picture went, and what to run next for each stage.

    Nothing is written.
    """
    from latentmill.pipeline.status import print_status, read_status

    console = open_console()
    state = read_status(opened(shared, console))
    print_status(console, state, shared.invocation.spell)
    if as_json:
        typer.echo(json.dumps(state.to_json(), sort_keys=True))
    return 0


@app.command("config", short_help=CONFIG)
@with_shared
def show_config(shared: Shared) -> int:
    """Print every setting with its value and meaning, as a TOML file for --config."""
    typer.echo(config_text(opened(shared, open_console())), nl=False)
    return 0


@app.command("demo", short_help=DEMO)
def demo(
    context: typer.Context,
    work: Annotated[str, typer.Option("--work", metavar="DIR", help="Folder for results.")] = (
        "work/demo"
    ),
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
    return run_demo(work, console, context.find_object(Invocation) or Invocation())
