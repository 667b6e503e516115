"""Where the shards of a large site are decided: here, in processes, or on other machines."""

from functools import cache

from django.conf import settings

from allocation.services.record.counters import SHARDS, counters_add
from allocation.services.shards.processes import ShardWorkers
from allocation.services.shards.queue import ShardQueue
from solver import Snapshot
from solver.sharding.shards import SPLIT_FROM, Decide, size_of


def decide_of(snapshot: Snapshot) -> Decide | None:
    """Where the shards of a snapshot are decided; None: here."""
    if size_of(snapshot) < SPLIT_FROM:
        return None
    if settings.SOLVER_SHARDS == "queue":
        return _queue(settings.BROKER_REDIS_URL, settings.SHARD_SECONDS).decide
    if settings.SOLVER_WORKERS > 1:
        return _processes(settings.SOLVER_WORKERS).decide
    return None


def shards_count() -> None:
    """Adds what became of the shards of a turn to the metrics."""
    if settings.SOLVER_SHARDS == "queue":
        counts = _queue(settings.BROKER_REDIS_URL, settings.SHARD_SECONDS).counts
        counters_add({SHARDS + name: count for name, count in counts.items()})
        counts.clear()


@cache
def _queue(url: str, most_seconds: int) -> ShardQueue:
    return ShardQueue(url, most_seconds)


@cache
def _processes(count: int) -> ShardWorkers:
    return ShardWorkers(count)
