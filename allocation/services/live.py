"""The numbers of what open pages are told, group by group: a gap is a message that was lost.

Kept in Redis, beside the channels: numbers that it has forgotten begin again, which is a gap too.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import redis
from django.conf import settings


def numbers_next(groups: Sequence[str]) -> list[int]:
    """A new number for each message, in order. Raises redis.RedisError."""
    with _server().pipeline(transaction=False) as pipe:
        for group in groups:
            pipe.incr(_key(group))
        return [int(number) for number in pipe.execute()]


def numbers_last(groups: Sequence[str]) -> list[int]:
    """The number of each group's last message, 0 before the first. Raises redis.RedisError."""
    stored: Any = _server().mget([_key(group) for group in groups])
    return [int(number or 0) for number in stored]


def _key(group: str) -> str:
    return f"live:number:{group}"


@cache
def _server() -> "redis.Redis":
    return redis.Redis.from_url(settings.CHANNELS_REDIS_URL, socket_timeout=2)
