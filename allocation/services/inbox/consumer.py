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

import wire
from allocation.rules.nodes.leases import LeaseWatch, LongLeases
from allocation.rules.nodes.unreachable import AnswerWatch
from allocation.services.inbox.account_guard import AccountGuard
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.inbox.heartbeats import signs_read, unreachable_mark
from allocation.services.inbox.report_streams import (
    GROUP,
    Entry,
    enrolled_names,
    node_of,
    stream_trim,
    streams_read,
)
from allocation.services.inbox.throttle import Throttle
from allocation.services.nodes.fleet import node_flooded, node_policy
from allocation.services.nodes.leases import leased_heartbeats, long_leases, long_leases_end
from allocation.services.nodes.redis_accounts import agent_accounts_ensure, agents_redis
from allocation.services.publish.publish import republish_all
from allocation.services.record.counters import counter_add
from allocation.services.record.liveness import SeenNow, reader_lag_seen
from allocation.services.runs.lost_runs import node_bookings_requeue
from tenants.platform.watchdog.pulses import pulse

logger = logging.getLogger(__name__)

# Messages of one node per read, and of all nodes per acknowledgement.
BATCH = 64
AT_ONCE = 512
BLOCK_MS = 1000
# Time to collect single messages of many nodes into one read.
GATHER_SECONDS = 0.04
LIST_EVERY_SECONDS = 1.0
# Messages that a killed reader left unfinished are taken over after this time.
TAKEN_OVER_MS = 5000
PAUSE_SECONDS = 1.0
# What sends pulses to the watchdog.
REPORTS = "reports"


