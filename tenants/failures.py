"""Entries of queues, each handled apart: one that fails stops no other.

A queue is anything that a program works through: messages, mails, reports, budgets that begin
anew. What fails is logged, kept as a `FailedMessage`, shown to operators and tried again.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Model
from redis.exceptions import RedisError

from tenants.models import FailedMessage

logger = logging.getLogger(__name__)
Row = TypeVar("Row", bound=Model)

TASKS = "tasks"

# After tries with delays of 1, 2, 4 and 8 minutes an entry is parked.
PARKED_AFTER = 5
MAX_RETRY_DELAY = timedelta(hours=1)
ERROR_LENGTH_MAX, KEY_LENGTH_MAX = 300, 120
# A task that succeeds forgets its failures in other processes after this time at most.
FORGOTTEN_SECONDS = 60.0


class FailureLog:
    """The failures of one queue, read once for a run of its program at `now`.

    An entry is given up after `parked_after` tries. With None it is tried for as long as it is
    there: it comes back by itself each period, and one that an operator dismissed rests for an hour
    only. `raised` are errors that concern the whole queue, such as a lost connection to its server;
    they are passed on to the caller.
    """

    def __init__(
        self,
        queue: str,
        now: datetime,
        *,
        parked_after: int | None = PARKED_AFTER,
        raised: tuple[type[Exception], ...] = (),
    ) -> None:
        """Reads what has failed before."""
        self._queue, self._now, self._parked_after = queue, now, parked_after
        self._raised = raised
        rows = FailedMessage.objects.filter(queue=queue)
        self._failed = {row.key: row for row in rows}

    def held_back(self) -> list[str]:
        """Returns the keys of the entries that are not to be tried now."""
        return [key for key in self._failed if self.holds_back(key)]

    def holds_back(self, key: object) -> bool:
        """Whether the entry waits for its next try, or for an operator."""
        row = self._failed.get(str(key))
        if row is None:
            return False
        next_try = row.next_try
        if self._parked_after is None and row.dismissed is not None:
            next_try = row.dismissed + MAX_RETRY_DELAY
        return next_try is None or next_try > self._now

    def handle(self, key: object, act: Callable[[], object], *, tenant_id: UUID | None = None) -> bool:
        """Runs `act`, which opens its own transactions, unless the entry is held back; returns
        whether it succeeded.

        Raises what is no fault of the entry: a server was lost. The time limit of a task is
        raised, too, after it was noted.
        """
        if self.holds_back(key):
            return False
        error = self.attempt(act)
        if error is None:
            self.clear(key)
            return True
        self.note(key, error, tenant_id=tenant_id)
        if isinstance(error, SoftTimeLimitExceeded):
            raise error
        return False

    def attempt(self, act: Callable[[], object]) -> Exception | None:
        """As `failure_of`, with what concerns the whole queue."""
        return failure_of(act, self._raised)

    def note(self, key: object, error: Exception, *, tenant_id: UUID | None = None) -> None:
        """Logs and keeps a failure, and sets the next try."""
        logger.error("%s failed on %s", self._queue, key, exc_info=error)
        self.keep(key, error, tenant_id=tenant_id)

    def keep(self, key: object, error: Exception, *, tenant_id: UUID | None = None) -> None:
        """Keeps a failure that its caller logs, and sets the next try."""
        name = str(key)[:KEY_LENGTH_MAX]
        before = self._failed.get(name)
        tries = 1 if before is None else before.tries + 1
        delay = min(timedelta(minutes=2 ** min(tries - 1, 6)), MAX_RETRY_DELAY)
        is_parked = self._parked_after is not None and tries >= self._parked_after
        facts = {
            "error": error_text(error),
            "tries": tries,
            "last_failed": self._now,
            "next_try": None if is_parked else self._now + delay,
            "dismissed": None,
        }
        self._failed[name], _ = FailedMessage.objects.update_or_create(
            queue=self._queue,
            key=name,
            defaults=facts,
            create_defaults={**facts, "tenant_id": tenant_id, "first_failed": self._now},
        )

    def clear(self, *keys: object) -> None:
        """Forgets the failures of entries that were handled; no query if there were none."""
        over = [str(key) for key in keys if self._failed.pop(str(key), None) is not None]
        if over:
            FailedMessage.objects.filter(queue=self._queue, key__in=over).delete()


def failure_of(act: Callable[[], object], raised: tuple[type[Exception], ...] = ()) -> Exception | None:
    """Runs `act`, which opens its own transactions; returns the error if it failed.

    Raises what is no fault of what it works on: a server was lost, or one of `raised`.
    """
    of_all: tuple[type[Exception], ...] = (InterfaceError, RedisError, *raised)
    try:
        act()
    except of_all:
        raise
    except OperationalError as error:
        # A deadlock or a time-out concerns this entry, a lost connection all of them.
        if _is_lost():
            raise
        return error
    except Exception as error:  # noqa: BLE001 (whatever it is must stop no other entry)
        return error
    return None


def _is_lost() -> bool:
    return connection.connection is None or bool(connection.connection.closed)


def each_apart(queue: str, rows: Iterable[Row], act: Callable[[Row], int], now: datetime) -> int:
    """Runs `act` for each row, in transactions of its own; returns the sum of what it returned.

    A row that fails is set apart. It is tried for as long as it comes back.
    """
    done: list[int] = []
    waiting = list(rows)
    if not waiting:
        return 0
    failures = FailureLog(queue, now, parked_after=None)
    for row in waiting:
        failures.handle(row.pk, partial(_count, act, row, done), tenant_id=getattr(row, "tenant_id", None))
    return sum(done)


def _count(act: Callable[[Row], int], row: Row, done: list[int]) -> None:
    done.append(act(row))


def steps_apart(task: str, now: datetime, *steps: Callable[[datetime], object]) -> None:
    """Runs the steps of a task; one that fails stops no other, and is tried again with the task."""
    failures = FailureLog(TASKS, now, parked_after=None)
    for step in steps:
        failures.handle(f"{task}: {step.__name__}", partial(step, now))


class TaskFailures:
    """The failures of tasks as a whole, noted by the process that runs them; `steady` never jumps."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        """Forgets what an earlier process has noted when a task succeeds first."""
        self._steady = steady
        self._forgot: dict[str, float] = {}

    @contextmanager
    def noted(self, task: str, clock: Callable[[], datetime]) -> Iterator[None]:
        """Keeps an error of the task, which is raised all the same, and forgets it when it succeeds.

        A lost server is none: it has its own alarm.
        """
        try:
            yield
        except (InterfaceError, RedisError):
            raise
        except Exception as error:
            self._note(task, error, clock())
            raise
        if self._steady() - self._forgot.get(task, -FORGOTTEN_SECONDS) >= FORGOTTEN_SECONDS:
            self._forgot[task] = self._steady()
            FailedMessage.objects.filter(queue=TASKS, key=task).delete()

    def _note(self, task: str, error: Exception, now: datetime) -> None:
        self._forgot.pop(task, None)
        if isinstance(error, OperationalError) and _is_lost():
            return
        try:
            FailureLog(TASKS, now, parked_after=None).keep(task, error)
        except DatabaseError as lost:
            logger.warning("A failure of %s was not noted: %s", task, error_text(lost))


def error_text(error: BaseException) -> str:
    """The kind of an error and its first line, without what stood in the row: PostgreSQL names
    values in the lines after it."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}".rstrip(": ")[:ERROR_LENGTH_MAX]


def failed_count() -> int:
    """The number of failed messages that no operator has dismissed; for every process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_failed_messages()")
        return int(cursor.fetchone()[0])
