"""Who may use a notebook now: asked of the database for each request, and of open ones all the time.

An answer counts for two seconds. When the database is silent for longer than five, everything closes.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from channels.db import database_sync_to_async
from django.db import Error as DatabaseFault

from allocation.features.notebooks.entries import Visit, ticket_take, tunnel_of, visit_of

logger = logging.getLogger(__name__)

CHECK_SECONDS, MAX_AGE_SECONDS = 2.0, 5.0
MOST_OF_PERSON, MOST = 96, 2_000
_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Pass:
    """What somebody shows: a browser its cookie and the label of a host, a tunnel its address and its
    secret."""

    first: str
    second: str
    is_tunnel: bool = False


class TooMany(Exception):
    """There are too many connections, of this person or in all."""


class Guard:
    """Checks passes, and closes what is open under one that is no longer good."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._known: dict[Pass, tuple[Visit | None, float]] = {}
        self._asking: dict[Pass, asyncio.Task[Visit | None]] = {}
        self._open: dict[Pass, set[Callable[[], None]]] = defaultdict(set)
        self._of_person: Counter[int] = Counter()

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._of_person.total()

    async def visit(self, shown: Pass) -> Visit | None:
        """Returns whose it is, None if it is not good. Raises DatabaseFault."""
        found, at = self._known.get(shown, (None, 0.0))
        if at and time.monotonic() - at < CHECK_SECONDS:
            return found
        task = self._asking.get(shown)
        if task is None:
            task = self._asking[shown] = asyncio.create_task(self._ask(shown))
            task.add_done_callback(lambda _: self._asking.pop(shown, None))
        return await asyncio.shield(task)

    async def enter(self, ticket: str, label: str) -> str | None:
        """Changes a ticket into a cookie. Raises DatabaseFault."""
        taken: str | None = await database_sync_to_async(ticket_take)(ticket, label, self._clock())
        return taken

    @contextmanager
    def opened(self, shown: Pass, visit: Visit, close: Callable[[], None]) -> Iterator[None]:
        """Counts something open, which is closed when the pass is no longer good. Raises TooMany."""
        if self._of_person[visit.person] >= MOST_OF_PERSON or self.connections >= MOST:
            raise TooMany
        self._of_person[visit.person] += 1
        self._open[shown].add(close)
        try:
            yield
        finally:
            self._of_person[visit.person] -= 1
            self._of_person += Counter()
            self._open[shown].discard(close)
            if not self._open[shown]:
                del self._open[shown]

    async def check(self) -> None:
        """Asks about everything that is open, and closes what may be open no longer."""
        for shown in list(self._open):
            try:
                self._apply(shown, await self._ask(shown))
            except DatabaseFault:
                logger.warning("The database did not say who may use notebooks; trying again.")
                if time.monotonic() - self._known.get(shown, (None, 0.0))[1] > MAX_AGE_SECONDS:
                    self._apply(shown, None)
        oldest = time.monotonic() - MAX_AGE_SECONDS
        self._known = {each: found for each, found in self._known.items() if found[1] > oldest}

    def _apply(self, shown: Pass, found: Visit | None) -> None:
        if found is None:
            for close in list(self._open.get(shown, ())):
                close()

    async def _ask(self, shown: Pass) -> Visit | None:
        at = time.monotonic()
        found: Visit | None = await database_sync_to_async(_visit)(shown, self._clock())
        if len(self._known) < _KEPT:
            self._known[shown] = (found, at)
        return found


def _visit(shown: Pass, now: datetime) -> Visit | None:
    if shown.is_tunnel:
        return tunnel_of(shown.first, shown.second)
    return visit_of(shown.first, shown.second, now)
