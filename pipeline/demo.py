"""The whole way on drawn pictures and the small model, each stage with the command that does it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from latentmill.cache.files import write_text
from latentmill.datasets.errors import UsageError
from latentmill.datasets.next_steps import Command, Spell
from latentmill.datasets.records import Report
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_reading import parse_review
from latentmill.pipeline.config import Config, Request, load_config
from latentmill.pipeline.config_text import config_text
from latentmill.pipeline.demo_pictures import TRIGGER, demo_prompts, write_demo_pictures
from latentmill.pipeline.engines import serial
from latentmill.pipeline.invocation import Invocation
from latentmill.pipeline.run import Driver, open_work_folder
from latentmill.pipeline.stages import Choice, make_stage

STEPS: Final = (
    ("validate", "Every picture and caption is read in full. Four files have a fault each."),
    ("caption", "The picture without a caption gets a draft. Your folder is never written."),
    ("cache", "Pictures and captions are encoded once; a second run would encode nothing."),
    ("train", "Only the UNet and the LoRA are in memory now."),
    ("sample", "The same prompts and seeds, without and with the LoRA."),
    ("export", "The same LoRA in diffusers' layout."),
)
SETTINGS: Final = (
    "validate.max_rejects=1",
    "validate.fail_on=",
    "bucket.area=64",
    "bucket.step=16",
    "bucket.min=32",
    "bucket.max=128",
    "train.name=hatched",
    "train.learning_rate=2e-3",
    "train.batch_size=4",
    "train.gradient_accumulation=1",
    "train.gradient_checkpointing=false",
    "train.steps=200",
    "sample.negative=",
    "sample.guidance=5",
    f"data.trigger={TRIGGER}",
)


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its pictures, models and results."""

    root: Path

    @property
    def pictures(self) -> Path:
        """The folder that a user would bring."""
        return self.root / "pictures"

    @property
    def model(self) -> Path:
        """The small Stable Diffusion, in diffusers layout."""
        return self.root / "model"

    @property
    def captioner(self) -> Path:
        """The small BLIP."""
        return self.root / "captioner"

    @property
    def settings(self) -> Path:
        """The configuration of every command of the demo."""
        return self.root / "demo.toml"

    def config(self) -> Config:
        """The demo's settings: small buckets, a short training."""
        prompts = "[" + ", ".join(f'"{prompt}"' for prompt in demo_prompts()) + "]"
        paths = (
            f"caption.model={self.captioner}",
            "caption.score_model=none",
            f"sample.prompts={prompts}",
        )
        return load_config(
            Request(
                data=str(self.pictures),
                model=str(self.model),
                work=str(self.root),
                assignments=(*SETTINGS, *paths),
            )
        )


def write_demo_model(folder: str, random: bool) -> None:
    """Write the small model to `folder`; raises UsageError when something else is there."""
    target = Path(folder).expanduser()
    if target.exists() and not _is_free(target):
        raise UsageError(
            "the folder holds something else", where=folder, fix="name a new or an empty folder"
        )
    if random:
        from latentmill.pipeline.tinysd.architecture import write_random_model

        write_random_model(target)
    else:
        from latentmill.pipeline.tinysd.model import write_model

        write_model(target)


def _is_free(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "model_index.json").exists() or not any(folder.iterdir()))


def run_demo(work: str, console: Console, called: Invocation) -> int:
    """Prepare pictures and models, run every stage, and name what came out.

    Each stage's command is shown as the person would type it, who `called` the demo.
    """
    from latentmill.pipeline.tinysd.model import write_captioner

    folder = DemoFolder(Path(work).expanduser())
    config = folder.config()
    open_work_folder(config.layout())
    console.print(f"[bold]latentmill demo[/] in {escape(str(folder.root))}")
    console.print("  Twelve drawings of a new look, four files with faults, a small model.")
    write_demo_pictures(folder.pictures)
    write_demo_model(str(folder.model), random=False)
    write_captioner(folder.captioner)
    write_text(folder.settings, config_text(config))
    shown = replace(called, paths=(("--config", str(folder.settings)),), own=())
    reports = {}
    for name, text in STEPS:
        _announce(console, shown.spell(Command(name)), text)
        driver = Driver(config, serial, console, shown.spell)
        reports[name] = driver.run(make_stage(name, Choice(config)))
        if name == "caption":
            _review_as_a_person_would(config, console, shown.spell)
    _name_results(console, folder, called)
    return max(report.exit_code for report in reports.values())


def _announce(console: Console, command: str, text: str) -> None:
    console.print(f"\n[bold cyan]$ {escape(command)}[/]")
    console.print(f"  [dim]{escape(text)}[/]")


def _review_as_a_person_would(config: Config, console: Console, spell: Spell) -> Report:
    """Approve what waits; a person would open review.csv and look first."""
    from latentmill.stages.approve import approve

    layout = config.layout()
    rows = parse_review(layout.review.read_bytes(), str(layout.review))
    waiting = [row for row in rows if row.status in ("draft", "check")]
    ids = tuple(word for row in waiting for word in ("--id", row.id))
    _announce(
        console,
        spell(Command("approve", ids)),
        f"A person opens {layout.review}, looks, and approves; the demo does it in their place.",
    )
    for row in waiting:
        console.print(f"  {_described(row)}")
    return approve(layout, tuple(row.id for row in waiting), all_drafts=False)


def _described(row: ReviewRow) -> str:
    flags = f" ({', '.join(row.flags)})" if row.flags else ""
    return escape(f"{row.status} {row.image}: {row.caption!r}{flags}")


def _name_results(console: Console, folder: DemoFolder, called: Invocation) -> None:
    run = max((folder.root / "runs").glob("*/lora.safetensors")).parent
    console.print("\n[bold green]The demo is done.[/]")
    console.print(
        f"  the LoRA (ComfyUI, A1111, diffusers): {escape(str(run / 'lora.safetensors'))}"
    )
    comparison = next((run / "samples").rglob("comparison.png"), run)
    console.print(f"  without and with it, side by side:    {escape(str(comparison))}")
    report = folder.root / "validate" / "report.html"
    console.print(f"  what was found in the pictures:       {escape(str(report))}")
    own = replace(called, paths=(), own=()).spell
    console.print("  Your own pictures, from the first stage on:")
    console.print(f"    {escape(own(Command('validate', ('--data', 'DIR', '--model', 'ID'))))}")
