"""The account of a work folder's pictures, and what to run next for each stage."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from latentmill.datasets.next_steps import Spell
from latentmill.pipeline.config import Config
from latentmill.pipeline.standing import StageState, Today, read_today, stage_states

STYLES: Final = {
    "fresh": "green",
    "stale": "yellow",
    "waiting": "yellow",
    "missing": "dim",
    "blocked": "red",
}


@dataclass(frozen=True, slots=True)
class Status:
    """Where a work stands: its stages, and the account of its pictures."""

    work: str
    stages: tuple[StageState, ...]
    ledger: tuple[str, ...]
    closes: bool

    def to_json(self) -> dict[str, Any]:
        """The object that `status --json` prints."""
        return asdict(self)


def read_status(config: Config) -> Status:
    """Look at data and work folder as they are now; nothing is decoded, encoded or trained."""
    config.sources()  # Without any there is nothing to look at.
    today = read_today(config)
    stages = stage_states(today)
    ledger, closes = _ledger(today, {stage.name: stage for stage in stages})
    return Status(str(today.layout.work), stages, ledger, closes)


def print_status(console: Console, status: Status, spell: Spell = str) -> None:
    """One line per stage with its next command below, each once; then the account."""
    console.print(f"[bold]{escape(status.work)}[/]")
    shown: set[str] = set()
    for stage in status.stages:
        style = STYLES[stage.state]
        console.print(f"  {stage.name:<9} [{style}]{stage.state:<8}[/] {escape(stage.note)}")
        for command in stage.next:
            if (line := spell(command)) not in shown:
                shown.add(line)
                console.print(f"  {'':<9} [bold]->[/]       {escape(line)}")
    for entry in status.ledger:
        console.print(f"  {escape(entry)}")
    if not status.closes:
        console.print("  [red]these sums do not close: run what is named above, in order[/]")


def _ledger(today: Today, stages: dict[str, StageState]) -> tuple[tuple[str, ...], bool]:
    """The account of the pictures, line by line, and whether every sum holds."""
    usable, sums = len(today.records), []
    if today.layout.manifest.is_file():
        parts = {"usable": usable, "rejected": len(today.rejected)}
        sums.append(("pictures", len(today.found), "found", parts))
    if (selection := today.selection) is not None:
        waiting = len(selection.waiting) + len(selection.uncaptioned)
        parts = {"to train on": len(selection.samples), "set aside": len(selection.set_aside)}
        sums.append(("captions", usable, "usable", {**parts, "waiting": waiting}))
        if today.index is not None:
            cached = len(today.index.samples)
            sums.append(("cache", len(selection.samples), "to train on", {"cached": cached}))
            if trained := stages["train"].counts:
                parts = {"trained": trained["samples"], "held out": trained["held_out"]}
                sums.append(("train", cached, "cached", parts))
    lines = tuple(
        f"{name + ':':<9} {whole} {word} = "
        + " + ".join(f"{count} {part}" for part, count in parts.items())
        for name, whole, word, parts in sums
    )
    return lines, all(whole == sum(parts.values()) for _, whole, _, parts in sums)
