"""Rests after a server of Redis did not answer in time.

A server that is gone refuses a connection at once. One that hangs takes each command until its
time-out, and a page has several: without rests it would answer after many seconds, and threads that
wait would be used up.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
import redis.retry
from redis.backoff import NoBackoff

Found = TypeVar("Found")

FIRST_REST_SECONDS, MOST_REST_SECONDS = 1.0, 4.0
AWAY = "The server did not answer in time a moment ago."


class Patience(redis.retry.Retry):
    """What all connections of this process to one server share: a command that is not answered in
    time lets the next ones fail at once for a rest. Then one of them asks again, and each further
    time-out doubles the rest.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        """Without a rest; `steady` never jumps."""
        super().__init__(NoBackoff(), 0)
        self._steady = steady
        self._rest, self._until = 0.0, 0.0
        self._asking = threading.local()

    def __deepcopy__(self, memo: object) -> "Patience":
        """Returns itself: each connection copies what it is given."""
        return self

    def call_with_retry(self, do: Callable[[], Found], *args: Any, **kwargs: Any) -> Found:  # noqa: ANN401 (redis')
        """Runs `do`, a command or a connect, unless the server is rested from.

        Raises:
            redis.ConnectionError: it is.
        """
        if getattr(self._asking, "here", False):
            # A command that connects first.
            return super().call_with_retry(do, *args, **kwargs)
        self._wait_over()
        self._asking.here = True
        try:
            found = super().call_with_retry(do, *args, **kwargs)
        except redis.TimeoutError:
            self._rest = min(2 * self._rest or FIRST_REST_SECONDS, MOST_REST_SECONDS)
            self._until = self._steady() + self._rest
            raise
        finally:
            self._asking.here = False
        self._rest = 0.0
        return found

    def _wait_over(self) -> None:
        if not self._rest:
            return
        now = self._steady()
        if now < self._until:
            raise redis.ConnectionError(AWAY)
        # Others fail while this one asks.
        self._until = now + self._rest
