"""Rate limits per token, person or address, counted in windows of ten seconds."""

import logging
from collections import Counter
from datetime import datetime
from functools import cache
from typing import Any, Literal

import redis
from django.conf import settings

from tenants.platform.errors import Refused

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 10
Kind = Literal["token", "address", "quotes", "enrol", "sign_on", "device"]

# Without Redis each process counts on its own: the limit is weaker, but never absent.
_local_counts: Counter[str] = Counter()


def call_limit_check(kind: Kind, who: str, now: datetime) -> None:
    """Counts a call of `who`.

    Raises:
        Refused: `too_many_requests` above the limit of the window.
    """
    window, passed = divmod(int(now.timestamp()), WINDOW_SECONDS)
    most = settings.CALL_LIMITS[kind]
    if _counted(f"calls:{kind}:{who}:{window}") <= most:
        return
    wait = WINDOW_SECONDS - passed
    raise Refused(
        "too_many_requests",
        f"More than {most:,} such calls in {WINDOW_SECONDS} seconds. Retry in {wait} s.",
        "conflict",
        owner="operator",
        numbers={"most": most, "in_seconds": WINDOW_SECONDS, "retry_after_seconds": wait},
    )


def _counted(key: str) -> int:
    """Increments the counter and returns it."""
    try:
        with _store().pipeline(transaction=False) as pipe:
            pipe.incr(key)
            pipe.expire(key, 2 * WINDOW_SECONDS)
            return int(pipe.execute()[0])
    except redis.RedisError as error:
        logger.warning("Redis does not answer; calls are counted per process: %s", error)
    window = key.rpartition(":")[2]
    for old in [one for one in _local_counts if not one.endswith(f":{window}")]:
        del _local_counts[old]
    _local_counts[key] += 1
    return _local_counts[key]


@cache
def _store() -> Any:  # noqa: ANN401 (redis has no types)
    return redis.Redis.from_url(settings.CACHE_REDIS_URL, socket_timeout=1)
