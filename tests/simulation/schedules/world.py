"""Everybody of a schedule on one clock: the portal, its nodes, and the server between them."""

import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import wire
from agent.ports import link as links
from agent.state.enrol import Identity
from solver import Gpu, Host, Model, Placement, units_of
from solver.model.limits import Limit
from tests.simulation.model.portal import ModelPortal
from tests.simulation.nodes.node import SimNode
from tests.simulation.requests.invariants import RequestsLook
from tests.simulation.requests.tables import Edit, Repeats, Waits
from tests.simulation.schedules.invariants import (
    begun_broken,
    frozen_broken,
    invariants_broken,
    runs_broken,
    stops_broken,
)
from tests.simulation.tables.acts import Acts
from tests.simulation.tables.people import FIRST_CLASS, SECOND_CLASS, SERVICES, Party, UserRequest
from tests.simulation.tables.rows import STARTED_STATES, MaintenanceRow, Site, Tables

NOW = 1_800_014_400.0
# What an agent is due for sooner waits until then.
_SHORTEST_STEP = 1.0
MASTER = b"m" * 32
_NAMESPACE = uuid.UUID("0c9a6c1e-3c3f-5f0e-9f7e-1f6f7cf1a5b1")


class Portal(Protocol):
    """The portal of a schedule: the model, or both the model and the real services."""

    site: Site

    @property
    def tables(self) -> Tables: ...
    @property
    def dropped(self) -> list[str]: ...
    def request(
        self, identifier: str, requested: UserRequest, now: float, waits: Waits | None = None
    ) -> None: ...
    def array(self, identifier: str, requested: UserRequest, repeats: Repeats, now: float) -> None: ...
    def array_cancel(self, identifier: str, now: float) -> None: ...
    def change(self, identifier: str, edit: Edit, name: str, now: float) -> None: ...
    def change_withdraw(self, identifier: str, now: float) -> None: ...
    def answer(self, identifier: str, now: float, *, accepts: bool) -> None: ...
    def cancel(self, identifier: str, now: float) -> None: ...
    def release(self, identifier: str, now: float) -> None: ...
    def extend(self, identifier: str, until: int, now: float) -> None: ...
    def saved(self, identifier: str, now: float) -> None: ...
    def more_time(self, identifier: str, now: float) -> None: ...
    def maintenance_plan(self, row: MaintenanceRow, now: float) -> None: ...
    def maintenance_end(self, identifier: str, now: float) -> None: ...
    def order(self, identifier: str, now: float) -> bool: ...
    def gpu_return(self, uuid: str, now: float) -> None: ...
    def replace_lost(self, now: float) -> None: ...
    def mark_silent(self, now: float) -> None: ...
    def reader_restarts(self) -> None: ...
    def outage_begin(self, until: float, now: float) -> None: ...
    def outage_end(self, now: float) -> None: ...
    def freeze_begin(self, until: float | None, now: float) -> None: ...
    def freeze_end(self, now: float) -> None: ...
    def cycle(self, now: float, *, publishes: bool = True, acts: Acts = ()) -> None: ...
    @property
    def withheld(self) -> Counter[str]: ...
    def publish(self) -> None: ...
    def republish(self) -> None: ...
    def receive(self, name: str, envelope: wire.Envelope, now: float) -> str: ...
    def backup(self) -> Tables: ...
    def restore(self, saved: Tables, now: float) -> None: ...


class Server:
    """Where documents, leases and reports lie between portal and nodes; `past` is what it once
    held."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.leases: dict[str, bytes] = {}
        self.past: dict[str, list[bytes]] = {}
        self.past_leases: dict[str, list[bytes]] = {}
        self.lost = False
        self.stream: list[tuple[str, wire.Envelope]] = []
        self.received: list[tuple[str, wire.Envelope]] = []

    def write(self, node: str, raw: bytes) -> None:
        """The node's document is replaced."""
        self.documents[node] = raw
        self.past.setdefault(node, []).append(raw)

    def grant(self, node: str, raw: bytes) -> None:
        """The node's lease is replaced."""
        self.leases[node] = raw
        self.past_leases.setdefault(node, []).append(raw)

    def loses_everything(self) -> None:
        """A restart without its data."""
        self.lost = True
        self.documents.clear()
        self.leases.clear()
        self.stream.clear()


