"""Workers decide shards with the same bytes, and one that is killed or stopped costs only time."""

import os
import signal
import threading
from functools import partial
from socket import SO_SNDTIMEO, SOL_SOCKET, socket
from struct import pack

import pytest

from allocation.services.shards.processes import ShardWorkers
from solver import Policy, Snapshot, encode
from solver import solve as solve_any
from tests.bench.solver.crowded import one_more, site_of, the_next

pytestmark = pytest.mark.turn

solve = partial(solve_any, split_from=0)
POLICY = Policy(1)


@pytest.fixture(scope="module")
def sites() -> tuple[Snapshot, Snapshot]:
    """One shard of them is larger than what a socket holds."""
    site = site_of(64, 60, 4, 0.5, split=True)
    settled = the_next(site, solve(site, POLICY))
    return site, one_more(settled, 4, is_first=True, split=True)


def test_workers_return_the_same_bytes_and_one_that_died_costs_only_time(
    sites: tuple[Snapshot, Snapshot],
) -> None:
    workers = ShardWorkers(2)
    try:
        for each in sites:
            assert encode(solve(each, POLICY, workers.decide)) == encode(solve(each, POLICY))
        first, _ = workers.workers
        first.process.kill()
        assert encode(solve(sites[0], POLICY, workers.decide)) == encode(solve(sites[0], POLICY))
        assert (first.process.returncode, workers.workers) == (-signal.SIGKILL, [])
        assert encode(solve(sites[1], POLICY, workers.decide)) == encode(solve(sites[1], POLICY))
        assert len(workers.workers) == 2
    finally:
        workers.close()


def test_a_stopped_worker_is_given_up(sites: tuple[Snapshot, Snapshot]) -> None:
    workers = ShardWorkers(2)
    try:
        # The limit gets short once they have started: on a busy machine a start takes seconds.
        solve(sites[0], POLICY, workers.decide)
        workers.most_seconds = 1
        stopped = list(workers.workers)
        assert len(stopped) == 2
        for worker in stopped:
            with socket(fileno=os.dup(worker.connection.fileno())) as line:
                line.setsockopt(SOL_SOCKET, SO_SNDTIMEO, pack("@ll", 1, 0))
            os.kill(worker.process.pid, signal.SIGSTOP)
        assert encode(solve(sites[0], POLICY, workers.decide)) == encode(solve(sites[0], POLICY))
        assert workers.workers == []
        assert {worker.process.returncode for worker in stopped} == {-signal.SIGKILL}
    finally:
        workers.close()


def test_a_worker_killed_at_any_moment_is_noticed(sites: tuple[Snapshot, Snapshot]) -> None:
    expected = encode(solve(sites[0], POLICY))
    for milliseconds in (0, 20):
        workers = ShardWorkers(2)
        solve(sites[0], POLICY, workers.decide)
        killers = [threading.Timer(milliseconds / 1000, worker.process.kill) for worker in workers.workers]
        for killer in killers:
            killer.start()
        try:
            assert encode(solve(sites[0], POLICY, workers.decide)) == expected
        finally:
            for killer in killers:
                killer.join(10)
            workers.close()
