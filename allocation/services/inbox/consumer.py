"""The long-lived reader of every node's report stream, as one member of a consumer group."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import redis
from django.db import OperationalError, close_old_connections

from allocation import wire
from allocation.models import Node
from allocation.rules.nodes.leases import LeaseWatch, LongLeases
from allocation.rules.nodes.unreachable import AnswerWatch
from allocation.services.inbox.account_guard import AccountGuard
from allocation.services.inbox.batch import Said, messages_apply
from allocation.services.inbox.report_streams import (
    GROUP,
    Entry,
    node_of,
    stream_trim,
    streams_read,
)
from allocation.services.inbox.throttle import Throttle
from allocation.services.nodes.fleet import node_flooded
from allocation.services.nodes.leases import leased_heartbeats, long_leases, long_leases_end
from allocation.services.nodes.node_policies import node_policy
from allocation.services.nodes.redis_accounts import agent_accounts_ensure, agents_redis
from allocation.services.nodes.unreachable import signs_read, unreachable_mark
from allocation.services.publish.publish import republish_all
from allocation.services.record.counters import counter_add
from allocation.services.record.liveness import program_seen, reader_lag_seen
from allocation.services.runs.lost_runs import node_bookings_requeue

logger = logging.getLogger(__name__)

# Of one node at a time, and of all nodes before they are acknowledged.
BATCH = 64
AT_ONCE = 512
BLOCK_MS = 1000
# Words that come one by one from many nodes are waited for so long, to be read together.
GATHER_SECONDS = 0.04
LIST_EVERY_SECONDS = 1.0
# What a killed reader had taken and not finished is taken over after this long.
TAKEN_OVER_MS = 5000
PAUSE_SECONDS = 1.0


class Reader:
    """Takes messages, applies them, and only then acknowledges them."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], datetime],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is this member's, unique among the readers that run; `steady` never jumps."""
        self._name = name
        self._clock = clock
        self._steady = steady
        self._watch: LeaseWatch[UUID] = LeaseWatch()
        self._long: LongLeases[UUID] = LongLeases()
        self._silence: AnswerWatch[UUID] = AnswerWatch()
        self._watched = self._listened = steady()
        self._throttle = Throttle()
        self._stopped = threading.Event()
        self._known: set[str] = set()
        self._streams: list[str] = []
        self._listed = 0.0
        self._took_over = 0.0
        self._first = 0
        self._lag = 0.0

    def stop(self) -> None:
        """Ends `run` after the batch at hand."""
        self._stopped.set()

    def run(self) -> None:
        """Reads until stopped. A store that is down is waited for, and nothing is lost."""
        guard = AccountGuard(self._clock, self._steady)
        watching = threading.Thread(target=guard.run, args=(self._stopped,), name="link-guard")
        watching.start()
        try:
            self._read_always()
        finally:
            self._stopped.set()
            watching.join()

    def _read_always(self) -> None:
        while not self._stopped.is_set():
            try:
                self.turn()
                self._stopped.wait(GATHER_SECONDS)
            except (redis.RedisError, OperationalError) as error:
                logger.warning("Reports wait: %s", error)
                self._known.clear()
                # What could not be read is nobody's silence.
                self._silence = AnswerWatch()
                close_old_connections()
                self._stopped.wait(PAUSE_SECONDS)

    def turn(self, block_ms: int = BLOCK_MS) -> int:
        """Applies one batch; returns how many messages it was."""
        streams = self._list()
        if not streams:
            agent_accounts_ensure()
            self._stopped.wait(PAUSE_SECONDS)
            return 0
        self._replace_lost()
        done = 0
        if time.monotonic() - self._took_over > TAKEN_OVER_MS / 1000:
            agent_accounts_ensure()
            done = self._take(streams, TAKEN_OVER_MS)
            self._took_over = time.monotonic()
        heard = [s for s in streams if self._throttle.may_send(node_of(s), self._steady())]
        if not heard:
            self._stopped.wait(block_ms / 1000)
            return done
        # Another node is first each time, for when there is more than is read at once.
        self._first = (self._first + 1) % len(heard)
        done += self._take(heard[self._first :] + heard[: self._first])
        if not done:
            done = self._apply(self._awaited(heard, block_ms))
        self._mark_silent()
        return done

    def _take(self, streams: Sequence[str], idle_ms: int | None = None) -> int:
        entries, large = streams_read(self._name, streams, BATCH, idle_ms)
        for each in large:
            self._throttle.fill(each.node, self._steady())
            self._flooded(each.stream, keep=0, lock_out=each.is_far_over)
        return self._apply(entries)

    def _awaited(self, heard: Sequence[str], block_ms: int) -> list[Entry]:
        """One entry of each stream that gets one, as soon as any does."""
        link: Any = agents_redis()
        wanted = dict.fromkeys(heard, ">")
        return _entries(link.xreadgroup(GROUP, self._name, wanted, count=1, block=block_ms))

    def _replace_lost(self) -> None:
        """Once a second: what was held on lease by nodes that are silent begins anew elsewhere."""
        now = self._steady()
        if now - self._watched < 1:
            return
        self._watched = now
        # Leases that were granted for a planned outage may run on through silence.
        long = long_leases()
        over = self._long.over(long, now)
        long_leases_end(over)
        for node_id, seq in self._watch.silent(leased_heartbeats(), now).items():
            if node_id not in long or node_id in over:
                node_bookings_requeue(node_id=node_id, seq=seq, now=self._clock())

    def _mark_silent(self) -> None:
        """Once a second, of what was read: who does not answer gets nothing new."""
        now = self._steady()
        if now - self._listened >= 1:
            self._listened = now
            self._be_seen()
            unreachable_mark(self._silence.turn(signs_read(), now, node_policy()), self._clock())

    def _be_seen(self) -> None:
        """Says that it works, and how late it was at most since it said so last."""
        program_seen("reader", self._clock())
        reader_lag_seen(self._lag)
        self._lag = 0.0

    def _list(self) -> list[str]:
        """The streams of all nodes that are let in, looked up once a second."""
        now = self._steady()
        if self._known and now - self._listed < LIST_EVERY_SECONDS:
            return self._streams
        nodes = Node.objects.filter(link_digest__isnull=False).values_list("name", flat=True)
        streams = [wire.report_stream(name) for name in nodes]
        fresh = [stream for stream in streams if stream not in self._known]
        if fresh:
            agent_accounts_ensure()
        without = [stream for stream in fresh if not _has_group(stream)]
        if without:
            # A stream without our group is a server that has lost its data, or a new node: either
            # way agents have to be told again. Before the group is made, so that a reader that
            # is killed in between leaves the work to be seen by the next.
            republish_all()
        for stream in without:
            _group_make(stream)
        self._known.update(fresh)
        self._streams, self._listed = streams, now
        return streams

    def _apply(self, entries: list[Entry]) -> int:
        link: Any = agents_redis()
        for first in range(0, len(entries), AT_ONCE):
            batch = entries[first : first + AT_ONCE]
            at = server_ms(link)
            readable = [said for entry in batch if (said := _said(entry, at)) is not None]
            messages_apply(readable, self._clock())
            self._lag = max([self._lag, *(said.waited.total_seconds() for said in readable)])
            with link.pipeline(transaction=False) as pipe:
                for entry in batch:
                    pipe.xack(entry.stream, GROUP, entry.identifier)
                    pipe.xdel(entry.stream, entry.identifier)
                pipe.execute()
        sizes: Counter[str] = Counter()
        for entry in entries:
            sizes[entry.stream] += entry.size
        for stream, count in Counter(entry.stream for entry in entries).items():
            if self._throttle.said(node_of(stream), count, sizes[stream], self._steady()):
                self._flooded(stream)
        return len(entries)

    def _flooded(
        self, stream: str, keep: int = wire.REPORT_STREAM_LENGTH, *, lock_out: bool = False
    ) -> None:
        """Drops what waits but for the newest, and counts it; who goes on is locked out."""
        node = node_of(stream)
        lock_out = lock_out or self._throttle.floods(node)
        node_flooded(node_name=node, lock_out=lock_out, now=self._clock())
        stream_trim(stream, 0 if lock_out else keep)


