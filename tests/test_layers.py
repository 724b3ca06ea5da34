"""Imports go one way: pipeline -> stages -> cache -> datasets; stages do not know each other."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("datasets", "cache", "stages", "pipeline")
STAGES = (
    "validate",
    "caption",
    "bucket",
    "cache",
    "train",
    "sample",
    "export",
    "approve",
    "review",
)
HEAVY = (
    "torch",
    "torchvision",
    "diffusers",
    "transformers",
    "open_clip",
    "peft",
    "accelerate",
    "ray",
)


def _modules() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    level = LAYERS.index(path.relative_to(ROOT).parts[0])
    for name in _imports(path):
        if name.startswith("latentmill."):
            assert LAYERS.index(name.split(".")[1]) <= level, name


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_other_stage(stage: str) -> None:
    others = {f"latentmill.stages.{name}" for name in STAGES if name != stage}
    for name in _imports(ROOT / "stages" / f"{stage}.py"):
        assert not any(name == other or name.startswith(other + ".") for other in others), name


def test_the_folders_are_namespace_packages() -> None:
    assert not [path for layer in LAYERS for path in (ROOT / layer).rglob("__init__.py")]


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "statement",
    [
        "import latentmill.pipeline.main",
        *(f"import latentmill.stages.{stage}" for stage in STAGES),
    ],
)
def test_heavy_packages_wait_for_their_loader(statement: str) -> None:
    assert not _loaded_by(statement) & set(HEAVY)
