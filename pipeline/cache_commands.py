"""`latentmill cache`, and what looks after a cache: verify, stats, gc, export, import-kohya."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from latentmill.cache.part import read_part
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Report
from latentmill.pipeline.asking import asked, end, opened, run_stage
from latentmill.pipeline.config import Config
from latentmill.pipeline.console import print_report
from latentmill.pipeline.options import (
    Asked,
    DryRunOption,
    JsonOption,
    Shared,
    with_shared,
)
from latentmill.pipeline.progress import shown_progress
from latentmill.pipeline.run import lock_paths
from latentmill.pipeline.stages import ORDER, Choice

_HELP = (
    f"{ORDER['cache']}\n\n"
    "Without a command it encodes. Several processes share the work with --part 1/2, --part 2/2 "
    "(or --part auto under torchrun, in a Slurm array or a Kubernetes indexed job): the shards are "
    "the same bytes as those of one run, and the part that ends last writes the index. The "
    "commands look after what is encoded; flags may stand before or after them."
)
_ABOVE = "latentmill.cache"

cache_app = typer.Typer(
    name="cache", help=_HELP, short_help=ORDER["cache"], rich_markup_mode=None, add_completion=False
)

PartOption = Annotated[
    str,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Do part I of N, beside others; or `auto`: as the launcher says.",
    ),
]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]


@cache_app.callback(invoke_without_command=True)
@with_shared
def cache(
    shared: Shared,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    part: PartOption = "",
) -> int:
    """Encode, unless one of the commands follows."""
    command = shared.context.invoked_subcommand
    if command is None:
        how = asked(shared, as_json, dry_run)
        share = read_part(part, os.environ)
        return run_stage("cache", Choice(opened(shared, how.console), part=share), how)
    if part or dry_run:
        raise UsageError(
            f"--part and --dry-run belong to `latentmill cache` itself, not to {command}",
            fix="leave them out",
        )
    shared.context.meta[_ABOVE] = (shared, as_json)
    return 0


@cache_app.command("verify")
@with_shared
def verify(shared: Shared, as_json: JsonOption = False) -> int:
    """Read every byte; name each damaged or missing file and the way on (exit code 3)."""
    from latentmill.stages.upkeep.verify import verify_cache

    config, how = _asked_below(shared, as_json)
    layout = config.layout()
    num_shards = len(list(layout.shards.glob("*.json"))) if layout.shards.is_dir() else 0
    with shown_progress(how.console, "cache verify", num_shards) as tick:
        report = verify_cache(layout, tick)
    return _told(report, how)


@cache_app.command("stats")
@with_shared
def stats(shared: Shared, as_json: JsonOption = False) -> int:
    """Say what the cache holds, who uses it, and what the last run encoded."""
    from latentmill.stages.upkeep.stats import cache_statistics, statistics_lines

    config, how = _asked_below(shared, as_json)
    report = cache_statistics(config.layout())
    for line in statistics_lines(report.counts):
        how.console.print(f"  {escape(line)}")
    return _told(replace(report, counts={"works": report.counts["works"]}), how, report)


@cache_app.command("gc")
@with_shared
def collect(
    shared: Shared,
    as_json: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what is listed.")] = False,
) -> int:
    """List what no work uses; delete it with --yes.

    Whole shards only: one of which a single sample is used stays. Every work that was encoded into
    a shared cache is known there; one whose folder cannot be reached counts as using its shards.
    """
    from latentmill.stages.upkeep.collect import collect_garbage

    config, how = _asked_below(shared, as_json)
    layout = config.layout()
    with _locked(layout, "latentmill cache gc"):
        report = collect_garbage(layout, is_meant=yes)
    for problem in report.problems:
        how.console.print(f"  {escape(problem.path)}: {escape(problem.message)}")
    return _told(replace(report, problems=()), how, report)


@cache_app.command("export")
@with_shared
def export(shared: Shared, folder: FolderArgument, as_json: JsonOption = False) -> int:
    """Copy each sample out of its shard into DIR: ID.safetensors and ID.json, for other tools."""
    from latentmill.cache.mapped import MappedCache
    from latentmill.stages.upkeep.export_samples import export_samples

    config, how = _asked_below(shared, as_json)
    _require_apart(folder, config)
    layout = config.layout()
    num_samples = len(MappedCache.open(layout.cache_index, layout.shards).samples)
    with shown_progress(how.console, "cache export", num_samples) as tick:
        report = export_samples(layout, folder.expanduser(), tick)
    return _told(report, how)


@cache_app.command("import-kohya")
@with_shared
def import_latents(shared: Shared, folder: FolderArgument, as_json: JsonOption = False) -> int:
    """Take latents that kohya's sd-scripts cached (.npz in DIR), where they fit.

    DIR is the folder of pictures that was cached, or a copy of its .npz files. Each is checked:
    picture size, bucket, channels, finite values; pickles are refused. They are one draw each,
    without spread. The next `latentmill cache` takes them over and encodes the rest.
    """
    from latentmill.datasets.records import read_manifest
    from latentmill.stages.upkeep.import_kohya import ImportPlan, import_kohya

    config, how = _asked_below(shared, as_json)
    layout = config.layout()
    num = len(read_manifest(layout.manifest)) if layout.manifest.is_file() else 0
    plan = ImportPlan(layout, config.sources(), config.bucket, config.model)
    with (
        _locked(layout, "latentmill cache import-kohya"),
        shown_progress(how.console, "cache import-kohya", num) as tick,
    ):
        report = import_kohya(plan, folder.expanduser(), tick)
    return _told(report, how)


def _asked_below(shared: Shared, as_json: bool) -> tuple[Config, Asked]:
    """The configuration and the way to report, with the flags before the command's name."""
    above, above_json = shared.context.meta[_ABOVE]
    merged = replace(
        shared,
        config=shared.config or above.config,
        data=shared.data or above.data,
        model=shared.model or above.model,
        work=shared.work or above.work,
        assignments=[*(above.assignments or ()), *(shared.assignments or ())],
    )
    how = asked(merged, as_json or above_json)
    return opened(merged, how.console), how


def _told(report: Report, how: Asked, whole: Report | None = None) -> int:
    """Print a report; JSON gets the `whole` one where people got part of it another way."""
    print_report(how.console, report, how.spell)
    return end(whole or report, how.as_json)


@contextmanager
def _locked(layout: Layout, purpose: str) -> Iterator[None]:
    from latentmill.cache.lock import held

    with ExitStack() as locks:
        for path in lock_paths(layout, "cache"):
            locks.enter_context(held(path, purpose))
        yield


def _require_apart(folder: Path, config: Config) -> None:
    inside = folder.expanduser().absolute()
    for source in config.data:
        data = Path(source.path).expanduser().absolute()
        if data == inside or data in inside.parents:
            raise UsageError(
                "the folder lies in the data folder, which is read only",
                where=str(folder),
                fix="name a folder elsewhere",
            )
