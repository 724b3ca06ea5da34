"""Captions and pictures on a page of this machine, for a person to decide."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Report
from latentmill.datasets.words import counted
from latentmill.stages.checking.duplicates import DUPLICATES, read_groups
from latentmill.stages.encoding.survey import load_rules, read_records
from latentmill.stages.settings import CaptionSettings, Source, ValidateSettings


@dataclass(frozen=True, slots=True)
class Review:
    """Serves the page until a person ends it; the caller holds the lock of `caption`'s folder.

    `negative` is the negative prompt, whose words no caption should hold. `port` 0 is a free one.
    """

    layout: Layout
    sources: tuple[Source, ...]
    settings: CaptionSettings
    validate: ValidateSettings
    negative: str = ""
    port: int = 0
    name: ClassVar[str] = "review"

    def run(self, ready: Callable[[str], None]) -> Report:
        """Serve, and say at the end what was decided; `ready` gets the address.

        Raises UsageError before `validate` and `caption` ran, where the extra is not installed
        and when the port is taken; DataError when `review.csv` cannot be read.
        """
        _require_extra()
        from latentmill.stages.reviewing.app import Site, make_app
        from latentmill.stages.reviewing.pictures import Pictures
        from latentmill.stages.reviewing.server import listen, serve
        from latentmill.stages.reviewing.store import Setting, Store

        records = {record.id: record for record in read_records(self.layout, len(self.sources))}
        triggers = {key: self.sources[one.source].trigger for key, one in records.items()}
        encoding = self.settings.review_encoding
        setting = Setting(self.layout, records, triggers, self.negative, encoding)
        store = Store(setting)
        before = store.load()
        groups = read_groups(self.layout.stage("validate") / DUPLICATES)
        pictures = Pictures(self.layout.stage("caption"), records, load_rules(self.validate))
        listener = listen(self.port)
        port = int(listener.getsockname()[1])
        name = Path(self.sources[0].path).name or self.layout.work.name
        site = Site(name, setting, store, pictures, groups, secrets.token_hex(16), port)
        serve(make_app(site), listener, lambda: ready(site.address))
        then, now = before.rows, store.load().rows
        changed = sum(row != then.get(key) for key, row in now.items())
        return _report(self.layout, changed, [row.status for row in now.values()])


def _report(layout: Layout, changed: int, statuses: list[str]) -> Report:
    counts = {
        "changed": changed,
        "waiting": statuses.count("draft") + statuses.count("check"),
        "ok": statuses.count("ok"),
        "set_aside": statuses.count("skip"),
    }
    return Report("review", True, counts, next_steps=_next_steps(layout, counts["waiting"]))


def _next_steps(layout: Layout, waiting: int) -> tuple[NextStep, ...]:
    if not waiting:
        return (step("encode pictures and captions", Command("cache")),)
    rows = counted(waiting, "row waits", "rows wait")
    return (
        step(f"{rows} in {layout.review}: go on where you stopped", Command("review")),
        step("or approve all drafts at once", Command("approve", ("--all-drafts",))),
    )


def _require_extra() -> None:
    try:
        import jinja2
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the review page needs a package that is not installed: {error.name}",
            expected="latentmill with its extra `review`",
            fix="install it with `pip install 'latentmill[review]'`, or edit review.csv in a "
            "spreadsheet",
        ) from error
    del jinja2, starlette, uvicorn
