"""Tunnels: connections that nodes have opened to us, each of which becomes a pipe to a notebook."""

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from collections import defaultdict, deque
from uuid import UUID

import h11

MOST_IDLE = 16
IDLE_SECONDS = 300.0
HEAD_BYTES = 32 * 1024


class Tunnel:
    """A pipe to a notebook, with what is read and written on it as HTTP."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.since = time.monotonic()
        self.closed = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """Whether it looks open."""
        return not self.writer.is_closing() and not self.reader.at_eof()

    def close(self) -> None:
        """Closes it at once."""
        self.writer.transport.abort()
        self.closed.set()


class Tunnels:
    """The idle tunnels of all notebooks."""

    def __init__(self) -> None:
        self._idle: dict[UUID, deque[Tunnel]] = defaultdict(deque)
        self._waiting: dict[UUID, deque[asyncio.Future[Tunnel]]] = defaultdict(deque)

    def add(self, notebook: UUID, tunnel: Tunnel) -> bool:
        """Takes in a tunnel that is idle; False: there are enough."""
        tunnel.since = time.monotonic()
        while self._waiting[notebook]:
            future = self._waiting[notebook].popleft()
            if not future.done():
                future.set_result(tunnel)
                return True
        if len(self._idle[notebook]) >= MOST_IDLE:
            return False
        self._idle[notebook].append(tunnel)
        return True

    async def take(self, notebook: UUID, seconds: float) -> Tunnel:
        """Returns a tunnel that is idle, the one that was used last. Raises TimeoutError."""
        idle = self._idle[notebook]
        while idle:
            tunnel = idle.pop()
            if tunnel.is_alive:
                return tunnel
            tunnel.close()
        future: asyncio.Future[Tunnel] = asyncio.get_running_loop().create_future()
        self._waiting[notebook].append(future)
        async with asyncio.timeout(seconds):
            return await future

    def sweep(self) -> None:
        """Forgets tunnels that have closed, and closes those that were idle for long."""
        oldest = time.monotonic() - IDLE_SECONDS
        for notebook in list(self._idle):
            kept: deque[Tunnel] = deque()
            for tunnel in self._idle[notebook]:
                if tunnel.is_alive and tunnel.since > oldest:
                    kept.append(tunnel)
                else:
                    tunnel.close()
            if kept:
                self._idle[notebook] = kept
            else:
                del self._idle[notebook]
        for notebook in [each for each, waiting in self._waiting.items() if not waiting]:
            del self._waiting[notebook]

    def drop(self, notebook: UUID) -> None:
        """Closes the idle tunnels of a notebook that is over."""
        for tunnel in self._idle.pop(notebook, ()):
            tunnel.close()
