"""Measure `validate` beside a bare Pillow decode of the same files by as many processes.

Run by `make bench-validate`; pictures are made in a temporary folder and removed. Prints pictures
per second, the time of a second run over an unchanged folder, and the memory of small and large
sets.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import PIL
from PIL import Image
from rich.console import Console
from rich.table import Table

from latentmill.datasets.layout import Layout
from latentmill.stages.settings import EngineSettings, Source, ValidateSettings
from latentmill.stages.validate import Pictures, Validate

SIZE = (4000, 3000)
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
GRAIN_LEVELS = 4.0  # Standard deviation: what a telephone's sensor leaves at 12 megapixels.


def main() -> None:
    """Run all parts, or one part in a process of its own."""
    arguments = _arguments()
    if arguments.one:
        print(json.dumps(_one_run(Path(arguments.one))))
        return
    console = Console(width=100)
    console.print(_machine())
    with tempfile.TemporaryDirectory(prefix="bench-validate-") as folder:
        console.print(_speed(Path(folder), arguments))
        console.print(_growth(Path(folder), arguments.small))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=int, default=16, help="12-megapixel JPEG files")
    parser.add_argument("--rounds", type=int, default=3, help="bare and validate in turn")
    parser.add_argument("--small", type=int, nargs="+", default=[1000, 10_000, 20_000])
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{names[0] if names else platform.processor()}, {cores} cores, "
        f"Python {platform.python_version()}, Pillow {PIL.__version__}, load "
        f"{os.getloadavg()[0]:.1f} at the start"
    )


def _speed(folder: Path, arguments: argparse.Namespace) -> Table:
    files = _make_photographs(folder / "photographs", arguments.photographs)
    megabytes = sum(file.stat().st_size for file in files) / len(files) / 1e6
    table = Table(
        title=f"{len(files)} JPEG of {SIZE[0]} x {SIZE[1]} px, {megabytes:.1f} MB each; "
        f"median of {arguments.rounds} rounds in turn"
    )
    for name in ("processes", "bare decode", "validate", "ratio", "CPU: bare", "validate", "ratio"):
        table.add_column(name, justify="right")
    for workers in sorted({1, os.cpu_count() or 1}):
        table.add_row(*_compare(folder, files, workers, arguments.rounds))
    return table


def _make_photographs(folder: Path, num: int) -> list[Path]:
    """Enlarge real photographs to 12 megapixels and give them a sensor's grain."""
    from skimage import data

    folder.mkdir()
    files = []
    for number in range(num):
        small = Image.fromarray(getattr(data, PHOTOGRAPHS[number % len(PHOTOGRAPHS)])()[..., :3])
        values = np.asarray(small.resize(SIZE, Image.Resampling.LANCZOS), dtype=np.float32)
        grain = np.random.default_rng(number).normal(0, GRAIN_LEVELS, (*values.shape[:2], 1))
        picture = Image.fromarray(np.clip(values + grain, 0, 255).astype(np.uint8))
        files.append(folder / f"{number:03}.jpg")
        picture.save(files[-1], quality=90)
    return files


def _compare(folder: Path, files: Sequence[Path], workers: int, rounds: int) -> list[str]:
    stage = _stage(files[0].parent, folder / f"work-{workers}")
    (items,) = [[item for unit in stage.plan() for item in unit.items]]
    shares = [Pictures("", tuple(items[at::workers])) for at in range(workers)]
    bare, full = [], []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_full, [(stage, Pictures("", share.items[:1])) for share in shares]))
        for _ in range(rounds):
            bare.append(_timed(lambda: pool.map(_bare, shares)))
            full.append(_timed(lambda: pool.map(_full, [(stage, share) for share in shares])))
    row = [str(workers)]
    for measure in (0, 1):
        each = [float(np.median([one[measure] for one in side])) for side in (bare, full)]
        row += [f"{len(files) / each[0]:.1f}/s", f"{len(files) / each[1]:.1f}/s"]
        row.append(f"{each[0] / each[1]:.2f}")
    return row


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    started = time.perf_counter()
    cpu = sum(run())  # type: ignore[call-overload]
    return time.perf_counter() - started, cpu


def _bare(share: Pictures) -> float:
    started = time.process_time()
    for item in share.items:
        with Image.open(item.found.file) as image:
            image.load()
    return time.process_time() - started


def _full(task: tuple[Validate, Pictures]) -> float:
    stage, share = task
    before = _cpu_seconds()
    stage.work(share, lambda _: None)
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    """CPU seconds of this process and of those it started, which decode for it."""
    import psutil

    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _stage(data: Path, work: Path) -> Validate:
    return Validate(Layout(work), (Source(path=str(data)),), ValidateSettings(target_side=512))


def _growth(folder: Path, numbers: Sequence[int]) -> Table:
    table = Table(title="Small pictures (96 x 80 px PNG and a caption each), one process")
    for name in ("pictures", "first run", "second run", "peak memory", "of its decoder"):
        table.add_column(name, justify="right")
    for number in numbers:
        data = folder / f"small-{number}"
        _make_small(data, number)
        first, second = _run_apart(data), _run_apart(data)
        table.add_row(
            f"{number:,}",
            f"{first['seconds']:.1f} s",
            f"{second['seconds']:.2f} s",
            f"{first['megabytes']:.0f} MB",
            f"{first['decoder_megabytes']:.0f} MB",
        )
    return table


def _make_small(folder: Path, num: int) -> None:
    folder.mkdir()
    for number in range(num):
        levels = np.random.default_rng(number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
        picture = Image.fromarray(levels).resize((96, 80), Image.Resampling.NEAREST)
        picture.save(folder / f"{number:05}.png", compress_level=1)
        (folder / f"{number:05}.txt").write_text(f"pattern {number}", encoding="utf-8")


def _run_apart(data: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", str(data)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def _one_run(data: Path) -> dict[str, float]:
    """Run the stage as the command does; measure time without imports, and peak memory."""
    from latentmill.pipeline.engines import choose_engine
    from latentmill.pipeline.run import Driver

    layout = Layout(data.parent / f"work-{data.name}")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        driver = Driver(layout, choose_engine(EngineSettings()), Console(file=nowhere))
        started = time.perf_counter()
        driver.run(_stage(data, layout.work))
    seconds = time.perf_counter() - started
    unit = 1024 if sys.platform == "linux" else 1024 * 1024
    own, children = (
        resource.getrusage(who).ru_maxrss / unit
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"seconds": seconds, "megabytes": own, "decoder_megabytes": children}


if __name__ == "__main__":
    main()
