"""What the README says is true: commands, targets, settings, problem codes, code."""

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from latentmill.pipeline.config import Request, load_config
from latentmill.pipeline.main import run
from latentmill.stages.checking.findings import FINDINGS, LOADER_REJECTS

if TYPE_CHECKING:
    from conftest import PictureSet

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for layer in ("datasets", "cache", "stages")
    for path in (ROOT / layer).rglob("*.py")
)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _listed_codes() -> list[str]:
    return re.findall(r"^\| `([a-z-]+)` \| (?:reject|check|warning|advice|flag|stop)", README, re.M)


@pytest.mark.parametrize("text", _blocks("toml"))
def test_every_configuration_shown_loads(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    load_config(Request(config=str(tmp_path / "run.toml")))


def _shown_assignments() -> list[tuple[str, ...]]:
    found = (re.findall(r"--set ([a-z_.]+=[\w.]+)", span) for span in README.splitlines())
    return sorted({tuple(assignments) for assignments in found if assignments})


@pytest.mark.parametrize("assignments", _shown_assignments())
def test_every_setting_shown_exists(assignments: tuple[str, ...]) -> None:
    load_config(Request(data="x", assignments=assignments))


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`latentmill (\w+)", README))))
def test_every_command_shown_exists(command: str) -> None:
    assert run([command, "--help"]) == 0


def test_every_target_shown_exists() -> None:
    shown = re.findall(r"(?:^|`)make ([a-z -]+)", README, re.M)
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
    assert {word for line in shown for word in line.split()} <= targets


@pytest.mark.parametrize("code", _listed_codes())
def test_every_code_listed_is_in_the_program(code: str) -> None:
    assert f'"{code}"' in CODE


def test_every_reject_listed_may_be_named_in_fail_on() -> None:
    rejects = re.findall(r"^\| `([a-z-]+)` \| reject", README, re.M)
    known = {code for code, kind in FINDINGS.items() if kind.level == "reject"} | LOADER_REJECTS
    assert set(rejects) == known


def test_the_listed_codes_are_many() -> None:
    assert len(_listed_codes()) > 50


def test_make_alone_lists_the_stages_in_order() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make (\S+)", done.stdout, re.M)
    stages = ["validate", "caption", "bucket", "cache", "train", "sample", "export"]
    assert [name for name in listed if name in stages] == stages


def test_the_lines_that_read_a_shard_read_one(
    encoded_set: "PictureSet", capsys: pytest.CaptureFixture[str]
) -> None:
    (lines,) = (text for text in _blocks("python") if "tarfile" in text)
    (shard, *_) = encoded_set.layout.shards.glob("64x64-*.tar")
    exec(lines, {"shard": shard})
    said = capsys.readouterr().out
    assert "torch.Size([4, 16, 16])" in said
    assert "['" in said
