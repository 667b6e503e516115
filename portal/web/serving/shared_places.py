"""A person's costly requests in all web processes, counted in Valkey.

Each process has a gate of its own; this count keeps a person from getting as many places again in
each of them. A place has an end of its own, so that one of a process that was killed is free
again. Without Valkey, or if it answers too late, the gates of the processes count alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import redis.asyncio
from redis.exceptions import RedisError

from portal.web.serving.gate import MOST_EACH, Full

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
            self._server = redis.asyncio.Redis.from_url(
                self.url, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=ANSWER_SECONDS
            )
        return self._server
