"""Watches what nodes do to their server, beside the reader and whatever the database does.

The server can't say how many bytes an account may send or how many connections it may hold, so
this looks at both, and at the length of streams, a few times a second. One node that takes more
than its share is cut off before the others notice.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.db import DatabaseError, connections

from allocation import wire
from allocation.models import Node
from allocation.services.inbox.report_streams import stream_trim, streams_oversize
from allocation.services.inbox.throttle import FLOOD_SECONDS, WATCHED_SECONDS
from allocation.services.nodes.fleet import node_flooded
from allocation.services.nodes.redis_accounts import PREFIX, agent_account_replace, agents_redis

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
# An agent holds two or three; a restarted one leaves as many behind for a while.
CONNECTIONS_MOST = 24
# A large node says some 20 KB a second, and reads as much.
BYTES_PER_SECOND = 4 << 20
COMMANDS_PER_SECOND = 500


@dataclass(frozen=True, slots=True)
class Use:
    """What an account has used of the server since its connections were made."""

    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    commands: int = 0


class AccountGuard:
    """One look after another; `steady` never jumps."""

    def __init__(self, clock: Callable[[], datetime], steady: Callable[[], float]) -> None:
        self._clock = clock
        self._steady = steady
        self._before: Mapping[str, Use] = {}
        self._looked = steady()
        self._over: dict[str, list[float]] = {}
        self._names: list[str] = []

    def run(self, stopped: threading.Event) -> None:
        """Looks until stopped."""
        try:
            while not stopped.wait(LOOK_SECONDS):
                try:
                    self.look()
                except redis.RedisError as error:
                    logger.warning("The agents' server can't be watched: %s", error)
                    stopped.wait(1)
        finally:
            connections.close_all()

    def look(self) -> set[str]:
        """Cuts off who takes too much; returns their names. Raises redis.RedisError."""
        streams = [wire.report_stream(name) for name in self._enrolled()]
        large = {each.node for each in streams_oversize(streams) if each.is_far_over}
        found = large | self._greedy()
        for name in found:
            self._cut_off(name)
        return found

    def _enrolled(self) -> list[str]:
        """Names of nodes that are let in; without the database, as they were."""
        try:
            nodes = Node.objects.filter(link_digest__isnull=False)
            self._names = list(nodes.values_list("name", flat=True))
        except DatabaseError as error:
            logger.warning("Nodes are watched by what was known of them: %s", error)
            connections.close_all()
        return self._names

    def _greedy(self) -> set[str]:
        """Accounts with too many connections, or over their rate for too many seconds."""
        now = self._steady()
        seconds, used = now - self._looked, account_usage()
        if seconds < 1:
            return {name for name, use in used.items() if use.connections > CONNECTIONS_MOST}
        for name, use in used.items():
            before = self._before.get(name, Use())
            if _is_over(before, use, seconds):
                self._over.setdefault(name, []).append(now)
        self._before, self._looked = used, now
        self._over = {
            name: kept
            for name, times in self._over.items()
            if (kept := [at for at in times if now - at < WATCHED_SECONDS])
        }
        return {name for name, times in self._over.items() if len(times) >= FLOOD_SECONDS} | {
            name for name, use in used.items() if use.connections > CONNECTIONS_MOST
        }

    def _cut_off(self, name: str) -> None:
        logger.warning("%s takes more of the agents' server than its share: cut off", name)
        self._over.pop(name, None)
        # First at the server, whatever the database does: it is the others who wait.
        agent_account_replace(name, None)
        stream_trim(wire.report_stream(name), 0)
        try:
            node_flooded(node_name=name, lock_out=True, now=self._clock())
        except (DatabaseError, Node.DoesNotExist) as error:
            logger.warning("%s could not be locked out in the database: %s", name, error)
            connections.close_all()


def account_usage() -> dict[str, Use]:
    """What each node's connections have used, by node. Raises redis.RedisError."""
    client: Any = agents_redis()
    rows: Iterable[Mapping[str, str]] = client.client_list()
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        if not row["user"].startswith(PREFIX):
            continue
        counts = sums.setdefault(row["user"].removeprefix(PREFIX), Counter())
        counts["connections"] += 1
        # Before Valkey 8 a server does not count these.
        counts["bytes_in"] += int(row.get("tot-net-in", 0))
        counts["bytes_out"] += int(row.get("tot-net-out", 0))
        counts["commands"] += int(row.get("tot-cmds", 0))
    return {name: Use(**counts) for name, counts in sums.items()}


def _is_over(before: Use, use: Use, seconds: float) -> bool:
    """Sums fall when a connection ends; what is new then is what the others have added since."""
    return (
        use.bytes_in - before.bytes_in > BYTES_PER_SECOND * seconds
        or use.bytes_out - before.bytes_out > BYTES_PER_SECOND * seconds
        or use.commands - before.commands > COMMANDS_PER_SECOND * seconds
    )
