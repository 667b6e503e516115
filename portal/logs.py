"""Log formats: one line per event, whatever a name, a header or a traceback contains, and one line
a second while a server does not answer."""

import json
import logging
import math
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import django.db
import kombu.exceptions
import psycopg
import redis

from tenants.platform.log_ids import log_ids_now, text_of

OUTAGE_SECONDS = 1.0
_BROKER_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    # It is full: each write of each loop meets this.
    redis.exceptions.OutOfMemoryError,
    kombu.exceptions.OperationalError,
)
_DATABASE_AWAY = (
    *(django.db.OperationalError, django.db.InterfaceError),
    *(psycopg.OperationalError, psycopg.InterfaceError),
)
# Ended by an operator or a crash, starting or stopping, no free connection; 08: no connection.
_AWAY_STATES = frozenset({"57P01", "57P02", "57P03", "53300"})


class LineFormatter(logging.Formatter):
    """Escapes line ends and other control characters, so that input cannot forge a line.

    The ids of the request, user and so on are at the end of the line: `request=… user=…`.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record) + text_of(log_ids_now())
        return "".join(_escaped(character) for character in text)


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, tz=UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_ids_now(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


class OutageFilter(logging.Filter):
    """Lets one line a second of a program say that a server does not answer, without a traceback.

    Every request, task and loop of a program meets the same outage. What is left out is counted in
    the next line. The processes of a worker are copies of one and share the time of the last line.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` never jumps. It is made before the program starts its processes."""
        super().__init__()
        self._steady = steady
        self._shared = mmap.mmap(-1, 8)
        self._shared[:] = struct.pack("d", -math.inf)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shortens a record about an outage; returns whether to write it."""
        error = next(filter(is_outage, _errors(record)), None)
        if error is None:
            return True
        now = self._steady()
        (last,) = struct.unpack("d", self._shared[:])
        if now - last < OUTAGE_SECONDS:
            self._left_out += 1
            return False
        self._shared[:] = struct.pack("d", now)
        said = record.getMessage().strip().partition("\n")[0]
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        more = f" ({self._left_out} more lines left out)" if self._left_out else ""
        record.msg = said + ("" if why in said else f": {why}") + more
        record.args = None
        record.exc_info = record.exc_text = record.stack_info = None
        self._left_out = 0
        return True


def is_outage(error: BaseException) -> bool:
    """Whether the error, or one that it came from, says that a server does not answer."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _BROKER_AWAY):
            return True
        if isinstance(seen, _DATABASE_AWAY) and _is_away(getattr(seen, "sqlstate", None)):
            return not isinstance(seen.__cause__, psycopg.Error) or is_outage(seen.__cause__)
        seen = seen.__cause__ or seen.__context__
    return False


def _is_away(state: str | None) -> bool:
    return state is None or state.startswith("08") or state in _AWAY_STATES


def _errors(record: logging.LogRecord) -> Iterator[BaseException]:
    if record.exc_info and record.exc_info[1] is not None:
        yield record.exc_info[1]
    arguments = record.args.values() if isinstance(record.args, dict) else record.args or ()
    yield from (each for each in arguments if isinstance(each, BaseException))
