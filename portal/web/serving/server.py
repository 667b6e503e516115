"""The web process: uvicorn with our application, `python -m portal.web.serving.server --port 8000`.

Unlike plain uvicorn, a stopping process immediately answers the requests that wait for a decision.
"""

import argparse
import asyncio
from collections.abc import Callable
from types import FrameType

import uvicorn

from portal.web.serving.bounded import BoundedProtocol

# Messages on page sockets are short.
WS_MAX_SIZE = 65_536
GRACEFUL_SECONDS = 3


class Server(uvicorn.Server):
    """A server that calls `stopping` at a stop signal."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Runs uvicorn's main loop and remembers the event loop for the signal."""
        self._loop = asyncio.get_running_loop()
        await super().main_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops uvicorn and lets the application answer waiting requests."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping)


def main(arguments: list[str] | None = None) -> None:
    """Serves until a stop signal."""
    parser = argparse.ArgumentParser(
        prog="python -m portal.web.serving.server", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
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
        log_level="warning",
    )
    Server(config, _conclude).run()


def _conclude() -> None:
    from portal.web.serving.streams import streams_here  # noqa: PLC0415 (Django is set up by then)
    from portal.web.serving.waiting import waiting_here  # noqa: PLC0415

    waiting_here().close()
    streams_here().close()


if __name__ == "__main__":
    main()
