"""The connection to the portal through Redis, on threads of its own.

The agent's loop never waits for the network: messages arrive in its inbox and leave by an outbox.
While Redis is unreachable the newest message of each kind waits here. Of several servers the link
uses the one that admits the node and takes its messages: the portal opens the node's account at the
primary, and a replica refuses messages.
"""

import dataclasses
import logging
import queue
import random
import threading
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.retry import Retry

import wire

log = logging.getLogger(__name__)

READ_EVERY_S = 5.0
_TIMEOUT_S = 3.0
_POLL_S = 1.0
_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 5.0
_TELEMETRY_KEPT = 60


@dataclasses.dataclass(frozen=True, slots=True)
class DocumentRead:
    """The raw value of the node's desired key, as read just now."""

    raw: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseRead:
    """The raw value of the node's lease key, as read just now."""

    raw: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Connected:
    """Redis answers again. Earlier messages may be lost."""


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """The report of this number is in the stream."""

    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTime:
    """The server's clock, in Unix seconds, when it took what was sent last."""

    at: float


Arrival = DocumentRead | LeaseRead | Connected | Delivered | ServerTime
Kind = Literal["inventory", "report", "heartbeat", "telemetry", "examination", "notebooks"]


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """A `seq` that is not None comes back as Delivered."""

    kind: Kind
    envelope: wire.Envelope
    seq: int | None = None


def servers_of(url: str) -> list[str]:
    """The address of each server in one that has commas between its hosts."""
    parts = urlsplit(url)
    account, at, places = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{account}{at}{place}")) for place in places.split(",")]


class Link:
    """`deliver` is called from the link's threads with each Arrival; it must not block."""

    def __init__(self, *, url: str, node: str, deliver: Callable[[Arrival], None]) -> None:
        """`url` may name several servers with commas between them; one is used at a time."""
        self._node = node
        self._deliver = deliver
        self._stop = threading.Event()
        self._outbox: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._servers = [_client(address) for address in servers_of(url)]
        # The place in the list of the server in use; both threads move it.
        self._used = 0
        self._moving = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read_always, name="link-reader", daemon=True),
            threading.Thread(target=self._write_loop, name="link-writer", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, outgoing: Outgoing) -> None:
        self._outbox.put(outgoing)

    def stop(self) -> None:
        """Sends pending messages if Redis answers, then disconnects."""
        self._stop.set()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(_TIMEOUT_S + _POLL_S)
        for server in self._servers:
            server.close()

    def _move(self, failed: int) -> None:
        """Goes to the next server, unless the other thread has left the failed one already."""
        with self._moving:
            if self._used == failed:
                self._used = (failed + 1) % len(self._servers)

    # Reading.

    def _read_always(self) -> None:
        backoff = _Backoff(self._stop)
        while not self._stop.is_set():
            used = self._used
            pubsub = PubSub(self._servers[used].connection_pool)
            try:
                self._read(used, pubsub, backoff)
            except (redis.RedisError, OSError) as error:
                log.warning("Redis does not answer the reader: %s", error)
                self._move(used)
            finally:
                pubsub.close()
            backoff.wait()

    def _read(self, used: int, pubsub: PubSub, backoff: "_Backoff") -> None:
        """Reads until this server is no longer the one in use."""
        server = self._servers[used]
        # Subscribed first, so that no change falls between reading and listening.
        pubsub.subscribe(wire.wake_channel(self._node))
        self._read_document(server)
        self._read_lease(server)
        self._deliver(Connected())
        backoff.reset()
        quiet = 0.0
        while not self._stop.is_set() and used == self._used:
            message = pubsub.get_message(timeout=_POLL_S)
            woken = message is not None and message["type"] == "message"
            quiet = quiet + _POLL_S if message is None else quiet
            if woken and message["data"] == wire.LEASE_WAKE:
                self._read_lease(server)
            elif woken or quiet >= READ_EVERY_S:
                self._read_document(server)
                self._read_lease(server)
                quiet = 0.0

    def _read_document(self, server: "redis.Redis") -> None:
        raw = server.get(wire.desired_key(self._node))
        if isinstance(raw, bytes):
            self._deliver(DocumentRead(raw))

    def _read_lease(self, server: "redis.Redis") -> None:
        raw = server.get(wire.lease_key(self._node))
        if isinstance(raw, bytes):
            self._deliver(LeaseRead(raw))

    # Writing.

    def _write_loop(self) -> None:
        backoff = _Backoff(self._stop)
        waiting: list[Outgoing] = []
        while True:
            waiting = newest_of_each_kind(waiting + self._take(block=not waiting))
            used = self._used
            try:
                self._write(self._servers[used], waiting)
                backoff.reset()
                waiting = []
            except (redis.RedisError, OSError) as error:
                log.warning("Redis does not answer the writer: %s", error)
                self._move(used)
                backoff.wait()
            if self._stop.is_set() and self._outbox.empty():
                return

    def _take(self, *, block: bool) -> list[Outgoing]:
        found = [self._outbox.get()] if block else []
        while not self._outbox.empty():
            found.append(self._outbox.get())
        return [outgoing for outgoing in found if outgoing is not None]

    def _write(self, server: "redis.Redis", waiting: list[Outgoing]) -> None:
        if not waiting:
            return
        with server.pipeline(transaction=False) as pipe:
            for outgoing in waiting:
                fields: dict[Any, Any] = {**outgoing.envelope.to_fields()}
                stream = wire.report_stream(self._node)
                pipe.xadd(stream, fields, maxlen=wire.REPORT_STREAM_LENGTH)
            entries = pipe.execute()
        # An entry's id begins with the server's time in milliseconds.
        self._deliver(ServerTime(int(entries[-1].partition(b"-")[0]) / 1000))
        for outgoing in waiting:
            if outgoing.seq is not None:
                self._deliver(Delivered(outgoing.seq))


def _client(address: str) -> "redis.Redis":
    return redis.Redis.from_url(
        address,
        protocol=2,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def newest_of_each_kind(waiting: list[Outgoing]) -> list[Outgoing]:
    """The last of each kind, and a stretch of telemetry; the order between kinds stays."""
    kept: list[Outgoing] = []
    seen: dict[str, int] = {}
    for outgoing in reversed(waiting):
        room = _TELEMETRY_KEPT if outgoing.kind == "telemetry" else 1
        if seen.setdefault(outgoing.kind, 0) < room:
            seen[outgoing.kind] += 1
            kept.append(outgoing)
    return kept[::-1]


class _Backoff:
    """Waits longer after each failure in a row, with a random part so that nodes spread."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.reset()

    def reset(self) -> None:
        self._pause = _FIRST_BACKOFF_S

    def wait(self) -> None:
        self._stop.wait(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
        self._pause = min(2 * self._pause, _LAST_BACKOFF_S)
