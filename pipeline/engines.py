"""Spread a stage's units over this process or over several."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from latentmill.datasets.errors import LatentmillError
from latentmill.pipeline.stage import Stage, Tick
from latentmill.stages.settings import EngineSettings

Engine = Callable[[Stage[Any, Any], Sequence[Any], Tick], Iterator[Any]]


def choose_engine(settings: EngineSettings) -> Engine:
    """The engine that the settings name."""
    if settings.kind == "serial":
        return serial
    workers = settings.workers or os.cpu_count() or 1
    return lambda stage, units, tick: processes(stage, units, tick, workers)


def serial(stage: Stage[Any, Any], units: Sequence[Any], tick: Tick) -> Iterator[Any]:
    """Do one unit after the other in this process."""
    for unit in units:
        yield stage.work(unit, tick)


def processes(
    stage: Stage[Any, Any], units: Sequence[Any], tick: Tick, workers: int
) -> Iterator[Any]:
    """Do units in `workers` fresh processes; results come as they are done.

    Raises what the first failing unit raised, after the units in flight have ended; LatentmillError
    when a process died (killed, or crashed inside a decoder).
    """
    if not units:
        return
    workers = min(workers, len(units))
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(stage, threads),
    )
    try:
        futures = {pool.submit(_work, unit): unit for unit in units}
        for future in as_completed(futures):
            result = future.result()
            tick(futures[future].size)
            yield result
    except BrokenProcessPool:
        undone = [unit.label for future, unit in futures.items() if not future.done()]
        raise LatentmillError(
            "a worker process died (killed, out of memory, or a crash inside a library)",
            where=f"stage {stage.name}, one of: {', '.join(undone[:5]) or 'the last units'}",
            fix="run the command again: it goes on where it stopped; "
            "with --set engine.kind=serial the culprit is the last unit named",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_stage: Stage[Any, Any] | None = None


def _start_worker(stage: Stage[Any, Any], threads: int) -> None:
    global _stage  # noqa: PLW0603 - one stage per worker process, sent once, not with every unit
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    _stage = stage


def _work(unit: Any) -> Any:
    assert _stage is not None
    return _stage.work(unit, lambda _: None)