class World:
    """`violations` collects violated invariants; a schedule without any leaves it empty."""

    def __init__(
        self,
        rng: random.Random,
        folder: Path,
        sizes: tuple[int, ...],
        portal_of: "Callable[[World], Portal] | None" = None,
        classes: int = 1,
    ) -> None:
        self.rng = rng
        self.now, self.classes = NOW, classes
        # The portal's programs are stopped.
        self.is_away = False
        self.server = Server()
        self.violations: list[str] = []
        self._started: set[str] = set()
        self._requests = RequestsLook()
        # What the portal took nodes and GPUs for at some time, by kind.
        self.marks: set[tuple[str, str]] = set()
        names = [f"n{i + 1}" for i in range(len(sizes))]
        self.nodes = [
            SimNode(name, size, folder, lambda: self.now, rng)
            for name, size in zip(names, sizes, strict=True)
        ]
        self.portal = (portal_of or model_portal)(self)
        for node in self.nodes:
            node.boot()

    def node(self, name: str) -> SimNode:
        """By name."""
        return next(node for node in self.nodes if node.name == name)

    # The passing of time.

    def passes(self, seconds: float) -> None:
        """Time passes. Nobody does anything about it yet, but those that have to end what they hold
        on lease in time: they are awake, begun again when they have died, and mostly answered."""
        until, answered = self.now + seconds, self.rng.random() < 0.8
        while self.now < until:
            held = [node for node in self.nodes if node.is_on_lease()]
            for node in held:
                if node.agent is None:
                    node.boot()
            waits = {node.name: node.waits() for node in self.nodes}
            soonest = (max(_SHORTEST_STEP, waits[node.name] or 0) for node in held)
            self.now = min(until, self.now + min(soonest, default=seconds))
            if held and self.now < until:
                for node in held:
                    self.node_works(node)
                if answered and not self.is_away:
                    self.portal_receives()

    def node_works(self, node: SimNode, *, stale: bool = False) -> None:
        """The agent reads, works, and sends its reports as far as its connection allows."""
        document = self.server.documents.get(node.name) if node.receives else None
        lease = self.server.leases.get(node.name) if node.receives else None
        past, leases = self.server.past.get(node.name), self.server.past_leases.get(node.name)
        if stale and past and node.receives:
            document = self.rng.choice(past)
            lease = self.rng.choice(leases) if leases else None
        node.works(document, lease)
        self._flush(node)
        self.look()

    def _flush(self, node: SimNode) -> None:
        if not node.sends or node.agent is None:
            return
        waiting = links.newest_of_each_kind(node.outbox)
        self.server.stream += [(node.name, outgoing.envelope) for outgoing in waiting]
        if not node.receives:
            # The server's answer is lost: the link says the same again later.
            node.outbox = waiting
            return
        node.outbox = []
        if waiting:
            node.arrivals.append(links.ServerTime(self.now))
        node.arrivals += [links.Delivered(o.seq) for o in waiting if o.seq is not None]

    def portal_receives(self, count: int | None = None) -> None:
        """The reader takes what is in the stream, or the first so many of it.

        A server that has lost its data has no group of readers any more: all documents are sent
        again.
        """
        if self.server.lost:
            self.server.lost = False
            self.portal.republish()
        self.portal.replace_lost(self.now)
        taken, self.server.stream = (
            self.server.stream[:count],
            [] if count is None else self.server.stream[count:],
        )
        for name, envelope in taken:
            self.portal.receive(name, envelope, self.now)
            self.server.received.append((name, envelope))
        self.portal.mark_silent(self.now)
        self.look()

    def reset_started(self) -> None:
        """A backup came back: what had begun in it is not begun now."""
        self._started, self._requests = self._started_now(), RequestsLook()

    def _started_now(self) -> set[str]:
        return {row.id for row in self.portal.tables.rows.values() if row.state in STARTED_STATES}

    # What must hold at every instant.

    def look(self) -> None:
        """P2 and P12 at the drivers, P3 at the nodes, and what the portal believes."""
        tables = self.portal.tables
        for node in self.nodes:
            node.look()
            self.violations += [f"P2 {text}" for text in node.overlaps]
            node.overlaps.clear()
            self.violations += [
                f"P12 {name} resumed, and what was suspended died" for name in node.unreported_deaths()
            ]
            for holder, _ in node.occupancy.holders():
                row = tables.rows.get(holder)
                if row is not None and row.occupied is False:
                    self.violations.append(f"P2 {holder} was proven empty and is on {node.name}")
            if node.fences != sorted(node.fences):
                self.violations.append(f"P3 {node.name} acted on {node.fences}")
            node.fences = node.fences[-1:]
            self.violations += stops_broken(tables, node)
        self.violations += [f"P14 a plan was dropped: {why}" for why in self.portal.dropped]
        self.portal.dropped.clear()
        self.violations += runs_broken(tables, self.nodes, self.now)
        self.violations += invariants_broken(tables)
        self.violations += self._requests.look(tables, self.now)
        started = self._started_now()
        fresh = [tables.rows[name] for name in sorted(started - self._started)]
        self.violations += begun_broken(tables, self.portal.site, fresh, self.now)
        self.violations += frozen_broken(tables, fresh, self.now)
        self._started = started
        self.marks |= {
            ("nodes silent for long" if node.long_unreachable else "nodes silent", name)
            for name, node in tables.nodes.items()
            if node.unreachable_since is not None
        }
        hangs = (uuid for uuid, gpu in tables.gpus.items() if gpu.why == "hangs")
        self.marks |= {("GPUs that hang", uuid) for uuid in hangs}


