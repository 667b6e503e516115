"""The gate of costly work: a few requests at once, fairly by person; the rest is refused at once.

A person's requests never take all slots, so that another's always finds one soon. Those that wait
are served in turn by person, each in the order of its own requests, and for a short time only: who
waits longer is refused, too, because a late answer helps nobody who asks again meanwhile.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

import redis.asyncio
from redis.exceptions import RedisError

from tenants.platform.stores.redis_servers import async_client

MOST_EACH = 4
"""Requests of one person that are served or wait."""
MOST_FOR_A_SLOT = 8
"""Requests of everybody that are served or wait, for each slot."""
PATIENCE_SECONDS = 3.0
"""A request that has waited so long is refused."""

Reason = Literal["yours", "everybody", "waited"]


@dataclass
class Full(Exception):
    """A refusal: too many requests of this person, or of everybody, or waited in vain."""

    reason: Reason
    retry_seconds: int


@dataclass
class Gate:
    """The places of one process; all methods run in its event loop."""

    slots: int
    patience: float = PATIENCE_SECONDS
    _running: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque["asyncio.Future[None]"]] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    """When persons with requests here were served last, by the count of all that were."""
    _count: int = 0

    @asynccontextmanager
    async def place(self, person: str, *, waited: float = 0) -> AsyncIterator[None]:
        """Holds a slot for the person. One that is cancelled while it waits leaves the line.

        `waited` are the seconds that the request has waited before.

        Raises:
            Full: there are too many requests.
        """
        self._check(person)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(person, deque()).append(turn)
        self._give()
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that meets the result.
            await asyncio.wait({turn}, timeout=max(0.0, self.patience - waited))
            if not turn.done():
                raise Full("waited", 2)
            yield
        finally:
            self._leave(person, turn)

    @property
    def under_way(self) -> int:
        """Returns how many requests are served or wait."""
        return self._running.total() + sum(map(len, self._waiting.values()))

    @property
    def _most_at_once(self) -> int:
        """Slots of one person at once: never all, unless there is one only."""
        return max(1, self.slots // 2)

    def _check(self, person: str) -> None:
        if self._running[person] + len(self._waiting.get(person, ())) >= MOST_EACH:
            raise Full("yours", 1)
        if self.under_way >= MOST_FOR_A_SLOT * self.slots:
            raise Full("everybody", 2)

    def _give(self) -> None:
        """Gives free slots to those that wait: to who has the fewest, and then who had none for the
        longest time."""
        while self._running.total() < self.slots:
            ready = [each for each in self._waiting if self._running[each] < self._most_at_once]
            if not ready:
                return
            person = min(ready, key=lambda each: (self._running[each], self._last.get(each, 0)))
            self._waiting[person].popleft().set_result(None)
            self._running[person] += 1
            self._count += 1
            self._last[person] = self._count
            self._tidy(person)

    def _leave(self, person: str, turn: "asyncio.Future[None]") -> None:
        if turn.done():
            self._running[person] -= 1
        else:
            self._waiting[person].remove(turn)
        self._tidy(person)
        self._give()

    def _tidy(self, person: str) -> None:
        """Forgets what is empty."""
        if not self._waiting.get(person):
            self._waiting.pop(person, None)
        if not self._running[person]:
            del self._running[person]
        if person not in self._running and person not in self._waiting:
            self._last.pop(person, None)


logger = logging.getLogger(__name__)

ANSWER_SECONDS = 0.1
"""Valkey may take so long. Until then nothing of the request is done."""
ALONE_SECONDS = 5.0
"""After a failure the processes count alone for so long, so that not each request waits."""
PLACE_SECONDS = 75
"""A place ends then by itself: later than a worker is interrupted."""
# By the server's clock, because processes may be on several machines.
_TAKE = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""


@dataclass
class SharedPlaces:
    """The places of persons in all processes; all methods run in the event loop."""

    url: str
    _server: "redis.asyncio.Redis | None" = None
    _alone_until: float = 0.0
    _leaving: set["asyncio.Task[None]"] = field(default_factory=set)

    @asynccontextmanager
    async def place(self, person: str) -> AsyncIterator[None]:
        """Holds one of the person's places.

        Raises:
            Full: the person has as many requests in all processes as one person may have.
        """
        key, name = f"costly:{person}", uuid4().hex
        is_counted = await self._take(key, name)
        try:
            yield
        finally:
            if is_counted:
                # Not awaited: an answer doesn't wait for the count, and a cancelled request leaves, too.
                task = asyncio.create_task(self._leave(key, name))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _take(self, key: str, name: str) -> bool:
        """Returns whether the request is counted. Raises Full."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._alone_until:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                taken = await self._valkey().eval(_TAKE, 1, key, name, str(MOST_EACH), str(PLACE_SECONDS))
        except (RedisError, OSError, TimeoutError) as error:
            self._alone_until = loop.time() + ALONE_SECONDS
            logger.warning("Costly requests are counted by each process for itself: %r", error)
            return False
        if not taken:
            raise Full("yours", 1)
        return True

    async def _leave(self, key: str, name: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._valkey().zrem(key, name)
        except (RedisError, OSError, TimeoutError) as error:
            logger.warning("A place of a costly request ends by its time: %r", error)

    def _valkey(self) -> "redis.asyncio.Redis":
        """The connections of this process, made in its event loop. They end with it."""
        if self._server is None:
            self._server = async_client(
                self.url, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=ANSWER_SECONDS
            )
        return self._server
