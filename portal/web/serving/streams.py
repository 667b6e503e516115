"""Clients that follow events: they hold no thread, and one thread reads for all of them.

Each second the thread reads the newest position of every tenant that is followed, and the events of
clients that are behind. A client that takes no data has at most one read in memory.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus

from django.db import DatabaseError, close_old_connections
from django.http import JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from allocation.queries.fleet.catalogue import class_labels, host_classes, zone_labels
from allocation.words.amounts import class_names
from billing.price_books import currency_latest
from portal.api.errors import PROBLEM_JSON
from portal.api.problems import problem_of
from tenants.access import rights_of
from tenants.platform.deferred import Follow, FollowResponse
from tenants.platform.wall import tenant_tx
from tenants.queries import events_newest

logger = logging.getLogger(__name__)

# Streams of this process, of one tenant and of one token.
MOST, MOST_OF_TENANT, MOST_OF_TOKEN = 2_000, 500, 20
LOOK_SECONDS = 1.0
# A comment that keeps proxies from closing a quiet stream.
COMMENT_SECONDS = 15.0


@dataclass(eq=False, slots=True)
class Follower:
    """An open stream. `parts` are read and not sent yet."""

    follow: Follow
    position: int
    parts: list[bytes] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a look found for a stream; it ends when its rights changed."""

    follower: Follower
    parts: tuple[bytes, ...]
    position: int
    is_over: bool


@dataclass
class Streams:
    """The open streams of this process; all methods run in the event loop."""

    most: int = MOST
    _followers: set[Follower] = field(default_factory=set)
    _task: "asyncio.Task[None] | None" = None
    _is_closing: bool = False
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="streams")
    )

    def answer(self, response: FollowResponse) -> HttpResponseBase:
        """Fills the response, or refuses when too many streams are open."""
        if self._is_closing or self._is_full(response.follow):
            problem = problem_of(HTTPStatus.SERVICE_UNAVAILABLE)
            return JsonResponse(problem, status=503, content_type=PROBLEM_JSON, headers={"Retry-After": "5"})
        follower = Follower(response.follow, response.follow.position)
        response.streaming_content = self._parts(follower)
        return response

    def close(self) -> None:
        """Ends all streams; clients continue elsewhere after their last event."""
        self._is_closing = True
        for follower in self._followers:
            _end(follower)

    def _is_full(self, follow: Follow) -> bool:
        tenants = Counter(each.follow.tenant_id for each in self._followers)
        tokens = Counter(each.follow.credential for each in self._followers)
        return (
            len(self._followers) >= self.most
            or tenants[follow.tenant_id] >= MOST_OF_TENANT
            or tokens[follow.credential] >= MOST_OF_TOKEN
        )

    async def _parts(self, follower: Follower) -> AsyncIterator[bytes]:
        # Here, because a stream whose client is gone already never begins.
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield b"retry: 2000\n\n"
            while not follower.is_over:
                try:
                    async with asyncio.timeout(COMMENT_SECONDS):
                        await follower.news.wait()
                except TimeoutError:
                    yield b":\n\n"
                    continue
                follower.news.clear()
                parts, follower.parts = follower.parts, []
                if parts:
                    yield b"".join(parts)
        finally:
            self._followers.discard(follower)

    async def _look(self) -> None:
        """Looks once a second while there are streams; an error ends them, and clients return."""
        try:
            await self._look_again()
        finally:
            for follower in self._followers:
                _end(follower)

    async def _look_again(self) -> None:
        while self._followers:
            await asyncio.sleep(LOOK_SECONDS)
            idle = [each for each in self._followers if not each.parts]
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(self._thread, _look_in_thread, idle)
            except DatabaseError as error:
                logger.warning("Streams wait for the database: %s", type(error).__name__)
                continue
            for each in found:
                each.follower.position = each.position
                each.follower.parts = list(each.parts)
                if each.is_over:
                    _end(each.follower)
                elif each.parts:
                    each.follower.news.set()


def _end(follower: Follower) -> None:
    follower.is_over = True
    follower.news.set()


@cache
def streams_here() -> Streams:
    """Returns the instance of this process."""
    return Streams()


def _look_in_thread(followers: Iterable[Follower]) -> list[Found]:
    close_old_connections()
    try:
        return _found(list(followers))
    finally:
        close_old_connections()


def _found(followers: list[Follower]) -> list[Found]:
    """Reads for all streams. Raises DatabaseError; then the next look reads the same."""
    rights = rights_of({each.follow.credential for each in followers}, timezone.now())
    tenants = defaultdict(list)
    for each in followers:
        tenants[each.follow.tenant_id].append(each)
    found = []
    for tenant, rows in tenants.items():
        # No request is open, so no middleware has named the classes of its sentences.
        with tenant_tx(tenant), class_names(class_labels, zone_labels, host_classes, currency_latest):
            newest = events_newest(tenant)
            for each in rows:
                is_over = rights[each.follow.credential] != each.follow.rights
                is_behind = each.position < newest and not is_over
                parts, position = (
                    each.follow.read(each.position, newest) if is_behind else ((), each.position)
                )
                found.append(Found(each, tuple(parts), position, is_over))
    return found