class Reader:
    """Reads messages, applies them, and acknowledges them only then."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], datetime],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is unique among the running readers; `steady` never jumps."""
        self._name = name
        self._clock = clock
        self._steady = steady
        self._watch: LeaseWatch[UUID] = LeaseWatch()
        self._long: LongLeases[UUID] = LongLeases()
        self._answers: AnswerWatch[UUID] = AnswerWatch()
        self._watched = self._checked_answers = steady()
        self._throttle = Throttle()
        self._stopped = threading.Event()
        self._known: set[str] = set()
        # The run of the server whose documents are known to be complete.
        self._server = ""
        self._streams: list[str] = []
        self._listed = 0.0
        self._took_over = 0.0
        self._first = 0
        self._lag = 0.0
        self._seen = SeenNow("reader", steady)

    def stop(self) -> None:
        """Ends `run` after the current batch."""
        self._stopped.set()

    def run(self) -> None:
        """Reads until stopped. Waits while Redis or the database is down; nothing is lost."""
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
                pulse(REPORTS)
                self._stopped.wait(GATHER_SECONDS)
            except (redis.RedisError, OperationalError) as error:
                logger.warning("Reports wait: %s", error)
                self._known.clear()
                # Nodes are not unreachable because the reader could not read.
                self._answers = AnswerWatch()
                close_old_connections()
                self._stopped.wait(PAUSE_SECONDS)

    def turn(self, block_ms: int = BLOCK_MS) -> int:
        """Applies one batch; returns the number of messages.

        Waits at most `block_ms` for the first message; 0 does not wait. Valkey checks the limits
        of waiting clients ten times a second, so a wait of 1 ms can take 100.
        """
        streams = self._list()
        if not streams:
            agent_accounts_ensure()
            self._stopped.wait(PAUSE_SECONDS)
            return 0
        self._lost_runs_requeue()
        done = 0
        if time.monotonic() - self._took_over > TAKEN_OVER_MS / 1000:
            agent_accounts_ensure()
            done = self._take(streams, TAKEN_OVER_MS)
            self._took_over = time.monotonic()
        admitted = [s for s in streams if self._throttle.may_send(node_of(s), self._steady())]
        if not admitted:
            self._stopped.wait(block_ms / 1000)
            return done
        # The first node rotates, because one read may not take all streams.
        self._first = (self._first + 1) % len(admitted)
        done += self._take(admitted[self._first :] + admitted[: self._first])
        if not done and block_ms:
            done = self._apply(self._awaited(admitted, block_ms))
        self._unreachable_mark()
        return done

    def _take(self, streams: Sequence[str], idle_ms: int | None = None) -> int:
        entries, large = streams_read(self._name, streams, BATCH, idle_ms)
        for each in large:
            self._throttle.fill(each.node, self._steady())
            self._flooded(each.stream, keep=0, lock_out=each.is_far_over)
        return self._apply(entries)

    def _awaited(self, streams: Sequence[str], block_ms: int) -> list[Entry]:
        """Waits for new entries; at most one of each stream."""
        link: Any = agents_redis()
        wanted = dict.fromkeys(streams, ">")
        return _entries(link.xreadgroup(GROUP, self._name, wanted, count=1, block=block_ms))

    def _lost_runs_requeue(self) -> None:
        """Once a second, requeues work on leases whose nodes no longer answer."""
        now = self._steady()
        if now - self._watched < 1:
            return
        self._watched = now
        # Leases that were granted for a planned outage may outlast missing heartbeats.
        long = long_leases()
        over = self._long.over(long, now)
        long_leases_end(over)
        for node_id, seq in self._watch.expired(leased_heartbeats(), now).items():
            if node_id not in long or node_id in over:
                node_bookings_requeue(node_id=node_id, seq=seq, now=self._clock())

    def _unreachable_mark(self) -> None:
        """Once a second, marks nodes that do not answer; now and then, records the reader's own
        lag."""
        now = self._steady()
        if now - self._checked_answers < 1:
            return
        self._checked_answers = now
        if self._seen(self._clock()):
            reader_lag_seen(self._lag)
            self._lag = 0.0
        unreachable_mark(self._answers.turn(signs_read(), now, node_policy()), self._clock())

    def _list(self) -> list[str]:
        """The streams of all enrolled nodes, looked up once a second."""
        now = self._steady()
        if self._known and now - self._listed < LIST_EVERY_SECONDS:
            return self._streams
        streams = [wire.report_stream(name) for name in enrolled_names(self._clock())]
        fresh = [stream for stream in streams if stream not in self._known]
        if fresh:
            agent_accounts_ensure()
        without = [stream for stream in fresh if not _has_group(stream)]
        server = _server_run() if fresh else self._server
        if without or server != self._server:
            # A stream without our group means that the server has lost its data or the node is new,
            # and a server that started anew, or took the place of another, may lack the last of them:
            # documents are published again. The group is created afterwards, so that the next
            # reader repeats this if this one is killed in between.
            republish_all(self._clock())
        self._server = server
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
            readable = [each for entry in batch if (each := _message_of(entry, at)) is not None]
            messages_apply(readable, self._clock())
            self._lag = max([self._lag, *(each.waited.total_seconds() for each in readable)])
            with link.pipeline(transaction=False) as pipe:
                for entry in batch:
                    pipe.xack(entry.stream, GROUP, entry.identifier)
                    pipe.xdel(entry.stream, entry.identifier)
                pipe.execute()
        sizes: Counter[str] = Counter()
        for entry in entries:
            sizes[entry.stream] += entry.size
        for stream, count in Counter(entry.stream for entry in entries).items():
            if self._throttle.count(node_of(stream), count, sizes[stream], self._steady()):
                self._flooded(stream)
        return len(entries)

    def _flooded(self, stream: str, keep: int = wire.REPORT_STREAM_LENGTH, *, lock_out: bool = False) -> None:
        """Drops all but the newest entries and counts it; a repeated flood locks the agent out."""
        node = node_of(stream)
        lock_out = lock_out or self._throttle.floods(node)
        node_flooded(node_name=node, lock_out=lock_out, now=self._clock())
        stream_trim(stream, 0 if lock_out else keep)


def _server_run() -> str:
    link: Any = agents_redis()
    return str(link.info("server")["run_id"])


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
    """The clock of the server that timestamps the entries, in milliseconds since 1970."""
    seconds, microseconds = link.time()
    return int(seconds * 1000 + microseconds // 1000)


def _message_of(entry: Entry, at: int) -> StreamMessage | None:
    node = node_of(entry.stream)
    try:
        envelope = wire.Envelope.from_fields(entry.fields)
        waited = timedelta(milliseconds=max(0, at - entry.added_ms))
        return StreamMessage(node, envelope, waited)
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