def _has_group(stream: str) -> bool:
    link: Any = agents_redis()
    try:
        return any(group["name"] == GROUP.encode() for group in link.xinfo_groups(stream))
    except redis.ResponseError as error:
        if "no such key" not in str(error):
            raise
        return False


def _group_make(stream: str) -> None:
    try:
        agents_redis().xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        # Another reader was quicker.
        if "BUSYGROUP" not in str(error):
            raise


def server_ms(link: Any) -> int:  # noqa: ANN401 (redis has no types)
    """The clock of the server that dates the entries, in milliseconds since 1970."""
    seconds, microseconds = link.time()
    return int(seconds * 1000 + microseconds // 1000)


def _said(entry: Entry, at: int) -> Said | None:
    node = node_of(entry.stream)
    try:
        envelope = wire.Envelope.from_fields(entry.fields)
        waited = timedelta(milliseconds=max(0, at - entry.added_ms))
        return Said(node, envelope, waited)
    except wire.WireError as error:
        logger.warning("A message of %s can't be read: %s", node, error)
        counter_add("messages_unreadable")
        return None


def _entries(answer: Any) -> list[Entry]:  # noqa: ANN401
    """The answer of XREADGROUP in either protocol version."""
    if isinstance(answer, dict):
        answer = [(stream, entries[0]) for stream, entries in answer.items()]
    return [
        Entry(stream.decode(), identifier, fields or {})
        for stream, entries in answer or ()
        for identifier, fields in entries
    ]
