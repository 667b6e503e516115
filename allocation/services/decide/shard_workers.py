"""Worker processes of the solver's leader, which decide the shards of a large site.

A shard is sent as its part of the snapshot and comes back as its part of the plan. Workers keep
nothing, so one that is killed costs only time: the leader then decides all shards itself.
"""

import gc
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import connection, get_context, parent_process

from django.conf import settings

from allocation.solver import Plan, Policy, Snapshot
from allocation.solver.cycle.solve import solve as solve_whole
from allocation.solver.sharding.shards import SPLIT_FROM, Decide, size_of

logger = logging.getLogger(__name__)


class ShardWorkers:
    """A number of processes that decide shards."""

    def __init__(self, count: int) -> None:
        """They start with the first shard."""
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def decide(self, shards: Sequence[Snapshot], policy: Policy) -> list[Plan]:
        """The plan of each shard; the largest shards begin first."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._count, get_context("forkserver"), _prepare)
        first = sorted(range(len(shards)), key=lambda at: -size_of(shards[at]))
        try:
            jobs = {at: self._pool.submit(solve_whole, shards[at], policy) for at in first}
            return [jobs[at].result() for at in range(len(shards))]
        except BrokenProcessPool:
            logger.warning("A worker of the solver has died; this turn is decided without workers.")
            self.close()
            return [solve_whole(shard, policy) for shard in shards]

    def close(self) -> None:
        """Stop the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def decide_of(snapshot: Snapshot) -> Decide | None:
    """Where the shards of a snapshot are decided; None: here."""
    if settings.SOLVER_WORKERS < 2 or size_of(snapshot) < SPLIT_FROM:
        return None
    return _workers(settings.SOLVER_WORKERS).decide


@cache
def _workers(count: int) -> ShardWorkers:
    return ShardWorkers(count)


def _prepare() -> None:
    """Prepare a worker: no garbage collector, and an end with its leader, even after kill -9."""
    gc.disable()
    threading.Thread(target=_end_with_leader, daemon=True).start()


def _end_with_leader() -> None:
    leader = parent_process()
    if leader is not None:
        connection.wait([leader.sentinel])
        os._exit(0)
