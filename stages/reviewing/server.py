"""A site served on this machine until a person ends it."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

from latentmill.datasets.errors import UsageError
from latentmill.datasets.next_steps import Command

HOST = "127.0.0.1"
_LAST_ANSWERS_SECONDS = 3


def listen(port: int) -> socket.socket:
    """A socket of this machine alone; port 0 is any that is free. Raises UsageError when taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"the port cannot be used: {error.strerror}",
            where=f"{HOST}:{port}",
            expected="a port that no other program uses, from 1024 to 65535",
            fix="choose another one, or leave --port out",
            run=(Command(flags=("--port", "8765")),),
        ) from error
    listener.listen(128)
    return listener


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until Ctrl-C or SIGTERM, which end this as a matter of course; call `ready` first.

    Answers at work are finished.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )
    server = uvicorn.Server(config)
    # In a thread of its own it leaves signals to us: it would raise them again at its end.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with suppress(KeyboardInterrupt):
        ready()
        while thread.is_alive():
            thread.join(0.5)
    server.should_exit = True
    thread.join()
    listener.close()
