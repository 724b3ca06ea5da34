"""What commands have in common: their configuration, the driver of a stage, the exit code."""

import json

import typer
from rich.console import Console
from rich.markup import escape

from latentmill.datasets.records import Report
from latentmill.datasets.words import counted
from latentmill.pipeline.config import Config, recall_config
from latentmill.pipeline.console import open_console, set_up_logging
from latentmill.pipeline.engines import choose_engine, serial
from latentmill.pipeline.options import Asked, Shared
from latentmill.pipeline.run import Driver, claim_work
from latentmill.pipeline.stages import Choice, make_stage


def opened(shared: Shared, console: Console, *more: str) -> Config:
    """The configuration asked for; says what was recalled, refuses another data's work folder."""
    recalled = recall_config(shared.request(*more))
    for note in (claim_work(recalled.config), recalled.note):
        if note:
            console.print(f"  {escape(note)}")
    return recalled.config


def run_stage(stage_name: str, choice: Choice, asked: Asked) -> int:
    """Run a stage, or with `--dry-run` only say how much there is to do; return the exit code."""
    stage, console = make_stage(stage_name, choice), asked.console
    if asked.dry_run:
        units = stage.plan()
        size = sum(unit.size for unit in units)
        noun = "optimiser step" if stage_name == "train" else "picture"
        console.print(f"{stage_name}: {counted(size, noun) if size else 'nothing'} to do")
        return 0
    engine = choose_engine(choice.config.engine) if stage_name in ("validate", "cache") else serial
    driver = Driver(choice.config, engine, console, asked.spell, choice.part)
    report = driver.run(stage)
    return end(report, asked.as_json)


def end(report: Report, as_json: bool) -> int:
    """Print the report as JSON if that is wanted; return the exit code."""
    if as_json:
        typer.echo(json.dumps(report.to_json(), sort_keys=True))
    return report.exit_code


def asked(shared: Shared, as_json: bool, dry_run: bool = False) -> Asked:
    """Open the console and the log; return how the command is to run."""
    console = open_console()
    set_up_logging(console, quiet=False)
    return Asked(console, shared.invocation.spell, as_json, dry_run)
