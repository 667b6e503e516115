"""The long-lived reader of every node's report stream, as one member of a consumer group."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import redis
from django.db import OperationalError, close_old_connections

from allocation import wire
from allocation.models import Node
from allocation.services.fleet import node_flooded
from allocation.services.leases import LeaseWatch, beats_of_leased
from allocation.services.links import agents_redis, links_ensure
from allocation.services.policies import node_policy
from allocation.services.publish import republish_all
from allocation.services.replace import node_replace
from allocation.services.reports import message_apply
from allocation.services.silence import SilenceWatch, signs_read, silence_mark
from allocation.services.tallies import tally
from allocation.services.throttle import Throttle

logger = logging.getLogger(__name__)

GROUP = "portal"
BATCH = 64
BLOCK_MS = 1000
# What a killed reader had taken and not finished is taken over after this long.
TAKEN_OVER_MS = 5000
PAUSE_SECONDS = 1.0


class Reader:
    """Takes messages, applies each, and only then acknowledges it."""

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
        self._watch = LeaseWatch()
        self._silence = SilenceWatch()
        self._watched = self._listened = steady()
        self._throttle = Throttle()
        self._stopped = threading.Event()
        self._known: set[str] = set()
        self._took_over = 0.0

    def stop(self) -> None:
        """Ends `run` after the batch at hand."""
        self._stopped.set()

    def run(self) -> None:
        """Reads until stopped. A store that is down is waited for, and nothing is lost."""
        while not self._stopped.is_set():
            try:
                self.turn()
            except (redis.RedisError, OperationalError) as error:
                logger.warning("Reports wait: %s", error)
                self._known.clear()
                # What could not be read is nobody's silence.
                self._silence = SilenceWatch()
                close_old_connections()
                self._stopped.wait(PAUSE_SECONDS)

    def turn(self, block_ms: int = BLOCK_MS) -> int:
        """Applies one batch; returns how many messages it was."""
        streams = self._streams()
        if not streams:
            links_ensure()
            self._stopped.wait(PAUSE_SECONDS)
            return 0
        self._replace_lost()
        link: Any = agents_redis()
        done = 0
        if time.monotonic() - self._took_over > TAKEN_OVER_MS / 1000:
            links_ensure()
            done = sum(self._take_over(link, stream) for stream in streams)
            self._took_over = time.monotonic()
        heard = [s for s in streams if self._throttle.may_speak(_node_of(s), self._steady())]
        if not heard:
            self._stopped.wait(block_ms / 1000)
            return done
        answer = link.xreadgroup(
            GROUP, self._name, dict.fromkeys(heard, ">"), count=BATCH, block=block_ms
        )
        for stream, entries in _pairs(answer):
            done += self._apply(link, stream, entries)
        self._mark_silent()
        return done

    def _replace_lost(self) -> None:
        """Once a second: what was held on lease by nodes that are silent begins anew elsewhere."""
        now = self._steady()
        if now - self._watched < 1:
            return
        self._watched = now
        for node_id, seq in self._watch.silent(beats_of_leased(), now).items():
            node_replace(node_id=node_id, seq=seq, now=self._clock())

    def _mark_silent(self) -> None:
        """Once a second, of what was read: who does not answer gets nothing new."""
        now = self._steady()
        if now - self._listened >= 1:
            self._listened = now
            silence_mark(self._silence.turn(signs_read(), now, node_policy()), self._clock())

    def _streams(self) -> list[str]:
        nodes = Node.objects.filter(link_digest__isnull=False).values_list("name", flat=True)
        streams = [wire.report_stream(name) for name in nodes]
        fresh = [stream for stream in streams if stream not in self._known]
        if fresh:
            links_ensure()
        without = [stream for stream in fresh if not _has_group(stream)]
        if without:
            # A stream without our group is a server that has lost its data, or a new node: either
            # way agents have to be told again. Before the group is made, so that a reader that
            # is killed in between leaves the work to be seen by the next.
            republish_all()
        for stream in without:
            _group_make(stream)
        self._known.update(fresh)
        return streams

    def _take_over(self, link: Any, stream: str) -> int:  # noqa: ANN401 (redis has no precise type here)
        _, entries, *_ = link.xautoclaim(
            stream, GROUP, self._name, min_idle_time=TAKEN_OVER_MS, count=BATCH
        )
        return self._apply(link, stream.encode(), entries)

    def _apply(self, link: Any, stream: bytes, entries: list[Any]) -> int:  # noqa: ANN401
        node_name = _node_of(stream.decode())
        for identifier, data in entries:
            try:
                envelope = wire.Envelope.from_fields(data or {})
            except wire.WireError as error:
                logger.warning("A message of %s can't be read: %s", node_name, error)
                tally("messages_unreadable")
            else:
                message_apply(node_name=node_name, envelope=envelope, now=self._clock())
            link.xack(stream, GROUP, identifier)
        if self._throttle.said(node_name, len(entries), self._steady()):
            link.xtrim(stream, maxlen=wire.REPORT_STREAM_LENGTH)
            node_flooded(
                node_name=node_name,
                lock_out=self._throttle.floods(node_name),
                now=self._clock(),
            )
        return len(entries)


def _node_of(stream: str) -> str:
    return stream.split(":")[1]


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


def _pairs(answer: Any) -> list[tuple[bytes, list[Any]]]:  # noqa: ANN401
    """The answer of XREADGROUP in either protocol version, as pairs of stream and entries."""
    if not answer:
        return []
    if isinstance(answer, dict):
        return [(stream, entries[0]) for stream, entries in answer.items()]
    return [(stream, entries) for stream, entries in answer]
