"""The agent's loop: follow the newest document, end things on time, say what is true."""

import dataclasses
import logging
import queue
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from allocation import wire
from allocation.agent import link as links
from allocation.agent import reconcile, reports
from allocation.agent.apply import Applier, Outcome
from allocation.agent.enrol import Identity
from allocation.agent.gpu import GpuError, GpuPort
from allocation.agent.handover import Handover
from allocation.agent.store import Store, StoreError

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 5.0
HEARTBEAT_EVERY_S = 5.0
TELEMETRY_EVERY_S = 10.0
REPORT_EVERY_S = 60.0
_PROCESS_POLL_S = 0.25


class Sender(Protocol):
    """The part of Link the loop needs."""

    def send(self, outgoing: links.Outgoing) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """`wall` gives Unix seconds, for what people agreed on; `steady` never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts of one node. `inventory` reads it anew."""

    identity: Identity
    port: GpuPort
    store: Store
    handover: Handover
    inventory: Callable[[], wire.Inventory]


class Stop:
    """Put into the inbox to end the loop."""


class Agent:
    """Only `inbox` may be touched from other threads or signal handlers."""

    def __init__(self, node: Node, clock: Clock | None = None) -> None:
        self.inbox: queue.SimpleQueue[links.Arrival | Stop] = queue.SimpleQueue()
        self._identity = node.identity
        self._node = node
        self._store = node.store
        self._clock = clock or Clock()
        self._applier = Applier(
            port=node.port,
            handover=node.handover,
            records=self,
            clock=self._clock.wall,
            monotonic=self._clock.steady,
        )
        self._gpus = tuple(gpu.uuid for gpu in node.inventory().gpus)
        self._refused: tuple[bytes, str] | None = None
        self._unsaved: str | None = None
        self._outcomes: list[Outcome] = []
        self._since: dict[str, tuple[str, int]] = {}
        self._said: wire.Report | None = None
        self._said_empty: dict[int, set[str]] = {}
        start = self._clock.steady()
        self._due = {"reconcile": start, "heartbeat": start, "telemetry": start}
        self._repeat_report = start

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
                self._said = None
                self._take_inventory(sender)
                self._due["reconcile"] = self._clock.steady()
            case links.Delivered(seq):
                self._delivered(seq)

    def _take_inventory(self, sender: Sender) -> None:
        try:
            inventory = self._node.inventory()
        except GpuError as error:
            # The old list still serves: bookings must end on time whatever the driver says.
            log.warning("no inventory: %s", error)
            return
        self._gpus = tuple(gpu.uuid for gpu in inventory.gpus)
        self._send(sender, "inventory", inventory)

    def turn(self, sender: Sender) -> None:
        """Does whatever is due now."""
        now = self._clock.steady()
        if now >= self._due["reconcile"]:
            self._due["reconcile"] = now + RECONCILE_EVERY_S
            self._reconcile()
            self._report(sender)
        if now >= self._due["heartbeat"]:
            self._due["heartbeat"] = now + HEARTBEAT_EVERY_S
            self._send(sender, "heartbeat", self._heartbeat())
        if now >= self._due["telemetry"]:
            self._due["telemetry"] = now + TELEMETRY_EVERY_S
            self._send(sender, "telemetry", self._telemetry())

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

    # Following documents.

    def _document(self, raw: bytes) -> None:
        if self._refused is not None and raw == self._refused[0]:
            return
        why = self._judge(raw)
        if why is not None:
            log.error("%s", why)
            self._due["reconcile"] = self._clock.steady()
        self._refused = None if why is None else (raw, why)

    def _judge(self, raw: bytes) -> str | None:
        """Follows a document, or says why not."""
        try:
            envelope = wire.Envelope.from_json(raw)
            desired = wire.open_desired(envelope, self._identity.keys)
        except wire.WireError as error:
            return f"the desired state was refused: {error}"
        if desired.node != self._identity.node:
            return f"the desired state is for {desired.node}"
        verdict = self._store.judge(envelope, desired)
        if verdict == "new":
            self._store.accept(envelope, desired)
            self._applier.retry_all()
            self._due["reconcile"] = self._clock.steady()
        elif verdict != "same":
            ours = f"({self._store.epoch}, {self._store.generation})"
            return f"({desired.epoch}, {desired.generation}) is {verdict}, we follow {ours}"
        return None

    # Making them true.

    def _reconcile(self) -> None:
        now = self._clock.wall()
        wishes = self._wishes(now)
        named = {wish.gpu for wish in wishes}
        wishes += [reconcile.Wish(gpu, None, ()) for gpu in self._gpus if gpu not in named]
        self._outcomes = [self._applier.turn(wish) for wish in wishes]
        for outcome in self._outcomes:
            for name, state in outcome.states.items():
                self._note(name, state.state, now)

    def _wishes(self, now: float) -> list[reconcile.Wish]:
        desired = self._store.desired
        if desired is None:
            return []
        before = self._store.held
        self._store.held = reconcile.remember(desired, before, now)
        try:
            self._store.save()
        except StoreError as error:
            # Without a record nothing new may begin; what runs goes on, and ends on time.
            self._unsaved = str(error)
            log.error("%s", self._unsaved)  # noqa: TRY400 - the message says it all
            self._store.held = before
            return [_nothing_new(wish) for wish in reconcile.wishes(desired, before, now)]
        self._unsaved = None
        return reconcile.wishes(desired, self._store.held, now)

    def _note(self, name: str, state: wire.AllocationState, now: float) -> None:
        if self._since.get(name, ("", 0))[0] != state:
            given = self._node.handover.given.get(name)
            first = given.since if state == "ready" and given is not None else int(now)
            self._since[name] = (state, first)

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

    # Saying what is true.

    def _report(self, sender: Sender) -> None:
        """At once after a change, and now and then without one."""
        owners = reports.owners_of(self._store.held)
        troubles = reports.troubles(self._outcomes)
        if self._unsaved is not None:
            troubles.insert(0, self._unsaved)
        if self._refused is not None:
            troubles.insert(0, self._refused[1])
        since = {name: entered for name, (_, entered) in self._since.items()}
        report = wire.Report(
            epoch=self._store.epoch,
            observed_generation=self._store.generation,
            seq=0 if self._said is None else self._said.seq,
            gpus=reports.reported_gpus(self._outcomes, owners),
            allocations=reports.reported_allocations(self._outcomes, since),
            error="; ".join(troubles) or None,
        )
        if report == self._said and self._clock.steady() < self._repeat_report:
            return
        self._said = dataclasses.replace(report, seq=self._store.next_seq())
        self._repeat_report = self._clock.steady() + REPORT_EVERY_S
        empty = {a.id for a in report.allocations if a.state == "empty"}
        self._said_empty[self._said.seq] = empty
        self._send(sender, "report", self._said, seq=self._said.seq)

    def _delivered(self, seq: int) -> None:
        """What was told to be empty, and is in no document any more, is forgotten."""
        told = self._said_empty.get(seq, set())
        self._said_empty = {n: names for n, names in self._said_empty.items() if n > seq}
        desired = self._store.desired
        named = {a.id for g in desired.gpus for a in g.allocations} if desired else set()
        for name in told - named:
            held = self._store.held.get(name)
            if held is not None and held.emptied:
                del self._store.held[name]
                del self._since[name]

    def _heartbeat(self) -> wire.Heartbeat:
        return wire.Heartbeat(
            seq=self._store.next_seq(),
            observed_generation=self._store.generation,
            sent_at=int(self._clock.wall()),
        )

    def _telemetry(self) -> wire.Telemetry:
        owners = reports.owners_of(self._store.held)
        samples = reports.samples_take(self._node.port, self._gpus, owners)
        return wire.Telemetry(sent_at=int(self._clock.wall()), samples=samples)

    def _send(
        self, sender: Sender, kind: links.Kind, message: wire.FromAgent, seq: int | None = None
    ) -> None:
        version = self._identity.signing_version
        envelope = wire.seal(message, key=self._identity.keys[version], key_version=version)
        sender.send(links.Outgoing(kind, envelope, seq))


def _nothing_new(wish: reconcile.Wish) -> reconcile.Wish:
    tasks = tuple(task for task in wish.tasks if task.ending or task.given)
    return reconcile.Wish(wish.gpu, wish.mode, tasks)
