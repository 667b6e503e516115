"""Costly requests are served by workers, each in a process of its own that serves one at a time.

The event loop sends a whole request to an idle worker, which has the same middlewares and views as
the web process and authenticates anew, and takes the complete answer. So a long computation holds
no thread and no interpreter of the web process. If the client is gone, the worker is interrupted;
if it does not answer in time, it is killed, and its successor comes from the nursery.

A message is the length of its head, that of its body, the head as JSON, and the body.
"""

import asyncio
import io
import json
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any

from portal.web.serving.nursery import line_take

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 60
END_SECONDS = 5
"""An interrupted worker that takes longer is killed."""
WORKER_SECONDS = 5
"""All workers have just ended if none is idle for so long, because the gate has counted them."""
INTERRUPT = signal.SIGUSR1
IMPORT_SECONDS = 0.05
"""An interrupted worker that is importing a module is interrupted again after this time."""

_LENGTHS = struct.Struct("!II")
_TEXTS = ("type", "http_version", "method", "scheme", "path", "root_path")
_BYTES = ("raw_path", "query_string")


class NoWorker(Exception):
    """No worker answered: it ended, it took too long, or there is none."""


class Interrupted(KeyboardInterrupt):
    """Nobody waits for this answer. The driver of the database cancels its query, as at Ctrl-C."""


Pairs = Iterable[tuple[bytes, bytes]]


def _packed(head: object, body: bytes) -> bytes:
    text = json.dumps(head).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


def _scope_packed(scope: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an ASGI scope that Django reads, as JSON values."""
    return {
        **{name: scope[name] for name in _TEXTS if name in scope},
        **{name: scope[name].decode("latin-1") for name in _BYTES if name in scope},
        "client": scope.get("client"),
        "server": scope.get("server"),
        "headers": _pairs_packed(scope["headers"]),
    }


def _scope_unpacked(head: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **head,
        **{name: head[name].encode("latin-1") for name in _BYTES if name in head},
        "headers": _pairs_unpacked(head["headers"]),
    }


@dataclass(frozen=True, slots=True)
class Complete:
    """A complete answer. Status 0: the worker was interrupted."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


AnswerIn = Callable[[dict[str, Any], IO[bytes]], Complete]


@dataclass(eq=False)
class Worker:
    """A worker as the web process sees it: its line, and the handle of its process."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    process: int
    has_ended: bool = False

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> Complete:
        """Returns the answer. If this is cancelled, the worker is ready for the next request when
        the cancellation passes on, or has ended.

        Raises:
            NoWorker: it has ended, or it took too long.
        """
        answer = asyncio.create_task(self._exchange(_packed(_scope_packed(scope), body)))
        try:
            await asyncio.wait({answer}, timeout=ANSWER_SECONDS)
        finally:
            if not answer.done():
                await self._interrupt(answer)
        complete = answer.result()
        if complete is None or not complete.status:
            raise NoWorker
        return complete

    def close(self) -> None:
        """Gives up the line and the handle."""
        self.writer.close()
        os.close(self.process)

    async def _interrupt(self, answer: "asyncio.Task[Complete | None]") -> None:
        """Waits until the worker has given up its request, or has been killed."""
        for number, seconds in ((INTERRUPT, END_SECONDS), (signal.SIGKILL, None)):
            if not answer.done():
                # It may have ended by itself.
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.process, number)
                await asyncio.wait({answer}, timeout=seconds)

    async def _exchange(self, message: bytes) -> Complete | None:
        """Sends a request and reads the one answer to it; None: the worker has ended."""
        try:
            self.writer.write(message)
            await self.writer.drain()
            lengths = _LENGTHS.unpack(await self.reader.readexactly(_LENGTHS.size))
            head, body = [await self.reader.readexactly(length) for length in lengths]
        except (OSError, asyncio.IncompleteReadError):
            self.has_ended = True
            return None
        said = json.loads(head)
        return Complete(said["status"], _pairs_unpacked(said["headers"]), body)


@dataclass
class Workers:
    """The workers of this process; all methods run in its event loop.

    `control` is the line to the nursery, and `lost` is called when the nursery has ended.
    """

    control: socket.socket
    lost: Callable[[], None]
    _idle: "asyncio.LifoQueue[Worker]" = field(default_factory=asyncio.LifoQueue)
    _arrivals: set["asyncio.Task[None]"] = field(default_factory=set)

    def begin(self) -> None:
        """Takes workers from the nursery as they come."""
        asyncio.get_running_loop().add_reader(self.control.fileno(), self._take)

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> Complete:
        """Returns the answer of an idle worker.

        Raises:
            NoWorker: it has ended, it took too long, or there is none.
        """
        worker = await self._next()
        try:
            return await worker.answer(scope, body)
        finally:
            if worker.has_ended:
                worker.close()
            else:
                self._idle.put_nowait(worker)

    async def _next(self) -> Worker:
        try:
            async with asyncio.timeout(WORKER_SECONDS):
                while (worker := await self._idle.get()).reader.at_eof():
                    worker.close()
                return worker
        except TimeoutError:
            raise NoWorker from None

    def _take(self) -> None:
        found = line_take(self.control)
        if found is None:
            logger.error("The processes for costly work ended, so this one does, too.")
            asyncio.get_running_loop().remove_reader(self.control.fileno())
            self.lost()
            return
        arrival = asyncio.create_task(self._open(*found))
        self._arrivals.add(arrival)
        arrival.add_done_callback(self._arrivals.discard)

    async def _open(self, line: socket.socket, process: int) -> None:
        reader, writer = await asyncio.open_connection(sock=line)
        self._idle.put_nowait(Worker(reader, writer, process))


def _pairs_packed(pairs: Pairs) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), said.decode("latin-1")) for name, said in pairs]


def _pairs_unpacked(pairs: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), said.encode("latin-1")) for name, said in pairs]


def worker_serve(line: socket.socket, answer: AnswerIn) -> None:
    """Answers the requests of a line until the web process ends. Runs in the worker."""
    serving = False

    def interrupted(number: int, frame: FrameType | None) -> None:
        # Between two requests there is nothing to give up.
        if not serving:
            return
        if _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, IMPORT_SECONDS)
            return
        raise Interrupted

    for number in (INTERRUPT, signal.SIGALRM):
        signal.signal(number, interrupted)
    with line.makefile("rb") as received:
        while lengths := received.read(_LENGTHS.size):
            head, body = [received.read(length) for length in _LENGTHS.unpack(lengths)]
            scope = _scope_unpacked(json.loads(head))
            try:
                serving = True
                found = answer(scope, io.BytesIO(body))
                serving = False
            except Interrupted:
                serving = False
                found = Complete(0, [], b"")
            signal.setitimer(signal.ITIMER_REAL, 0)
            said = {"status": found.status, "headers": _pairs_packed(found.headers)}
            line.sendall(_packed(said, found.body))


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. Half of one would stay, and every later request that
    needs it would fail."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
