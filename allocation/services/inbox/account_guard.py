"""Limits each account's use of the agents' server, independently of the reader and the database.

An account is that of a node, or of an engine: then the limits are those of its hosts together.

The server can't limit an account's bytes or connections, so this checks both, and the length of
streams, a few times a second. A node that exceeds its share is disconnected before others notice.
"""

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.db import DatabaseError, connections

import wire
from allocation.models import EngineAgent, Node
from allocation.services.inbox.report_streams import (
    enrolled_accounts,
    stream_trim,
    streams_oversize,
)
from allocation.services.inbox.throttle import FLOOD_SECONDS, WATCHED_SECONDS
from allocation.services.nodes.fleet import engine_flooded, node_flooded
from allocation.services.nodes.redis_accounts import (
    PREFIX,
    agent_account_replace,
    agents_redis,
    engine_account_close,
)
from tenants.platform.watchdog.pulses import pulse

logger = logging.getLogger(__name__)

LOOK_SECONDS, LIST_SECONDS = 0.25, 1.0
# An agent holds two or three; after a restart the old ones stay open for a while.
CONNECTIONS_MOST = 24
# A large node sends and reads about 20 KB per second.
BYTES_PER_SECOND = 4 << 20
COMMANDS_PER_SECOND = 500
# What sends pulses to the watchdog.
LINKS = "links"


@dataclass(frozen=True, slots=True)
class Use:
    """Use of the server by an account since its connections were opened."""

    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    commands: int = 0


class AccountGuard:
    """Checks all accounts repeatedly; `steady` never jumps."""

    def __init__(self, clock: Callable[[], datetime], steady: Callable[[], float]) -> None:
        self._clock = clock
        self._steady = steady
        self._before: Mapping[str, Use] = {}
        self._connected = 0
        self._looked = steady()
        self._over: dict[str, list[float]] = {}
        # The engine of each enrolled node; None: it has an account of its own.
        self._engines: dict[str, str | None] = {}
        self._named = -math.inf

    def run(self, stopped: threading.Event) -> None:
        """Checks until stopped."""
        try:
            while not stopped.wait(LOOK_SECONDS):
                try:
                    self.look()
                    pulse(LINKS)
                except redis.RedisError as error:
                    logger.warning("The agents' server can't be checked: %s", error)
                    stopped.wait(1)
        finally:
            connections.close_all()

    def look(self) -> set[str]:
        """Disconnects accounts that exceed their share; returns them. Raises redis.RedisError."""
        streams = [wire.report_stream(name) for name in self._enrolled()]
        large = {self._account_of(each.node) for each in streams_oversize(streams) if each.is_far_over}
        found = large | self._greedy()
        for account in found:
            self._cut_off(account)
        return found

    def _enrolled(self) -> list[str]:
        """Names of enrolled nodes, looked up once a second; the last known ones if the database
        does not answer."""
        if self._steady() - self._named >= LIST_SECONDS:
            try:
                self._engines = dict(enrolled_accounts(self._clock()))
                self._named = self._steady()
            except DatabaseError as error:
                logger.warning("The database does not answer, so known nodes are checked: %s", error)
                connections.close_all()
        return list(self._engines)

    def _account_of(self, node: str) -> str:
        engine = self._engines.get(node)
        return node if engine is None else wire.engine_account(engine)

    def _hosts(self, account: str) -> list[str]:
        """The nodes that an account speaks for."""
        return [node for node in self._engines if self._account_of(node) == account] or [account]

    def _greedy(self) -> set[str]:
        """Accounts with too many connections, or over their rate for too many seconds."""
        now, connected = self._steady(), connections_open()
        seconds = now - self._looked
        if seconds < 1 and connected <= self._connected:
            # Nobody has more than at the last look, unless others have closed as many meanwhile.
            return set()
        used, self._connected = account_usage(), connected
        size = Counter(self._account_of(node) for node in self._engines)
        crowded = {n for n, use in used.items() if use.connections > CONNECTIONS_MOST * max(1, size[n])}
        if seconds < 1:
            return crowded
        for name, use in used.items():
            before = self._before.get(name, Use())
            if _is_over(before, use, seconds * max(1, size[name])):
                self._over.setdefault(name, []).append(now)
        self._before, self._looked = used, now
        self._over = {
            name: kept
            for name, times in self._over.items()
            if (kept := [at for at in times if now - at < WATCHED_SECONDS])
        }
        return crowded | {n for n, times in self._over.items() if len(times) >= FLOOD_SECONDS}

    def _cut_off(self, account: str) -> None:
        logger.warning("%s exceeds its share of the agents' server: disconnected", account)
        self._over.pop(account, None)
        hosts, engine = self._hosts(account), account.startswith(wire.engine_account(""))
        # At the server first, even if the database does not answer: other nodes are waiting.
        if engine:
            engine_account_close(account.removeprefix(wire.engine_account("")))
        else:
            agent_account_replace(account, None)
        for host in hosts:
            stream_trim(wire.report_stream(host), 0)
        try:
            if engine:
                engine_flooded(engine_name=account.removeprefix(wire.engine_account("")), now=self._clock())
            else:
                node_flooded(node_name=account, lock_out=True, now=self._clock())
        except (DatabaseError, Node.DoesNotExist, EngineAgent.DoesNotExist) as error:
            logger.warning("%s could not be locked out in the database: %s", account, error)
            connections.close_all()


def connections_open() -> int:
    """How many connections the server has, without a list of them. Raises redis.RedisError."""
    client: Any = agents_redis()
    return int(client.info("clients")["connected_clients"])


def account_usage() -> dict[str, Use]:
    """Use of the server by account. Raises redis.RedisError."""
    client: Any = agents_redis()
    rows: Iterable[Mapping[str, str]] = client.client_list()
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        if not row["user"].startswith(PREFIX):
            continue
        counts = sums.setdefault(row["user"].removeprefix(PREFIX), Counter())
        counts["connections"] += 1
        # Servers before Valkey 8 do not count these.
        counts["bytes_in"] += int(row.get("tot-net-in", 0))
        counts["bytes_out"] += int(row.get("tot-net-out", 0))
        counts["commands"] += int(row.get("tot-cmds", 0))
    return {name: Use(**counts) for name, counts in sums.items()}


def _is_over(before: Use, use: Use, seconds: float) -> bool:
    """Whether the use since the last check exceeds a rate. Closed connections reduce the sums."""
    return (
        use.bytes_in - before.bytes_in > BYTES_PER_SECOND * seconds
        or use.bytes_out - before.bytes_out > BYTES_PER_SECOND * seconds
        or use.commands - before.commands > COMMANDS_PER_SECOND * seconds
    )
