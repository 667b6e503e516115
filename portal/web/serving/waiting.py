"""Requests that wait for a decision: they hold no thread, and one query serves all of them.

The event loop keeps the waiting requests. At a hint from the solver, or once a second, one thread
looks up decided bookings and builds their responses, tenant by tenant.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from uuid import UUID

import redis.asyncio
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.http.response import HttpResponseBase
from redis.exceptions import RedisError

from allocation.queries.bookings.decided import bookings_decided, decided_bookings_read
from allocation.queries.fleet.catalogue import class_labels, host_classes, zone_labels
from allocation.services.publish.live import DECIDED_CHANNEL
from allocation.words.amounts import class_names
from billing.price_books import currency_latest
from tenants.platform.deferred import Deferred, DeferredResponse, with_headers_of
from tenants.platform.stores.redis_servers import async_client
from tenants.platform.wall import tenant_tx
from tenants.platform.watchdog.pulses import pulse, pulses_end

logger = logging.getLogger(__name__)

# A waiting request takes about 15 kB.
WAITING_MOST = 8_000
WAITING_MOST_EACH = WAITING_MOST // 4
LOOK_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
# The listener asks for an answer as often, which a connection that is cut never brings.
PING_SECONDS = 2.0
# What sends pulses to the watchdog.
DECISIONS, HINTS = "decisions", "hints of decisions"


@dataclass(eq=False, slots=True)
class Waiter:
    """A waiting request. `is_due`: answer it with the current state; `applied`: it did wait."""

    deferred: Deferred
    answered: "asyncio.Future[HttpResponseBase | None]"
    is_due: bool = False
    applied: bool = True

    @property
    def tenant(self) -> UUID:
        """Returns the tenant of the booking."""
        return self.deferred.wait.tenant_id

    @property
    def subject(self) -> UUID:
        """Returns the booking that it waits for."""
        return self.deferred.wait.subject


Answers = list[tuple[Waiter, HttpResponseBase | None]]


@dataclass
class Waiting:
    """The waiting requests of this process; all methods except `close` run in the event loop."""

    most: int = WAITING_MOST
    most_each: int = WAITING_MOST_EACH
    _waiters: defaultdict[UUID, set[Waiter]] = field(default_factory=lambda: defaultdict(set))
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="decided")
    )
    _is_closing: bool = False

    async def answer(self, now: DeferredResponse) -> HttpResponseBase:
        """Returns the response with the decision, or `now` when there is none.

        A client that disconnects does not affect its booking or idempotency key.
        """
        waiter = Waiter(now.deferred, asyncio.get_running_loop().create_future())
        if self._is_closing or self._is_full(waiter.tenant):
            waiter.is_due, waiter.applied = True, False
            self._wake.set()
        self._waiters[waiter.tenant].add(waiter)
        self._begin()
        done, _ = await asyncio.wait({waiter.answered}, timeout=waiter.deferred.wait.seconds)
        if not done:
            waiter.is_due = True
            self._wake.set()
        better = await asyncio.shield(waiter.answered)
        return now if better is None else with_headers_of(now, better)

    def close(self) -> None:
        """Answers all requests with the current state; safe in a signal handler's thread."""
        self._is_closing = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.is_due = True
        self._wake.set()

    def _is_full(self, tenant: UUID) -> bool:
        everybody = sum(len(waiters) for waiters in self._waiters.values())
        return everybody >= self.most or len(self._waiters[tenant]) >= self.most_each

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._listen())]

    async def _look(self) -> None:
        """Answers in rounds until the process ends.

        An error ends the task and is logged; waiting requests are still answered.
        """
        try:
            while True:
                try:
                    # Not wait_for: in Python 3.11 it loses a cancellation that meets the event.
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    if not any(self._waiters.values()):
                        pulse(DECISIONS)
                        continue
                await self._round()
                pulse(DECISIONS)
        finally:
            for waiters in list(self._waiters.values()):
                for waiter in list(waiters):
                    self._answered(waiter, None)
            self._tasks[-1].cancel()
            self._tasks = []
            pulses_end(DECISIONS)
            pulses_end(HINTS)

    async def _round(self) -> None:
        self._wake.clear()
        everybody = {tenant: list(rows) for tenant, rows in self._waiters.items() if rows}
        loop = asyncio.get_running_loop()
        for waiter, answer in await loop.run_in_executor(self._thread, _look_in_thread, everybody):
            self._answered(waiter, answer)

    def _answered(self, waiter: Waiter, answer: HttpResponseBase | None) -> None:
        self._waiters[waiter.tenant].discard(waiter)
        if not waiter.answered.done():
            waiter.answered.set_result(answer)

    async def _listen(self) -> None:
        """Starts a round at each of the solver's hints; without Redis only the clock does."""
        while True:
            try:
                async with (
                    async_client(
                        # Not the 5 s of the library: it sends with wait_for, see above.
                        settings.CHANNELS_REDIS_URL,
                        socket_timeout=None,
                    ) as server,
                    server.pubsub() as hints,
                ):
                    await hints.subscribe(DECIDED_CHANNEL)
                    await self._hear(hints)
            except RedisError as error:
                logger.warning("Decisions are looked for once a second: %s", error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self, hints: "redis.asyncio.client.PubSub") -> None:
        pinged = time.monotonic()
        while True:
            said = await hints.get_message(timeout=PING_SECONDS)
            if said is not None:
                pulse(HINTS)
                if said["type"] == "message":
                    self._wake.set()
            if time.monotonic() - pinged >= PING_SECONDS:
                pinged = time.monotonic()
                await hints.ping()


@cache
def waiting_here() -> Waiting:
    """Returns the instance of this process."""
    return Waiting()


def answers_of(everybody: Mapping[UUID, Sequence[Waiter]]) -> Answers:
    """Returns the responses that are ready.

    On a database error a tenant's due requests get their first response.
    """
    answers: Answers = []
    for tenant, waiters in everybody.items():
        try:
            # It is no part of the request that waited: its middlewares have ended.
            with tenant_tx(tenant), class_names(class_labels, zone_labels, host_classes, currency_latest):
                answers += _answers_in(waiters)
        except DatabaseError as error:
            logger.warning("Waiting requests are not answered with their decisions: %s", error)
            answers += [(waiter, None) for waiter in waiters if waiter.is_due]
    return answers


def _look_in_thread(everybody: Mapping[UUID, Sequence[Waiter]]) -> Answers:
    """Runs in the thread, with connections managed as in a request."""
    close_old_connections()
    try:
        return answers_of(everybody)
    finally:
        close_old_connections()


def _answers_in(waiters: Iterable[Waiter]) -> Answers:
    waiters = list(waiters)
    decided = bookings_decided({waiter.subject for waiter in waiters})
    ready = [waiter for waiter in waiters if waiter.is_due or waiter.subject in decided]
    found = decided_bookings_read({waiter.subject for waiter in ready})
    # Of what is no booking the first answer is the last: one request must not end the round of all.
    gone = [(waiter, None) for waiter in waiters if waiter.is_due and waiter.subject not in found]
    there = (waiter for waiter in ready if waiter.subject in found)
    return [*gone, *((each, each.deferred.conclude(found[each.subject], each.applied)) for each in there)]
