"""The agent's loop: follow the newest document, end things on time, say what is true."""

import contextlib
import dataclasses
import logging
import queue
import time
from collections.abc import Callable, Iterable

from allocation import wire
from allocation.agent import link as links
from allocation.agent import reconcile, reports
from allocation.agent.apply import Applier, Outcome
from allocation.agent.bookings import Bookings
from allocation.agent.follow import Follower, Keys
from allocation.agent.gpu import GpuError, GpuPort
from allocation.agent.handover import Handover
from allocation.agent.parts import parts_of
from allocation.agent.store import Store, StoreError
from allocation.agent.voice import Sender, Voice

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 5.0
HEARTBEAT_EVERY_S = 5.0
TELEMETRY_EVERY_S = 10.0
_PROCESS_POLL_S = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """`wall` gives Unix seconds, for what people agreed on; `steady` never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts of one node. `inventory` reads it anew."""

    keys: Keys
    port: GpuPort
    store: Store
    handover: Handover
    bookings: Bookings
    inventory: Callable[[], wire.Inventory]


class Stop:
    """Put into the inbox to end the loop."""


class Agent:
    """Only `inbox` may be touched from other threads or signal handlers."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        self.inbox: queue.SimpleQueue[links.Arrival | Stop] = queue.SimpleQueue()
        self._node = node
        self._store = node.store
        self._clock = clock or Clock()
        self._follower = Follower(node.keys, node.store)
        self._voice = Voice(node.keys, node.store, self._clock.steady())
        self._applier = Applier(
            port=node.port,
            handover=node.handover,
            records=self,
            clock=self._clock.wall,
            monotonic=self._clock.steady,
        )
        self._gpus = tuple(gpu.uuid for gpu in node.inventory().gpus)
        self._unsaved: str | None = None
        with contextlib.suppress(StoreError):
            # The numbers of this life are in hand before the first is said, should it be short.
            self._store.save()
        self._untold: str | None = None
        self._outcomes: list[Outcome] = []
        start = self._clock.steady()
        self._due = {"reconcile": start, "heartbeat": start, "telemetry": start}

    def run(self, sender: Sender) -> None:
        """Until a Stop arrives. What runs on the GPUs stays as it is."""
        while True:
            self.turn(sender)
            try:
                arrivals = [self.inbox.get(timeout=self.pause())]
            except queue.Empty:
                continue
            while not self.inbox.empty():
                arrivals.append(self.inbox.get())
            for arrival in arrivals:
                if isinstance(arrival, Stop):
                    return
                self.arrived(arrival, sender)

    def arrived(self, arrival: links.Arrival, sender: Sender) -> None:
        match arrival:
            case links.Document(raw):
                self._document(raw)
            case links.Connected():
                self._voice.again()
                self._take_inventory(sender)
                self._due["reconcile"] = self._clock.steady()
            case links.Delivered(seq):
                self._voice.delivered(seq)

    def _document(self, raw: bytes) -> None:
        before = self._store.desired
        if self._follower.read(raw):
            self._due["reconcile"] = self._clock.steady()
        if self._store.desired is not before:
            self._applier.retry_all()

    def _take_inventory(self, sender: Sender) -> None:
        try:
            inventory = self._node.inventory()
        except GpuError as error:
            # The old list still serves: bookings must end on time whatever the driver says.
            log.warning("no inventory: %s", error)
            return
        self._gpus = tuple(gpu.uuid for gpu in inventory.gpus)
        self._voice.say(sender, "inventory", inventory)

    def turn(self, sender: Sender) -> None:
        """Does whatever is due now."""
        now = self._clock.steady()
        if now >= self._due["reconcile"]:
            self._due["reconcile"] = now + RECONCILE_EVERY_S
            self._reconcile()
            troubles = (self._follower.trouble, self._unsaved, self._untold)
            self._voice.report(sender, self._outcomes, troubles, now)
        if now >= self._due["heartbeat"]:
            self._due["heartbeat"] = now + HEARTBEAT_EVERY_S
            self._voice.heartbeat(sender, self._clock.wall())
        if now >= self._due["telemetry"]:
            self._due["telemetry"] = now + TELEMETRY_EVERY_S
            self._telemetry(sender)

    def pause(self) -> float:
        """Seconds until something is due by the steady clock, or a start or end by the wall's."""
        steady = self._clock.steady()
        sooner = [self._due["reconcile"]]
        edge = self._next_edge()
        if edge is not None:
            sooner.append(steady + edge - self._clock.wall())
        if self._applier.waits_for_processes:
            sooner.append(steady + _PROCESS_POLL_S)
        self._due["reconcile"] = min(sooner)
        return max(0.0, min(self._due.values()) - steady)

    def _next_edge(self) -> int | None:
        desired = self._store.desired
        if desired is None:
            return None
        now = self._clock.wall()
        edges = (e for g in desired.gpus for a in g.allocations for e in (a.starts, a.ends))
        return min((edge for edge in edges if edge > now), default=None)

    # Making them true.

    def _reconcile(self) -> None:
        now = self._clock.wall()
        wishes = self._wishes(now)
        named = {wish.gpu for wish in wishes}
        wishes += [reconcile.Wish(gpu, None, ()) for gpu in self._gpus if gpu not in named]
        # What is about to end goes from the files before its device goes.
        self._tell_programs(now)
        self._outcomes = [self._applier.turn(wish) for wish in wishes]
        for outcome in self._outcomes:
            for name, state in outcome.states.items():
                ready = state.state == "ready"
                since = self._node.handover.given.get(name) if ready else None
                self._voice.entered(name, state.state, since.since if since else int(now))
        self._tell_programs(now)

    def _tell_programs(self, now: float) -> None:
        given = self._node.handover.devices()
        self._untold = self._node.bookings.sync(parts_of(self._store.desired, given, now))

    def _wishes(self, now: float) -> list[reconcile.Wish]:
        desired = self._store.desired
        if desired is None:
            return []
        self._store.held = reconcile.remember(desired, self._store.held, now)
        try:
            self._store.save()
        except StoreError as error:
            # Without a record nothing new may begin, and no newer document be followed, which a
            # restart would forget; what runs goes on, and ends on time.
            self._unsaved = str(error)
            log.error("%s", self._unsaved)  # noqa: TRY400 - the message says it all
            if self._store.desired is None:
                return []
            known = reconcile.wishes(self._store.desired, self._store.held, now)
            return [_nothing_new(wish) for wish in known]
        self._unsaved = None
        self._follower.settle()
        return reconcile.wishes(desired, self._store.held, now)

    def given(self, allocations: Iterable[str]) -> None:
        """See apply.Records."""
        for name in allocations:
            self._store.held[name] = dataclasses.replace(self._store.held[name], given=True)
        self._store.save()

    def emptied(self, allocations: Iterable[str]) -> None:
        """See apply.Records."""
        for name in allocations:
            self._store.held[name] = dataclasses.replace(self._store.held[name], emptied=True)
        self._store.save()

    def _telemetry(self, sender: Sender) -> None:
        owners = reports.owners_of(self._store.held)
        samples = reports.samples_take(self._node.port, self._gpus, owners)
        sent_at = int(self._clock.wall())
        self._voice.say(sender, "telemetry", wire.Telemetry(sent_at=sent_at, samples=samples))


def _nothing_new(wish: reconcile.Wish) -> reconcile.Wish:
    tasks = tuple(task for task in wish.tasks if task.ending or task.given)
    return reconcile.Wish(wish.gpu, wish.mode, tasks)
