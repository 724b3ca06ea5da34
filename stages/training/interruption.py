"""Ctrl-C and a cluster's SIGTERM become a request to stop between two steps."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StopRequest:
    """`requested`: stop between two steps. `forced`: asked twice, stopped amid one."""

    requested: bool = False
    forced: bool = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first signal into a request and the second into KeyboardInterrupt.

    Outside the main thread, where Python delivers no signals, nothing is requested.
    """
    stop = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.requested:
            stop.forced = True
            raise KeyboardInterrupt
        stop.requested = True
        log.info("stopping after this batch, with a saved state; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
