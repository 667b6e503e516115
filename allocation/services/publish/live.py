"""Redis data for web processes: message numbers of open pages, and hints of decisions.

Messages to open pages are numbered by group, so that a page sees a lost message as a gap. Numbers
that Redis has lost start again, which is also a gap.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.db import transaction
from redis.exceptions import RedisError

from tenants.platform.stores.redis_servers import redis_client

logger = logging.getLogger(__name__)

# Announces a decision. Waiting requests then look for theirs, and once a second anyway.
DECIDED_CHANNEL = "live:decided"


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


def decided_hint() -> None:
    """After the commit, makes web processes look for the decisions that they wait for."""
    transaction.on_commit(_decided_publish)


def _decided_publish() -> None:
    try:
        _server().publish(DECIDED_CHANNEL, b"")
    except RedisError:
        logger.warning("Redis did not answer; waiting requests see the decision a second later.")


def _key(group: str) -> str:
    return f"live:number:{group}"


@cache
def _server() -> "redis.Redis":
    return redis_client(settings.CHANNELS_REDIS_URL, socket_timeout=2)
