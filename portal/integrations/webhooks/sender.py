"""Sends webhooks until it is stopped: one event loop, so that a slow receiver holds no other up."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from django.db import DatabaseError, close_old_connections

from portal.integrations.webhooks.post import post
from portal.integrations.webhooks.queue import Attempt, attempt_settle, deliveries_claim

logger = logging.getLogger(__name__)

AT_ONCE = 200
LOOK_SECONDS = 1.0


class Sender:
    """Claims due deliveries every second and sends them at once; `stop` waits for those begun."""

    def __init__(
        self, clock: Callable[[], datetime], seen: Callable[[datetime], None] | None = None
    ) -> None:
        """`clock` returns the time; `seen` is called with it at every look."""
        self._clock = clock
        self._seen = seen
        self._busy: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        # Django's connections belong to threads: one of them does all the queries.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="webhooks")

    def stop(self) -> None:
        """Ends `run` after the attempts that have begun."""
        self._stopped.set()

    async def run(self) -> None:
        """Sends until `stop`. While the database does not answer it tries again each second."""
        stopped = asyncio.create_task(self._stopped.wait())
        while not stopped.done():
            await self.look()
            # A delivery that is settled may let the next one of its booking go.
            await asyncio.wait(
                {stopped, *self._busy}, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED"
            )
        await self.finish()

    async def look(self) -> int:
        """Begins the attempts that are due; returns how many."""
        now = self._clock()
        if self._seen is not None:
            self._seen(now)
        try:
            attempts: list[Attempt] = await self._query(
                deliveries_claim, AT_ONCE - len(self._busy), now
            )
        except DatabaseError as error:
            logger.warning("Webhooks wait for the database: %s", type(error).__name__)
            return 0
        for attempt in attempts:
            task = asyncio.create_task(self._send(attempt))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)
        return len(attempts)

    async def finish(self) -> None:
        """Waits for the attempts that have begun."""
        while self._busy:
            await asyncio.wait(set(self._busy))

    async def _send(self, attempt: Attempt) -> None:
        answer = await post(attempt.message, self._clock())
        try:
            await self._query(attempt_settle, attempt, answer, self._clock())
        except DatabaseError as error:
            # Its claim ends in a minute; then it is sent again.
            logger.warning("An attempt was not recorded: %s", type(error).__name__)

    async def _query(self, work: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(
            self._database, _with_connection, work, args
        )


def _with_connection(work: Callable[..., Any], args: tuple[object, ...]) -> Any:  # noqa: ANN401
    close_old_connections()
    return work(*args)
