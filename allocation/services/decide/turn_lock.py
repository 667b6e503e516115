"""The lock that lets one process lead, and what keeps its session until the turn is over.

The lock belongs to a session of the database and ends with it. A session that is silent is ended by
the process that finds its lock taken: its process was stopped, or hangs.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import psycopg
from django.db import OperationalError, connection

from allocation.services.record.counters import counter_add

logger = logging.getLogger(__name__)

# The key of the lock; nothing else in the database uses it.
CYCLE_LOCK = 7_120_001
# A turn that sends no statement for this long is ended by the process that finds its lock taken.
STALLED_SECONDS = 20
# A turn that solves asks the database four times in that, for at most so long. A first cycle of a
# large site takes a minute; one that takes longer than this hangs.
MOST_SOLVE_SECONDS = 240
# A session whose client does not read from it also waits until it is ended.
_END_STALLED = """
SELECT pg_terminate_backend(turn.pid) FROM pg_locks AS held
JOIN pg_stat_activity AS turn ON turn.pid = held.pid AND turn.datname = current_database()
WHERE held.locktype = 'advisory' AND held.granted AND held.database = turn.datid
  AND held.classid = 0 AND held.objid = %s AND held.objsubid = 1
  AND (turn.state <> 'active' OR turn.wait_event = 'ClientWrite')
  AND turn.state_change < clock_timestamp() - make_interval(secs => %s)
"""


class TurnEnded(OperationalError):
    """The session of this turn was ended, and another process leads: it must write nothing more."""


@dataclass(frozen=True, slots=True)
class TurnSession:
    """A wrapper of statements that allows them in one session only.

    After an error Django opens another session, which does not hold the lock.
    """

    first: object

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: object,
        many: bool,  # noqa: FBT001 (Django's)
        context: object,
    ) -> object:
        """Raises TurnEnded."""
        if connection.connection is not self.first:
            raise TurnEnded("the session of this turn was ended, and its lock with it")
        return execute(sql, params, many, context)


def lock_take() -> bool:
    """Takes the lock for this session, unless another one has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [CYCLE_LOCK])
        return bool(cursor.fetchone()[0])


def lock_give() -> None:
    """Gives the lock back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [CYCLE_LOCK])


def stalled_turn_end() -> bool:
    """Ends the session of a turn whose process has stopped; returns whether there was one.

    A stopped process (SIGSTOP, a paused virtual machine) keeps its connection and its lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(_END_STALLED, [CYCLE_LOCK, STALLED_SECONDS])
        ended = any(row[0] for row in cursor.fetchall())
    if ended:
        logger.warning("Ended the session of a turn that was stalled for %s s.", STALLED_SECONDS)
        counter_add("turns_ended_silent")
    return ended


@contextmanager
def session_kept() -> Iterator[None]:
    """Keeps the session from being silent while the turn computes without statements.

    A thread asks the database now and then. It stops with the process, so the session of a stopped
    process is silent all the same, and after `MOST_SOLVE_SECONDS`.
    """
    done = Event()
    thread = Thread(target=_ask_often, args=(connection.connection, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # It waits for one answer at most; without one the next statement of the turn waits, too.
        thread.join(STALLED_SECONDS)


def _ask_often(session: "psycopg.Connection[Any]", done: Event) -> None:
    until = time.monotonic() + MOST_SOLVE_SECONDS
    while not done.wait(STALLED_SECONDS / 4) and time.monotonic() < until:
        try:
            session.execute("SELECT 1")
        except psycopg.Error:
            # The session was ended; the next statement of the turn raises it.
            return
