"""A TCP line that breaks as asked: between an agent and its server, each direction for itself."""

import asyncio
import ssl
import threading
from enum import Enum
from types import TracebackType

from devtools.launch.embedded import free_port

_CHUNK = 65_536
_DELAY_S = 0.5


class Mode(Enum):
    """What becomes of bytes on their way. HOLD keeps them, and lets them go with the next mode."""

    PASS = "pass"
    DROP = "drop"
    DELAY = "delay"
    HOLD = "hold"


class Proxy:
    """Listens on `port` of 127.0.0.1, and speaks to `target`. Used in a `with` block.

    A line that drops never says so: as with a cable that was pulled, both ends wait.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` it is spoken to through TLS, as a server with that certificate."""
        self.port = free_port()
        self._target = target
        self._tls = tls
        self._modes = {"up": Mode.PASS, "down": Mode.PASS}
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def set(self, *, up: Mode = Mode.PASS, down: Mode = Mode.PASS) -> None:
        """`up` is what the agent says, `down` what it receives; as `set()` all passes."""
        asyncio.run_coroutine_threadsafe(self._set(up, down), self._loop).result(5)

    def cut(self) -> None:
        """Ends every connection, so that both ends know, and take new ones up at once."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(5)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self._tls)

    async def _set(self, up: Mode, down: Mode) -> None:
        self._modes = {"up": up, "down": down}
        self._changed.set()
        self._changed = asyncio.Event()

    async def _cut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far, forth = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(self._pump("up", near, forth), self._pump("down", far, back))
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            back.close()
            forth.close()

    async def _pump(self, direction: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(_CHUNK):
            while self._modes[direction] is Mode.HOLD:
                await self._changed.wait()
            if self._modes[direction] is Mode.DROP:
                continue
            if self._modes[direction] is Mode.DELAY:
                await asyncio.sleep(_DELAY_S)
            sink.write(chunk)
            await sink.drain()
        if self._modes[direction] is not Mode.DROP:
            sink.close()
