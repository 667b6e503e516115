"""The leader of the decision cycle: its lock, and what its process keeps between turns.

The lock belongs to a session of the database and ends with it. If a process finds the lock taken by
a session that has been silent for `STALLED_SECONDS`, it ends that session, because the process of
the session was stopped or hangs. The leader keeps the stored places in the queue (`QueuePlaces`),
until when the last plan still holds (`Rest`), and which GPU classes need no search (`Searches`).
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any
from uuid import UUID

import psycopg
from django.db import OperationalError, connection, transaction

from allocation.models import PolicyVersion, QueuePlace
from allocation.services.plans.transactions import leads
from allocation.services.policy.policies import policy_of
from allocation.services.record.counters import counter_add
from allocation.services.snapshot.kept import Taken
from solver import Plan
from solver.model.instants import next_instant
from solver.state.kept import QuietClasses

logger = logging.getLogger(__name__)

# The second key of the lock; nothing else in the database uses it. A web process has no right to
# locks with two keys, so that no code in it can stop the decisions.
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
  AND held.classid = 1 AND held.objid = %s AND held.objsubid = 2
  AND (turn.state <> 'active' OR turn.wait_event = 'ClientWrite')
  AND turn.state_change < clock_timestamp() - make_interval(secs => %s)
"""


class TurnEnded(OperationalError):
    """The session of this turn was ended, and another process leads: it must write nothing more."""


@dataclass(frozen=True, slots=True)
class TurnSession:
    """Refuses statements in any session but the `first` one, which holds the lock.

    After an error Django silently opens another session.
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
        cursor.execute("SELECT pg_try_advisory_lock(1, %s)", [CYCLE_LOCK])
        return bool(cursor.fetchone()[0])


def lock_give() -> None:
    """Gives the lock back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(1, %s)", [CYCLE_LOCK])


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

    A thread sends a statement every few seconds. It stops with the process, so the session of a
    stopped process is still silent, and it gives up after `MOST_SOLVE_SECONDS`.
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


Key = tuple[int, ...]
MOST_SECONDS = 60
"""The longest rest after a cheap plan: some inputs of a plan change with every second."""
MOST_PART = 300
"""After a plan that took long the rest lasts this many times as long, so that an idle site of any
size takes the same part of a processor."""
LONGEST_SECONDS = 300
"""The longest rest after any plan."""


class QueuePlaces:
    """Writes the places of waiting bookings in the queue, if they differ from what is stored."""

    def __init__(self) -> None:
        """Begins without knowing what is stored."""
        self._stored: dict[UUID, Key] | None = None
        self._term = 0

    def forget(self) -> None:
        """Makes the next write read what is stored."""
        self._stored = None

    def lead(self, term: int) -> None:
        """Begins a turn. Forgets what is stored if another process has led since the last one."""
        if term != self._term + 1:
            self._stored = None
        self._term = term

    def write(self, plan: Plan, term: int) -> None:
        """Stores the places of all who wait in this plan, unless another process leads now."""
        new = {UUID(wait.booking): wait.key for wait in plan.waits if wait.key}
        # An error on the way leaves nothing known.
        stored, self._stored = self._stored, None
        with transaction.atomic():
            if not leads(term):
                return
            if stored is None:
                rows = QueuePlace.objects.values_list("booking_id", "key")
                stored = {booking: tuple(key) for booking, key in rows}
            gone = stored.keys() - new.keys()
            if gone:
                QueuePlace.objects.filter(booking_id__in=gone).delete()
            changed = [
                QueuePlace(booking_id=booking, key=list(key))
                for booking, key in new.items()
                if stored.get(booking) != key
            ]
            QueuePlace.objects.bulk_create(
                changed,
                update_conflicts=True,
                unique_fields=["booking"],
                update_fields=["key"],
                batch_size=1_000,
            )
        self._stored = new


queue_places = QueuePlaces()


class Rest:
    """Lets turns skip solving after a plan that changed nothing.

    It ends at the next instant at which time alone may change the plan, or when the snapshot or the
    policy changes.
    """

    def __init__(self) -> None:
        """The first turn solves."""
        self._until: int | None = None
        self._policy: int | None = None

    def lasts(self, taken: Taken, live: PolicyVersion) -> bool:
        """Returns whether the plan for this snapshot would still change nothing; if not, the rest
        ends."""
        is_same = not taken.is_changed and live.pk == self._policy
        if self._until is None or not is_same or taken.snapshot.now >= self._until:
            self.end()
        return self._until is not None

    def begin(self, taken: Taken, live: PolicyVersion, took: float) -> None:
        """Notes that the plan for this snapshot changes nothing, and `took` so many seconds."""
        most = min(max(MOST_SECONDS, round(took * MOST_PART)), LONGEST_SECONDS)
        latest = taken.snapshot.now + most
        self._until = next_instant(taken.snapshot, policy_of(live), latest)
        self._policy = live.pk

    def end(self) -> None:
        """Makes the next turn solve."""
        self._until = None


class Searches:
    """The GPU classes that need no new search, because nothing of theirs has changed."""

    def __init__(self) -> None:
        """Begins with a search of all classes."""
        self._classes = QuietClasses()
        self._policy: int | None = None

    def forget(self) -> None:
        """Makes the next cycle search all classes: the last plan may not have been written."""
        self._classes.forget()

    def mark(self, taken: Taken, live: PolicyVersion) -> Taken:
        """Returns the snapshot with its quiet classes; after a change of the policy without any."""
        if live.pk != self._policy:
            self.forget()
        self._policy = live.pk
        quiet = self._classes.of(taken.rows)
        if not quiet:
            return taken
        rows = replace(taken.rows, tables={**taken.rows.tables, "quiet": {name: name for name in quiet}})
        return replace(taken, snapshot=replace(taken.snapshot, quiet=quiet), rows=rows)
