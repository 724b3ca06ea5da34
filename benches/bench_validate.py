"""Measure `validate` beside a bare Pillow decode of the same files by as many processes.

Run by `make bench-validate`; pictures are made in a temporary folder and removed. Prints pictures
per second, the time of a second run over an unchanged folder, and the memory of small and large
sets.

A loop of bare decodes gives the memory of each picture back to the system and asks for it again,
which can take as long as half the decoding; `validate` keeps it. So the ratio is told twice: to the
plain loop, and to one that keeps its memory as well (Pillow's `set_blocks_max`).
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
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
SMALL = "numbers of small pictures; the full promise is shown by 1000 10000 20000, in half an hour"
KEPT_BLOCKS = 8  # Of 16 MB each: more than a picture of 12 megapixels takes.
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
    parser.add_argument("--photographs", type=int, default=8, help="12-megapixel JPEG files")
    parser.add_argument("--rounds", type=int, default=3, help="bare and validate in turn")
    parser.add_argument("--small", type=int, nargs="+", help=SMALL, default=[1000, 4000])
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
    for name in ("processes", "pictures", "bare", "bare, memory kept", "validate", "ratios"):
        table.add_column(name, justify="right")
    for workers in sorted({1, os.cpu_count() or 1}):
        for row in _compare(folder, files, workers, arguments.rounds):
            table.add_row(*row)
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


def _compare(folder: Path, files: Sequence[Path], workers: int, rounds: int) -> list[list[str]]:
    """Return a row of pictures per second by the clock, and one per second of CPU."""
    stage = _stage(files[0].parent, folder / f"work-{workers}")
    (items,) = [[item for unit in stage.plan() for item in unit.items]]
    shares = [Pictures("", tuple(items[at::workers])) for at in range(workers)]
    tasks = [(stage, share) for share in shares]
    plain, kept, full = [], [], []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_full, [(stage, Pictures("", share.items[:1])) for share in shares]))
        for _ in range(rounds):
            plain.append(_timed(lambda: pool.map(_bare, shares, [0] * workers)))
            kept.append(_timed(lambda: pool.map(_bare, shares, [KEPT_BLOCKS] * workers)))
            full.append(_timed(lambda: pool.map(_full, tasks)))
    rows = []
    for measure, unit in enumerate(("a second", "a CPU second")):
        each = [float(np.median([one[measure] for one in side])) for side in (plain, kept, full)]
        speeds = [f"{len(files) / seconds:.1f}" for seconds in each]
        ratios = " and ".join(f"{seconds / each[-1]:.2f}" for seconds in each[:-1])
        rows.append([str(workers), unit, *speeds, ratios])
    return rows


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    started = time.perf_counter()
    cpu = sum(run())  # type: ignore[call-overload]
    return time.perf_counter() - started, cpu


def _bare(share: Pictures, kept_blocks: int) -> float:
    started = time.process_time()
    Image.core.set_blocks_max(kept_blocks)
    for item in share.items:
        with Image.open(item.found.file) as image:
            image.load()
    Image.core.set_blocks_max(0)
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
    table = Table(title="Small pictures (96 x 80 px PNG and a caption each), default engine")
    for name in ("pictures", "first run", "second run", "peak of the command", "of a decoder"):
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
    """Run the stage as the command does; measure time without most imports, and peak memory."""
    from latentmill.pipeline.config import Config
    from latentmill.pipeline.engines import choose_engine
    from latentmill.pipeline.run import Driver

    config = Config(data=(Source(path=str(data)),), work=str(data.parent / f"work-{data.name}"))
    largest = [0]
    threading.Thread(target=_watch_children, args=(largest,), daemon=True).start()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        driver = Driver(config, choose_engine(EngineSettings()), Console(file=nowhere))
        started = time.perf_counter()
        driver.run(_stage(data, config.layout().work))
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "megabytes": _peak_bytes() / 1e6,
        "decoder_megabytes": largest[0] / 1e6,
    }


def _peak_bytes() -> int:
    """Return this process's peak; on Linux from /proc, for `ru_maxrss` begins at the parent's."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(one.split()[1]) for one in lines if one.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _watch_children(largest: list[int]) -> None:
    """Keep the most memory that any process below this one was seen with."""
    import psutil

    own = psutil.Process()
    while True:
        for child in own.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                largest[0] = max(largest[0], child.memory_info().rss)
        time.sleep(0.3)


if __name__ == "__main__":
    main()
