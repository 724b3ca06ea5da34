"""Spread a stage's units over this process, over several, or over Ray's."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from latentmill.datasets.errors import LatentmillError, UsageError
from latentmill.pipeline.stage import Stage, Tick
from latentmill.stages.settings import EngineSettings

Engine = Callable[[Stage[Any, Any], Sequence[Any], Tick], Iterator[Any]]


def choose_engine(settings: EngineSettings) -> Engine:
    """The engine that the settings name."""
    if settings.kind == "serial":
        return serial
    if settings.kind == "ray":
        return lambda stage, units, tick: ray_tasks(stage, units, tick, settings.workers)
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
        raise _worker_died(stage, undone) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def ray_tasks(
    stage: Stage[Any, Any], units: Sequence[Any], tick: Tick, workers: int
) -> Iterator[Any]:
    """Do units as Ray tasks: on the cluster of RAY_ADDRESS, else on this machine's cores.

    The machines of a cluster must see the same folders. Raises like `processes`.
    """
    with _open_ray(workers) as ray:
        num_gpus = int(stage.name == "cache" and ray.cluster_resources().get("GPU", 0) >= 1)
        task, shared = ray.remote(num_cpus=1, num_gpus=num_gpus)(_work_on), ray.put(stage)
        waiting = {task.remote(shared, unit): unit for unit in units}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            try:
                result = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.WorkerCrashedError:
                raise _worker_died(stage, [unit.label for unit in waiting.values()]) from None
            tick(waiting.pop(done).size)
            yield result


@contextmanager
def _open_ray(workers: int) -> Iterator[Any]:
    """Join or start Ray, quietly; what was started is ended. UsageError where it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise UsageError(
            "engine.kind is ray, but Ray is not installed",
            expected="the extra `ray`",
            fix="pip install 'latentmill[ray]', or use --set engine.kind=processes",
        ) from None
    is_ours = not ray.is_initialized()
    if is_ours:
        own = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers or None}
        try:
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
            with _kept_signals():
                ray.init(include_dashboard=False, **quiet, **own)
        except Exception as error:  # Ray starts programs that fail in ways of their own.
            raise LatentmillError(
                f"Ray did not start: {error}",
                fix="see that the cluster of RAY_ADDRESS is up, or that this machine is not "
                "overloaded; or use --set engine.kind=processes",
            ) from error
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Keep what SIGTERM does: Ray puts a handler of its own in place and leaves it there."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _work_on(stage: Stage[Any, Any], unit: Any) -> Any:
    return stage.work(unit, lambda _: None)


def _worker_died(stage: Stage[Any, Any], undone: Sequence[str]) -> LatentmillError:
    return LatentmillError(
        "a worker process died (killed, out of memory, or a crash inside a library)",
        where=f"stage {stage.name}, one of: {', '.join(undone[:5]) or 'the last units'}",
        fix="run the command again: it goes on where it stopped; "
        "with --set engine.kind=serial the culprit is the last unit named",
    )


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
