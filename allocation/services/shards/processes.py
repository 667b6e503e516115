"""Worker processes of the solver's leader, which decide the shards of a large site.

A shard is sent as its part of the snapshot and comes back as its part of the plan. Workers keep
nothing, so one that dies or stands still costs only time: the leader decides its shards itself.
The standard library's pool is not used, because it waits for ever when a worker is killed while
a large shard is sent to it (gh-94777, in Python 3.11).
"""

import gc
import logging
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from socket import SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, socketpair
from struct import pack

from solver import Plan, Policy, Snapshot
from solver.cycle.solve import solve as solve_whole
from solver.sharding.shards import size_of

logger = logging.getLogger(__name__)

# A worker that takes longer for a shard is taken for stopped. A first cycle takes a minute.
MOST_SECONDS = 300.0


@dataclass(eq=False, slots=True)
class Worker:
    """A process that decides one shard at a time, and ends when its connection does."""

    process: "subprocess.Popen[bytes]"
    connection: Connection
    shard: int = -1

    @staticmethod
    def start(most_seconds: float) -> "Worker":
        """It ends with the leader, which alone has the other end, also after kill -9."""
        limit = pack("@ll", int(most_seconds), int(most_seconds % 1 * 1e6))
        mine, theirs = socketpair()
        # Not a time-out of Python's, which would make the descriptor one that never waits.
        for option in (SO_SNDTIMEO, SO_RCVTIMEO):
            mine.setsockopt(SOL_SOCKET, option, limit)
        with theirs:
            number = theirs.fileno()
            command = [
                sys.executable,
                "-m",
                "allocation.services.shards.processes",
                str(number),
            ]
            process = subprocess.Popen(command, pass_fds=[number])  # noqa: S603 (ourselves, no shell)
        return Worker(process, Connection(mine.detach()))

    def close(self) -> None:
        """Kill the process, which has nothing to lose."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


class ShardWorkers:
    """A number of processes that decide shards."""

    def __init__(self, count: int, most_seconds: float = MOST_SECONDS) -> None:
        """They start with the first shards."""
        self._count, self.most_seconds = count, most_seconds
        self.workers: list[Worker] = []

    def decide(self, shards: Sequence[Snapshot], policy: Policy) -> list[Plan]:
        """The plan of each shard; the largest shards begin first."""
        missing = self._count - len(self.workers)
        self.workers += [Worker.start(self.most_seconds) for _ in range(missing)]
        plans: dict[int, Plan] = {}
        waiting = deque(sorted(range(len(shards)), key=lambda at: -size_of(shards[at])))
        busy: dict[Connection, Worker] = {}
        try:
            for worker in self.workers:
                self._give(worker, waiting, busy, shards, policy)
            while busy:
                ready = wait(list(busy), self.most_seconds)
                if not ready:
                    raise TimeoutError
                for worker in [busy[each] for each in list(busy) if each in ready]:
                    plans[worker.shard] = busy.pop(worker.connection).connection.recv()
                    self._give(worker, waiting, busy, shards, policy)
        except (OSError, EOFError) as error:
            logger.warning(
                "A worker of the solver has died or stands still (%s): this turn is decided without workers.",
                type(error).__name__,
            )
            self.close()
        return [plans.get(at) or solve_whole(shard, policy) for at, shard in enumerate(shards)]

    @staticmethod
    def _give(
        worker: Worker,
        waiting: deque[int],
        busy: dict[Connection, Worker],
        shards: Sequence[Snapshot],
        policy: Policy,
    ) -> None:
        """Send the next shard; a worker without one reads, so that no send waits for a send."""
        if waiting:
            worker.shard = waiting.popleft()
            worker.connection.send((shards[worker.shard], policy))
            busy[worker.connection] = worker

    def close(self) -> None:
        """Stop the processes."""
        for worker in self.workers:
            worker.close()
        self.workers = []


def answer(leader: Connection) -> None:
    """Decide what the leader sends until it closes its end, or dies."""
    gc.disable()  # As in a turn: a decision makes millions of objects and no rings of them.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            shard, policy = leader.recv()
            leader.send(solve_whole(shard, policy))


if __name__ == "__main__":
    answer(Connection(int(sys.argv[1])))
