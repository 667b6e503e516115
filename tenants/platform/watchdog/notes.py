"""The notes of watchdogs at Redis: which loops are silent, and how often programs were ended."""

from collections.abc import Iterable
from typing import Any

from tenants.platform.stores.redis_servers import redis_client

SILENT_KEY, ENDS_KEY, ASKED_KEY = "watchdog:silent:{}", "watchdog:ends:{}", "watchdog:asked"
# How long a silent loop is shown after the last look that found it so.
SHOWN_SECONDS = 10
ANSWER_SECONDS = 2


def redis_ask(url: str, *command: str | int) -> Any:  # noqa: ANN401 (redis has no types)
    """The answer of a server to one command. Raises redis.RedisError."""
    limits = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    with redis_client(url, **limits) as server:
        return server.execute_command(*command)


def asked_note(url: str) -> None:
    """Writes to the server. Raises redis.RedisError if it takes no writes."""
    redis_ask(url, "SET", ASKED_KEY, "", "EX", SHOWN_SECONDS)


def silent_note(url: str, program: str, loop: str) -> None:
    """Notes that a loop of the program is silent. Raises redis.RedisError."""
    redis_ask(url, "SET", SILENT_KEY.format(program), loop, "EX", SHOWN_SECONDS)


def end_note(url: str, program: str) -> None:
    """Counts that the program was ended. Raises redis.RedisError."""
    redis_ask(url, "INCR", ENDS_KEY.format(program))


def silent_read(url: str, programs: Iterable[str]) -> dict[str, str]:
    """The silent loop of each program that has one. Raises redis.RedisError."""
    return {name: loop.decode() for name, loop in _noted(url, SILENT_KEY, programs).items()}


def ends_read(url: str, programs: Iterable[str]) -> dict[str, int]:
    """How often the watchdog of each program has ended it. Raises redis.RedisError."""
    found = _noted(url, ENDS_KEY, programs)
    return {name: int(found.get(name, 0)) for name in programs}


def _noted(url: str, key: str, programs: Iterable[str]) -> dict[str, bytes]:
    names = list(programs)
    values = redis_ask(url, "MGET", *(key.format(name) for name in names))
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}
