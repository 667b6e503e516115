"""Requests that are written together: they hold no thread while they wait for each other.

The event loop keeps those that wait, by organisation. A batch takes what came while the last one
was written. Nobody waits for company: there is no timer. What a batch can't answer is answered
alone, in a thread of the pool.
"""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from uuid import UUID

from django.db import close_old_connections
from django.http.response import HttpResponseBase

from portal.api.problems import as_problem
from portal.words import refusal_text
from tenants.api.gathered import GatheredResponse, intakes_write
from tenants.platform.errors import Refused

logger = logging.getLogger(__name__)

MOST_TOGETHER = 64
MOST_WAITING = 1_000
"""Of one organisation. Further requests are refused with 429."""
BATCHES = 4
"""Organisations of which a batch is written at the same time, each on a connection of its own."""
PATIENCE_SECONDS = 1.0
"""Behind a batch that has taken this long, requests work alone: it may wait for a lock."""
ALONE_AFTER_FAILURE = 16
"""After a batch that failed, so many requests of its organisation are not gathered."""
ALONE_AT_ONCE = 4
"""Threads in which requests of one organisation work alone: if they wait for a lock, the other
threads of the pool serve everybody else."""

Answers = Sequence[HttpResponseBase | None]
InThread = Callable[..., Awaitable[HttpResponseBase]]


@dataclass(eq=False, slots=True)
class Place:
    """A request that waits for its batch. Its answer is None if it has to work alone."""

    response: GatheredResponse
    answer: "asyncio.Future[HttpResponseBase | None]"


@dataclass
class Gathering:
    """The requests of this process that wait for their batch; all methods run in the event loop.

    `together` answers the requests of one organisation in a thread.
    """

    together: Callable[[Sequence[GatheredResponse]], Answers]
    _waiting: dict[UUID, deque[Place]] = field(default_factory=dict)
    """An organisation is here while a batch of it is written."""
    _alone: Counter[UUID] = field(default_factory=Counter)
    _lanes: defaultdict[UUID, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(ALONE_AT_ONCE))
    )
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(BATCHES, thread_name_prefix="gathered")
    )
    _is_closing: bool = False

    async def answer(self, response: GatheredResponse, in_thread: InThread) -> HttpResponseBase:
        """Returns the complete answer. `in_thread` calls a function in a thread of the pool."""
        try:
            answer = await self._gathered(response)
            if answer is not None:
                return answer
            async with self._lanes[response.intake.actor.tenant_id]:
                if self._is_closing:
                    raise _stopping()
                return await in_thread(_alone, response)
        except Refused as refusal:
            return await in_thread(_refused, response, refusal)

    def close(self) -> None:
        """Refuses those that wait; nothing of them is written, and their keys are free. The batches
        at hand are finished."""
        self._is_closing = True
        for places in self._waiting.values():
            while places:
                _set(places.popleft(), _stopping())

    async def _gathered(self, response: GatheredResponse) -> HttpResponseBase | None:
        """Returns the answer of a batch; None: work alone. Raises Refused."""
        tenant = response.intake.actor.tenant_id
        if self._is_closing:
            raise _stopping()
        if self._alone[tenant] > 0:
            self._alone[tenant] -= 1
            return None
        del self._alone[tenant]
        places = self._waiting.get(tenant)
        if places is None:
            places = self._waiting[tenant] = deque()
            task = asyncio.create_task(self._write(tenant, places))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif len(places) >= MOST_WAITING:
            raise _too_many()
        place = Place(response, asyncio.get_running_loop().create_future())
        places.append(place)
        return await place.answer

    async def _write(self, tenant: UUID, places: deque[Place]) -> None:
        """Writes batches until nobody of the organisation waits."""
        try:
            while places:
                batch = [places.popleft() for _ in range(min(len(places), MOST_TOGETHER))]
                for place, answer in zip(batch, await self._answers(tenant, batch, places), strict=True):
                    _set(place, answer)
        finally:
            del self._waiting[tenant]

    async def _answers(self, tenant: UUID, batch: Sequence[Place], behind: deque[Place]) -> Answers:
        responses = [place.response for place in batch]
        loop = asyncio.get_running_loop()
        written = loop.run_in_executor(self._threads, self.together, responses)
        while not (await asyncio.wait({written}, timeout=PATIENCE_SECONDS))[0]:
            while behind:
                _set(behind.popleft(), None)
        try:
            return written.result()
        except Exception:  # noqa: BLE001 (each request meets its own error when it works alone)
            logger.info("A batch of %d failed; each request is answered alone.", len(batch))
            if len(batch) > 1:
                self._alone[tenant] = ALONE_AFTER_FAILURE
            return [None] * len(batch)


@cache
def gathering_here() -> Gathering:
    """Returns the instance of this process."""
    return Gathering(_written)


def _set(place: Place, answer: HttpResponseBase | Refused | None) -> None:
    if place.answer.done():
        return
    if isinstance(answer, Refused):
        place.answer.set_exception(answer)
    else:
        place.answer.set_result(answer)


def _written(responses: Sequence[GatheredResponse]) -> Answers:
    """Runs in a thread, with connections managed as in a request."""
    close_old_connections()
    try:
        kept = intakes_write([each.intake for each in responses])
    finally:
        close_old_connections()
    return [
        None if answer is None else _complete(response, response.intake.answered(answer))
        for response, answer in zip(responses, kept, strict=True)
    ]


def _alone(response: GatheredResponse) -> HttpResponseBase:
    close_old_connections()
    try:
        return _complete(response, response.intake.alone())
    finally:
        close_old_connections()


def _refused(response: GatheredResponse, refusal: Refused) -> HttpResponseBase:
    return _complete(response, response.intake.refused(refusal))


def _complete(response: GatheredResponse, answer: HttpResponseBase) -> HttpResponseBase:
    return response.completed(as_problem(answer))


def _stopping() -> Refused:
    return Refused("busy", refusal_text("restarting"))


def _too_many() -> Refused:
    return Refused(
        "too_many_requests",
        refusal_text("too_many_waiting", most=f"{MOST_WAITING:,}"),
        owner="operator",
        numbers={"most": MOST_WAITING, "retry_after_seconds": 1},
    )
