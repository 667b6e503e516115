"""The leader's side of the queue of shards, which workers on any machine decide.

Every shard is sent, and the first to claim it decides it: a worker, or the leader, which is one
more worker and begins with the smallest. So a queue without workers costs the sending alone, and
nothing is ever waited for that nobody works at. A worker renews its claim; one that is killed or
stopped loses it, and the leader takes the shard over. A worker that renews and does not answer is
given up at a deadline. What can't be read, or was made by other code, is decided by the leader. As
a plan follows from its shard alone, it does not matter whose answer is used, and the first is.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from allocation.services.shards.letters import CODE, BadLetter, plan_of, sealed, shard_of
from allocation.services.shards.task import (
    QUEUE,
    SOCKET_SECONDS,
    TASK,
    key_of,
    shards_app,
)
from solver import Plan, Policy, Snapshot
from solver.cycle.solve import solve as solve_whole
from solver.sharding.shards import size_of
from tenants.platform.stores.redis_servers import redis_client

logger = logging.getLogger(__name__)

# Redis holds messages of the whole portal in 512 MB. What does not fit is decided by the leader.
MOST_BYTES = 64 << 20
# How long an answer is awaited before claims are looked at again.
_LOOK_SECONDS = 1
_LOST = (RedisError, OperationalError, OSError)


@dataclass(slots=True)
class _Job:
    """The shards of one turn."""

    shards: Sequence[Snapshot]
    policy: Policy
    name: str
    digests: dict[int, str]
    """Of those that were sent."""
    plans: dict[int, Plan]

    def open(self) -> list[int]:
        """The shards without a plan, the smallest first."""
        numbers = (at for at in range(len(self.shards)) if at not in self.plans)
        return sorted(numbers, key=lambda at: (size_of(self.shards[at]), at))


class ShardQueue:
    """A queue at Redis, whose workers decide shards."""

    def __init__(self, url: str, most_seconds: int, most_bytes: int = MOST_BYTES) -> None:
        """Connects with the first shards. A shard is awaited for `most_seconds` at most."""
        self._most_seconds, self._most_bytes = most_seconds, most_bytes
        self._app: Celery = shards_app(url, socket_timeout=SOCKET_SECONDS)
        self._server = redis_client(url, socket_timeout=SOCKET_SECONDS)
        self.counts: Counter[str] = Counter()
        """What became of the shards, until somebody takes it."""

    def decide(self, shards: Sequence[Snapshot], policy: Policy) -> list[Plan]:
        """The plan of each shard, in their order."""
        job = _Job(shards, policy, uuid4().hex, {}, {})
        try:
            self._send(job)
            self._await(job)
            self._remove(job)
        except _LOST as error:
            self.counts["lost"] += 1
            logger.warning(
                "Redis did not answer (%s): what no worker has decided is decided here.",
                type(error).__name__,
            )
        for at in job.open():
            self._decide_here(job, at)
        return [job.plans[at] for at in range(len(shards))]

    def _send(self, job: _Job) -> None:
        """Sends the largest first. One stays: the leader would have nothing to do."""
        total = 0
        for at in job.open()[:0:-1]:
            letter = sealed(job.shards[at], job.policy)
            total += len(letter.data)
            if total > self._most_bytes:
                self.counts["too_large"] += 1
                total -= len(letter.data)
                continue
            self._server.set(key_of(job.name, "input", at), letter.data, ex=self._kept_seconds)
            message = {
                "job": job.name,
                "shard": at,
                "digest": letter.digest,
                "code": CODE,
                "seconds": self._kept_seconds,
            }
            self._app.send_task(
                TASK,
                kwargs=message,
                expires=self._most_seconds,
                time_limit=self._most_seconds,
                retry=False,
            )
            job.digests[at] = letter.digest
        self.counts["sent"] += len(job.digests)

    def _await(self, job: _Job) -> None:
        """Reads answers, and decides what nobody works at, until all is decided or too late."""
        until = time.monotonic() + self._most_seconds
        while job.open():
            while (answer := self._next(job, 0)) is not None:
                self._read(job, answer)
            mine = next((at for at in job.open() if self._claim(job, at)), None)
            if mine is not None:
                self._decide_here(job, mine)
            elif not job.open():
                return
            elif time.monotonic() > until:
                self.counts["too_late"] += len(job.open())
                logger.warning("Workers took too long for %d shards.", len(job.open()))
                return
            elif (answer := self._next(job, _LOOK_SECONDS)) is not None:
                self._read(job, answer)

    def _next(self, job: _Job, seconds: int) -> bytes | None:
        """The next answer, for which it waits so long."""
        key = key_of(job.name, "answers")
        if not seconds:
            return cast("bytes | None", self._server.lpop(key))
        found = self._server.blpop([key], seconds)
        return None if found is None else cast("bytes", found[1])

    def _claim(self, job: _Job, at: int) -> bool:
        """Claims a shard for the leader; returns whether no worker has it."""
        if at not in job.digests:
            return True
        key = key_of(job.name, "claim", at)
        return bool(self._server.set(key, "leader", nx=True, ex=self._kept_seconds))

    def _read(self, job: _Job, answer: bytes) -> None:
        """Takes the plan of an answer. A second answer to a shard is not read."""
        try:
            at = shard_of(answer)
            if at in job.plans or at not in job.digests:
                return
            job.plans[at] = plan_of(answer, job.digests[at])
        except BadLetter as error:
            self.counts["unusable"] += 1
            logger.warning("The answer of a shard worker can't be used: it is %s.", error)
            return
        self.counts["answered"] += 1

    def _decide_here(self, job: _Job, at: int) -> None:
        job.plans[at] = solve_whole(job.shards[at], job.policy)
        self.counts["here"] += 1

    def _remove(self, job: _Job) -> None:
        """Removes what is over. What a late worker writes expires."""
        keys = [key_of(job.name, kind, at) for kind in ("input", "claim") for at in job.digests]
        self._server.unlink(key_of(job.name, "answers"), *keys)
        with self._app.connection_for_write() as broker:
            Queue(QUEUE, channel=broker.default_channel).purge()

    @property
    def _kept_seconds(self) -> int:
        return 2 * self._most_seconds
