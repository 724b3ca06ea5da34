"""A picture that breaks its decoder is its own reject, under every engine; the rest is used."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from latentmill.datasets.images import LoadRules
from latentmill.datasets.isolation import Limits
from latentmill.datasets.records import Record, read_manifest
from latentmill.datasets.sources import FoundPicture, scan
from latentmill.stages.checking.apart import decode_apart
from latentmill.stages.checking.copies import CopyOrder
from latentmill.stages.checking.decoded import decode
from latentmill.stages.checking.repair import Copier
from latentmill.stages.settings import ValidateSettings

LIMITS = Limits(30, 2**31)


def copier(rules: LoadRules) -> Copier:
    """One that copies nothing."""
    return Copier(CopyOrder(Path("fixed"), "name", "png"), ValidateSettings(), rules)


SABOTEUR = """
import ctypes, os, signal, sys, time
from pathlib import Path
from PIL import ImageFile

sound = ImageFile.ImageFile.load

def load(self):
    name = self.info.get("Title", "")
    if name.startswith("segfault"):
        ctypes.string_at(0)
    if name.startswith("abort"):
        os.write(2, b"free(): invalid pointer\\n")
        os.abort()
    if name.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("hang"):
        time.sleep(600)
    if name.startswith("hungry"):
        bytearray(1 << 40)
    if name.startswith("once"):
        mark = Path(os.environ["MARKS"], name)
        if not mark.exists():
            mark.touch()
            ctypes.string_at(0)
    return sound(self)

ImageFile.ImageFile.load = load
"""
BROKEN = {
    "segfault 1.png": "decoder-crashed",
    "segfault 2.png": "decoder-crashed",
    "segfault 3.png": "decoder-crashed",
    "abort.png": "decoder-crashed",
    "killed.png": "out-of-memory",
    "hungry.png": "out-of-memory",
    "hang.png": "too-slow",
}


def draw(path: Path, seed: int) -> None:
    image = Image.linear_gradient("L").resize((80, 72)).convert("RGB")
    image.putpixel((0, 0), (seed, 1, 2))
    title = PngInfo()  # What the saboteur goes by.
    title.add_text("Title", path.name.encode("ascii", "replace").decode())
    image.save(path, pnginfo=title)


@dataclass(frozen=True)
class Sabotaged:
    """A folder whose pictures break decoders, and the command run on it."""

    root: Path

    def run(self, work: str, *settings: str) -> dict[str, object]:
        """Run `validate` in a process of its own; return its report."""
        marks = self.root / f"marks-{work}"
        marks.mkdir(exist_ok=True)
        path = os.pathsep.join([str(self.root / "saboteur"), *sys.path])
        done = subprocess.run(
            [
                *(sys.executable, "-c", "from latentmill.pipeline.main import main; main()"),
                *("validate", "--json"),
                *("--data", str(self.root / "data"), "--work", str(self.root / work)),
                *(word for one in settings for word in ("--set", one)),
            ],
            env={**os.environ, "PYTHONPATH": path, "MARKS": str(marks)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        return dict(json.loads(done.stdout))

    def records(self, work: str) -> list[Record]:
        """The usable pictures."""
        return read_manifest(self.root / work / "validate" / "manifest.jsonl")


@pytest.fixture
def sabotaged(tmp_path: Path) -> Sabotaged:
    (tmp_path / "saboteur").mkdir()
    (tmp_path / "saboteur" / "sitecustomize.py").write_text(SABOTEUR)
    (tmp_path / "data").mkdir()
    for seed, name in enumerate([*BROKEN, "a.png", "once.png", "z.png"]):
        draw(tmp_path / "data" / name, seed)
    return Sabotaged(tmp_path)


def told(report: dict[str, object]) -> dict[str, tuple[str, str]]:
    problems = report["problems"]
    assert isinstance(problems, list)
    return {
        one["path"]: (one["code"], one["message"]) for one in problems if one["level"] == "reject"
    }


@pytest.mark.slow
def test_every_engine_rejects_what_breaks_decoders_and_uses_the_rest(sabotaged: Sabotaged) -> None:
    limits = ("validate.max_seconds=2", "validate.max_gigabytes=1")
    serial = sabotaged.run("serial", *limits)
    spread = sabotaged.run("spread", *limits, "engine.kind=processes", "engine.workers=2")
    assert {path: code for path, (code, _) in told(serial).items()} == BROKEN
    assert told(serial)["segfault 1.png"][1].endswith("with SIGSEGV (Segmentation fault)")
    assert told(serial)["abort.png"][1].endswith("its last words: free(): invalid pointer")
    assert "SIGKILL" in told(serial)["killed.png"][1]
    assert "2 seconds" in told(serial)["hang.png"][1]
    assert serial["problems"] == spread["problems"]
    assert serial["counts"] == spread["counts"]
    assert [record.path for record in sabotaged.records("serial")] == ["a.png", "once.png", "z.png"]
    assert sabotaged.records("serial") == sabotaged.records("spread")


@pytest.mark.slow
def test_a_crash_is_remembered_and_what_the_machine_may_cause_is_tried_again(
    sabotaged: Sabotaged,
) -> None:
    for name in ("segfault 2.png", "segfault 3.png", "hang.png", "hungry.png"):
        (sabotaged.root / "data" / name).unlink()
    first = sabotaged.run("work")
    second = sabotaged.run("work")
    assert told(first) == told(second)
    assert isinstance(second["counts"], dict)
    assert second["counts"]["decoded"] == 1  # killed.png


@pytest.fixture
def found(tmp_path: Path) -> list[FoundPicture]:
    draw(tmp_path / "a.png", 1)
    draw(tmp_path / "b\udcff\n.png", 2)
    (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:150])
    (tmp_path / "d.png").symlink_to("gone")
    return list(scan(tmp_path, 0).pictures)


def test_another_process_tells_what_this_one_would(found: list[FoundPicture]) -> None:
    rules = LoadRules(max_megapixels=float("inf"))
    assert len(found) == 4
    for one in found:
        assert decode_apart(one, copier(rules), None, LIMITS) == decode(one, rules, None)


def test_the_thumbnail_is_written_where_this_process_stands(
    found: list[FoundPicture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    decode_apart(found[0], copier(LoadRules()), Path("small/a.jpg"), LIMITS)
    assert (tmp_path / "small" / "a.jpg").is_file()