def model_portal(world: World) -> ModelPortal:
    """The model over the world's nodes, all enrolled at the start."""
    inventories = {node.name: node.inventory() for node in world.nodes}
    site = site_of(inventories, world.classes)
    ids = iter(range(1, 1_000_000))
    pauses = iter(range(1, 1_000_000))
    portal = ModelPortal(
        site,
        row_id=lambda: uuid.uuid5(_NAMESPACE, str(next(ids))).hex,
        pause_id=lambda: uuid.uuid5(_NAMESPACE, f"pause {next(pauses)}").hex,
        write=world.server.write,
        grant=world.server.grant,
    )
    for node in world.nodes:
        portal.inventory(node.name, inventories[node.name], world.now)
        node.enrolled(Identity(node.name, {1: site.keys[node.name]}, 1, "redis://127.0.0.1:1/0"))
    portal.republish()
    return portal


def site_of(inventories: dict[str, wire.Inventory], classes: int) -> Site:
    """As enrolment would make it: one class, or the last node is of another one; and a tenant that
    is guaranteed all of it and lends it to another."""
    gpus = [(node, item) for node in sorted(inventories) for item in inventories[node].gpus]
    model = _model(gpus[0][1])
    solver_gpus = tuple(
        Gpu(
            id=str(uuid.uuid5(_NAMESPACE, item.uuid)),
            number=number,
            node=node,
            rack="a1",
            index=item.index,
            gpu_class=SECOND_CLASS if classes > 1 and node == max(inventories) else FIRST_CLASS,
            model=model.slug,
            domain=item.nvlink_domain,
            usable=True,
            mode=None,
        )
        for number, (node, item) in enumerate(gpus)
    )
    counts = Counter(gpu.gpu_class for gpu in solver_gpus)
    each = units_of(model, None)
    return Site(
        models=(model,),
        gpus=solver_gpus,
        uuids={gpu.id: item.uuid for gpu, (_, item) in zip(solver_gpus, gpus, strict=True)},
        drivers={node: found.driver for node, found in inventories.items()},
        hosts=tuple(
            Host(node, found.cores * 1_000, found.memory_mb) for node, found in sorted(inventories.items())
        ),
        limits=(
            *(Limit("club", None, name, 0, None, None) for name in sorted(counts)),
            *(Limit("lab", None, name, counts[name] * each, None, None) for name in sorted(counts)),
        ),
        tiers=tuple(SERVICES[slug].tier for slug in sorted(SERVICES)),
        parties=(
            Party(tenant="lab", project="folding", slug="lab", owner="ada", owner_id="1"),
            Party(tenant="lab", project="folding", slug="lab", owner="bea", owner_id="2"),
            Party(tenant="club", project="chess", slug="club", owner="cleo", owner_id="3"),
        ),
        keys={node: wire.node_key(MASTER, node, 1) for node in inventories},
        key_version=1,
        epoch=1,
    )


def _model(item: wire.InventoryGpu) -> Model:
    placements = tuple(
        Placement(p.profile, p.start, p.size, p.compute, p.profile_id, p.max) for p in item.placements
    )
    return Model("h100-80gb", 8, 7, "online", placements)
