"""The web process: uvicorn with our application, `python -m portal.web.serving.server --port 8000`.

Unlike plain uvicorn, a stopping process immediately answers the requests that wait for a decision,
and the time and size of a request's head have limits. With `--lock`, one process of several serves;
the others have loaded everything, and one of them serves at once when it ends.
"""

import argparse
import asyncio
import fcntl
import gc
import socket
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import IO, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portal.web.serving.nursery import nursery_fork
from portal.web.serving.workers import Workers, worker_serve
from tenants.platform.watchdog.pulses import watchdog_stop

HEAD_SECONDS = 10
HEAD_BYTES = 64 * 1024
BACKLOG = 2048
SOCKET_SECONDS, SOCKET_AGAIN_SECONDS = 5.0, 0.01


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol that closes connections whose head is too slow or too large."""

    _late: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (uvicorn's signature)
        """Starts the timer for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads data and counts it while the head is incomplete."""
        super().data_received(data)
        if self._late is None:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Starts the timer for the next request on the connection."""
        super().on_message_begin()
        self._head_came()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stops the timer when the head is complete."""
        self._head_came()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._late = self.loop.call_later(HEAD_SECONDS, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: HTTPStatus) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.transport.write(f"{line}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
        self.transport.close()


# Messages on page sockets are short.
WS_MAX_SIZE = 65_536
GRACEFUL_SECONDS = 3


class Server(uvicorn.Server):
    """A server that calls `starting` in its event loop, and `stopping` at a stop signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        starting: Callable[["Server"], None],
        stopping: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._starting = starting
        self._stopping = stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Runs uvicorn's main loop and remembers the event loop for the signal."""
        from portal.web.serving.pulses import pulses_send, web_watched  # noqa: PLC0415 (see below)

        self._loop = asyncio.get_running_loop()
        self._starting(self)
        web_watched()
        pulses = asyncio.create_task(pulses_send())
        try:
            await super().main_loop()
        finally:
            pulses.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops uvicorn and lets the application answer waiting requests."""
        super().handle_exit(sig, frame)
        watchdog_stop()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping)


def main(arguments: list[str] | None = None) -> None:
    """Serves until a stop signal."""
    parser = argparse.ArgumentParser(prog="python -m portal.web.serving.server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--lock", type=Path, help="a file: of those that name it, one serves")
    options = parser.parse_args(arguments)
    config = uvicorn.Config(
        "portal.asgi:application",
        host=options.host,
        port=options.port,
        lifespan="off",
        http=BoundedProtocol,
        ws_max_size=WS_MAX_SIZE,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        # The portal itself reads forwarding headers from TRUSTED_PROXIES.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        # Django's loggers have one line for each event, and one a second in an outage.
        log_config=None,
        log_level="warning",
    )
    # Sets up Django.
    config.load()
    _views_load()
    lock = None if options.lock is None else _turn_await(options.lock)
    server = Server(config, partial(_begin, _workers_fork()), _conclude)
    server.run(None if lock is None else [_socket(options.host, options.port)])


def _views_load() -> None:
    """Loads all views, which is most of a start, and leaves what is loaded to no later garbage collection.

    A full one would traverse these 400,000 objects in the middle of some page, for 0.1 to 0.2 s.
    """
    from django.urls import get_resolver  # noqa: PLC0415 (Django is set up)

    get_resolver().url_patterns  # noqa: B018 (this imports them)
    gc.collect()
    gc.freeze()


def _turn_await(path: Path) -> IO[str]:
    """Waits until no other process holds the file. It is held until this process ends."""
    lock = path.open("a", encoding="utf-8")
    # Not flock, which the children of a process that was killed hold for a while.
    fcntl.lockf(lock, fcntl.LOCK_EX)
    return lock


def _socket(host: str, port: int) -> socket.socket:
    """Returns the listening socket. The one of a process that was killed is closed only after its
    lock.

    Raises:
        OSError: another program has the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + SOCKET_SECONDS
    while True:
        try:
            return socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(SOCKET_AGAIN_SECONDS)


def _workers_fork() -> socket.socket:
    """Forks the processes for costly work, before there is a thread."""
    from django.conf import settings  # noqa: PLC0415 (Django is set up)

    from portal.web.serving.threads import handler_here  # noqa: PLC0415

    serve = partial(worker_serve, answer=handler_here().complete)
    return nursery_fork(settings.COSTLY_WORKERS, serve)


def _begin(control: socket.socket, server: Server) -> None:
    from portal.web.serving.threads import handler_here  # noqa: PLC0415 (Django is set up)

    def stop() -> None:
        # Whoever supervises this process starts it again, with workers.
        server.should_exit = True

    workers = handler_here().costly.workers = Workers(control, stop)
    workers.begin()


def _conclude() -> None:
    from portal.web.serving.gathering import gathering_here  # noqa: PLC0415 (Django is set up)
    from portal.web.serving.streams import streams_here  # noqa: PLC0415
    from portal.web.serving.waiting import waiting_here  # noqa: PLC0415

    gathering_here().close()
    waiting_here().close()
    streams_here().close()


if __name__ == "__main__":
    main()
