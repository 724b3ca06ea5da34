"""What a run rests on and left behind -> its report again, as long as neither has changed."""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from latentmill.cache.files import write_text
from latentmill.datasets.images import installed_decoders
from latentmill.datasets.records import Report, report_from_json
from latentmill.datasets.sources import Scan
from latentmill.datasets.versions import versions

_NAME = "last-run.jsonl"
_UNSTAMPED = frozenset({_NAME, "lock", "report.json"})  # The report is written after the stage.
_SETTLING_NS = 2_000_000_000  # Clocks of files are coarse: FAT's goes in steps of two seconds.
_MAY_PASS = frozenset({"caption-unreadable", "folder-unreadable", "unreadable"})
_PACKAGES = ("latentmill", "pillow", "numpy", "imagehash", "chardet", "open-clip-torch", "xxhash")


@dataclass(frozen=True, slots=True)
class Basis:
    """What a run rests on. A file changed just before it was `seen_ns` may change unnoticed."""

    stamp: str
    changed_ns: int
    seen_ns: int

    @property
    def is_settled(self) -> bool:
        """Whether any later change of a file shows in its times."""
        return self.changed_ns < self.seen_ns - _SETTLING_NS


def basis_of(settings: Any, scans: Sequence[Scan], files: Iterable[Path], seen_ns: int) -> Basis:
    """Stamp settings (as JSON takes them), sources, other `files` that count, and the program."""
    marks = [_mark(path) for path in files]
    code = [_code_fingerprint(), versions(_PACKAGES), installed_decoders()]
    values = [code, settings, [one.stamp for one in scans], marks]
    changes = [*(one.changed_ns for one in scans), *(mark[-1] for mark in marks if mark)]
    return Basis(_hashed(values), max(changes), seen_ns)


def now_ns() -> int:
    """Return the time to compare changes of files with: before they are looked at."""
    return time.time_ns()


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run whose report may be given again; `folder` is that of `validate`."""

    folder: Path

    def rests_on(self, basis: Basis) -> bool:
        """Tell whether it had the same basis, and all that it left stands as it left it."""
        try:
            with self._file.open(encoding="ascii") as lines:
                return lines.readline().rstrip("\n") == self._stamp(basis)
        except (OSError, UnicodeDecodeError):
            return False

    def report(self, basis: Basis) -> Report | None:
        """Return its report, with nothing decoded; None when another is to be made."""
        if not self.rests_on(basis):
            return None
        try:
            values = json.loads(self._file.read_text(encoding="ascii").partition("\n")[2])
            counts = {**values["report"]["counts"], "decoded": 0}
            return report_from_json({**values["report"], "counts": counts}, values["exit_code"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, basis: Basis, report: Report) -> None:
        """Keep a report; not one that chance, rights or a person's answer may change."""
        passing = any(one.level == "check" or one.code in _MAY_PASS for one in report.problems)
        if passing or not basis.is_settled:
            self._file.unlink(missing_ok=True)
            return
        values = {"report": report.to_json(), "exit_code": report.exit_code}
        write_text(self._file, f"{self._stamp(basis)}\n{json.dumps(values)}\n")

    def _stamp(self, basis: Basis) -> str:
        return _hashed([basis.stamp, sorted(_left_in(self.folder, ""))])

    @property
    def _file(self) -> Path:
        return self.folder / _NAME


def _left_in(folder: Path, prefix: str) -> Iterator[list[Any]]:
    """List the files below a folder of ours with size and times."""
    with os.scandir(folder) as listing:
        entries = [entry for entry in listing if prefix or entry.name not in _UNSTAMPED]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _left_in(folder / entry.name, f"{prefix}{entry.name}/")
        else:
            yield [prefix + entry.name, *_times(entry.stat(follow_symlinks=False))]


def _mark(path: Path) -> list[int]:
    try:
        return _times(path.stat())
    except OSError:
        return []


def _times(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _hashed(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode("ascii")).hexdigest()


@cache
def _code_fingerprint() -> str:
    """Hash the modules that judge pictures and captions: other code judges anew."""
    stages = Path(__file__).resolve().parent.parent
    root = stages.parent
    folders = (stages, stages / "checking", root / "datasets", root / "cache")
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
