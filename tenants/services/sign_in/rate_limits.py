"""Rate limits per token, person or address, counted in windows of ten seconds."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from threading import Lock
from typing import Any, Literal

import redis
from django.conf import settings

from tenants.platform.errors import Refused
from tenants.platform.stores.redis_servers import redis_client
from tenants.words import refusal_text

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 10
BLOCKS = 100
"""A process takes the calls of a window from Redis in blocks, of which so many make a limit. Thus
several processes never let more pass, and may refuse a hundredth of them each too early."""
Kind = Literal["token", "address", "quotes", "enrol", "sign_on", "device"]


@dataclass
class _Blocks:
    """What is left of the blocks that this process took in the current window."""

    window: int = 0
    left: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def take(self, key: str, window: int) -> bool:
        """Takes one call, if there is one."""
        with self.lock:
            if window != self.window:
                self.window, self.left = window, {}
            left = self.left.get(key, 0)
            if left > 0:
                self.left[key] = left - 1
            return left > 0

    def add(self, key: str, window: int, calls: int) -> None:
        """Adds the calls of a new block."""
        with self.lock:
            if window == self.window and calls > 0:
                self.left[key] = self.left.get(key, 0) + calls


_blocks = _Blocks()
# Without Redis each process counts on its own: the limit is weaker, but never absent.
_local_counts: Counter[str] = Counter()


def call_limit_check(kind: Kind, who: str, now: datetime) -> None:
    """Counts a call of `who`.

    Raises:
        Refused: `too_many_requests` above the limit of the window.
    """
    window, passed = divmod(int(now.timestamp()), WINDOW_SECONDS)
    most = settings.CALL_LIMITS[kind]
    if _may_call(f"calls:{kind}:{who}", window, most):
        return
    wait = WINDOW_SECONDS - passed
    raise Refused(
        "too_many_requests",
        refusal_text("too_many_requests", most=f"{most:,}", window_seconds=WINDOW_SECONDS, wait=wait),
        "conflict",
        owner="operator",
        numbers={"most": most, "in_seconds": WINDOW_SECONDS, "retry_after_seconds": wait},
    )


def _may_call(key: str, window: int, most: int) -> bool:
    """Whether the limit allows one more call; counts it."""
    if _blocks.take(key, window):
        return True
    size = max(1, most // BLOCKS)
    allowed = size - max(0, _counted(f"{key}:{window}", size) - most)
    _blocks.add(key, window, allowed - 1)
    return allowed > 0


def _counted(key: str, calls: int) -> int:
    """Adds the calls to the counter and returns it."""
    try:
        with _store().pipeline(transaction=False) as pipe:
            pipe.incrby(key, calls)
            pipe.expire(key, 2 * WINDOW_SECONDS)
            return int(pipe.execute()[0])
    except redis.RedisError as error:
        logger.warning("Redis does not answer; calls are counted per process: %s", error)
    window = key.rpartition(":")[2]
    for old in [one for one in _local_counts if not one.endswith(f":{window}")]:
        del _local_counts[old]
    _local_counts[key] += calls
    return _local_counts[key]


@cache
def _store() -> Any:  # noqa: ANN401 (redis has no types)
    return redis_client(settings.CACHE_REDIS_URL, socket_timeout=1)
