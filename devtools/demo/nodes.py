"""The demo's nodes in the simulated past: they enrol, and report as their agents would.

They read the documents that the portal publishes, and their messages go where the reports reader
puts the ones it reads. The agents of the running demo enrol again and take over.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import NAMESPACE_DNS, uuid5

import wire
from agent.host.machine import inventory_take
from agent.nvml.gpu import NvmlGpu
from allocation.features.zones.services import (
    EnergyTerms,
    StorageTerms,
    ZoneTerms,
    energy_set,
    storage_set,
    zone_set,
)
from allocation.models import Node, SolverState, Zone
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol, node_key
from allocation.services.nodes.redis_accounts import agents_redis
from devtools.launch.programs import AGENTS
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import host_simulated
from devtools.simulated.models import CORE_MB, CORES, fleet_parse
from devtools.simulated.nvml import installed
from tenants.access import PlatformActor
from tenants.models import User

MINUTE = timedelta(minutes=1)
# The first program is seen on a device this long after the device was handed over.
PROGRAM_STARTS_AFTER = timedelta(seconds=95)
Label = tuple[str, str]
"""A booking as nodes know it: the tenant's slug and the booking's label."""


@dataclass
class _NodeAllocation:
    """An allocation on the node, with the end of its state and its next measurement."""

    gpu: str
    desired: wire.DesiredAllocation
    state: wire.AllocationState
    due: datetime | None
    since: datetime
    measured: datetime | None = None

    @property
    def label(self) -> Label:
        return self.desired.tenant, self.desired.booking


class DemoNode:
    """One node in the simulated past. Nobody ever starts a program in bookings of `no_shows`."""

    def __init__(self, row: Node, epoch: int, no_shows: set[Label]) -> None:
        """Takes over the state of an enrolled node."""
        self.name, self._epoch, self._no_shows = row.name, epoch, no_shows
        self._version, self._key = row.key_version, node_key(row)
        self._seq = row.report_seq
        self._readings = row.telemetry_seq
        self._generation = -1
        gpus = row.gpus.select_related("model").order_by("index")
        self._modes: dict[str, wire.Mode] = {g.uuid: _mode(g.mode) for g in gpus}
        self._uuids = [gpu.uuid for gpu in gpus]
        self._reset = {gpu.uuid: gpu.model.switch_seconds for gpu in gpus}
        self._changing: dict[str, tuple[datetime, wire.Mode]] = {}
        self._places: dict[str, _NodeAllocation] = {}
        self._errors: tuple[wire.HardwareError, ...] = ()
        self._freed = False

    def due(self) -> Iterator[datetime]:
        """Yields the instants at which the node has something to report."""
        yield from (at for at, _ in self._changing.values())
        for place in self._places.values():
            yield from (at for at in (place.due, place.measured) if at is not None)

    def gpu_error(self, index: int, code: int, now: datetime) -> StreamMessage:
        """A report with an error of the GPU from the driver."""
        gpu, at = self._uuids[index], int(now.timestamp())
        error = wire.HardwareError(gpu=gpu, kind="xid", code=code, instance=None, at=at)
        self._errors = (*self._errors, error)[-4:]
        return self._report(now)

    def document_read(self, now: datetime) -> None:
        """Reads the newest document and applies it."""
        raw = agents_redis().get(wire.desired_key(self.name))
        if not isinstance(raw, bytes):
            return
        document = wire.open_desired(wire.Envelope.from_json(raw), {self._version: self._key})
        if document.generation == self._generation:
            return
        self._generation = document.generation
        self._modes_read(document, now)
        desired = {item.id: (gpu.uuid, item) for gpu in document.gpus for item in gpu.allocations}
        sizes = Counter(item.booking for _, item in desired.values())
        self._places = {key: place for key, place in self._places.items() if key in desired}
        for key, (gpu, item) in desired.items():
            self._place_read(key, gpu, item, sizes[item.booking], now)

    def reports(self, now: datetime) -> list[StreamMessage]:
        """A full report if anything has changed by now, else nothing."""
        return [self._report(now)] if self._settle(now) else []

    def freed(self) -> bool:
        """Whether a device was proven empty, or changed its mode, since the last call."""
        before, self._freed = self._freed, False
        return before

    def measurements(self, now: datetime) -> list[StreamMessage]:
        """Readings of the devices whose measurement is due."""
        samples = tuple(self._samples(now))
        if not samples:
            return []
        self._readings += 1
        at = int(now.timestamp())
        return [self._signed(wire.Telemetry(sent_at=at, samples=samples, seq=self._readings))]

    def last_heartbeat(self, now: datetime) -> StreamMessage:
        """A last heartbeat; afterwards the node counts as unreachable."""
        return self._signed(
            wire.Heartbeat(
                seq=1,
                observed_generation=self._generation,
                sent_at=int(now.timestamp()),
                epoch=self._epoch,
            )
        )

    def _modes_read(self, document: wire.Desired, now: datetime) -> None:
        for gpu in document.gpus:
            wanted = _mode(gpu.mode)
            if wanted != self._modes[gpu.uuid]:
                ready = now + timedelta(seconds=self._reset[gpu.uuid] or 2)
                self._changing.setdefault(gpu.uuid, (ready, wanted))
            else:
                self._changing.pop(gpu.uuid, None)

    def _place_read(
        self, key: str, gpu: str, desired: wire.DesiredAllocation, size: int, now: datetime
    ) -> None:
        """Handing over and clearing take longer for larger bookings."""
        place = self._places.get(key)
        if place is None:
            place = _NodeAllocation(gpu, desired, "preparing", None, now)
            change, _ = self._changing.get(gpu, (now, None))
            place.due = max(now, change) + timedelta(seconds=15 + 7 * size)
        if desired.state == "release" and place.state in ("preparing", "ready"):
            place.state, place.since, place.measured = "ending", now, None
            place.due = now + timedelta(seconds=8 + 3 * size)
        place.desired = desired
        self._places[key] = place

    def _settle(self, now: datetime) -> bool:
        """Brings about what is due; whether anything was."""
        done = False
        for gpu, (at, mode) in list(self._changing.items()):
            if at <= now:
                self._modes[gpu], self._freed, done = mode, True, True
                del self._changing[gpu]
        for place in self._places.values():
            if place.due is None or place.due > now:
                continue
            is_ready = place.state == "preparing"
            place.state, place.since = ("ready" if is_ready else "empty"), now
            place.due, done = None, True
            self._freed |= not is_ready
            if is_ready:
                place.measured = now + (MINUTE if place.label in self._no_shows else PROGRAM_STARTS_AFTER)
        return done

    def _report(self, now: datetime) -> StreamMessage:
        self._seq += 1
        return self._signed(
            wire.Report(
                epoch=self._epoch,
                observed_generation=self._generation,
                seq=self._seq,
                gpus=tuple(wire.ReportedGpu(uuid=uuid, mode=mode) for uuid, mode in self._modes.items()),
                allocations=tuple(
                    wire.ReportedAllocation(
                        id=key,
                        state=place.state,
                        devices=_devices(key, place) if place.state == "ready" else (),
                        error=None,
                        since=int(place.since.timestamp()),
                    )
                    for key, place in self._places.items()
                ),
                errors=self._errors,
            )
        )

    def _samples(self, now: datetime) -> Iterator[wire.Sample]:
        for key, place in self._places.items():
            if place.measured is None or place.measured > now or place.state != "ready":
                continue
            is_absent = place.label in self._no_shows
            place.measured = now + MINUTE if is_absent else None
            yield self._sample(key, place, processes=0 if is_absent else 1)

    def _sample(self, key: str, place: _NodeAllocation, *, processes: int) -> wire.Sample:
        profile = place.desired.profile
        return wire.Sample(
            gpu=place.gpu,
            slot=place.desired.slot if profile else None,
            size=place.desired.size if profile else None,
            allocation=key,
            # A single measurement shows that a program runs, not its utilisation.
            utilisation=None if processes or profile else 0,
            memory_used_mb=None,
            memory_total_mb=None,
            power_mw=None,
            temperature_c=None,
            processes=processes,
        )

    def _signed(self, message: wire.FromAgent) -> StreamMessage:
        return StreamMessage(self.name, wire.seal(message, key=self._key, key_version=self._version))


class DemoFleet:
    """All nodes of the simulated past."""

    def __init__(self, no_shows: set[Label]) -> None:
        """Takes over all enrolled nodes."""
        rows = Node.objects.filter(name__in=AGENTS).order_by("name")
        epoch = SolverState.objects.get(id=1).epoch
        self.nodes: Mapping[str, DemoNode] = {row.name: DemoNode(row, epoch, no_shows) for row in rows}

    def due(self) -> Iterator[datetime]:
        """Yields the instants at which any node has something to report."""
        for node in self.nodes.values():
            yield from node.due()

    def document_read(self, now: datetime) -> None:
        """Makes each node read its document."""
        for node in self.nodes.values():
            node.document_read(now)

    def reports(self, now: datetime) -> bool:
        """Applies the nodes' reports; returns whether a place became free."""
        self._send(now, DemoNode.reports)
        freed = [node.freed() for node in self.nodes.values()]
        return any(freed)

    def measurements(self, now: datetime) -> bool:
        """Applies the nodes' readings; returns whether there were any."""
        return self._send(now, DemoNode.measurements)

    def gpu_error(self, node: str, index: int, code: int, now: datetime) -> None:
        """Applies a report with an error of a GPU."""
        messages_apply([self.nodes[node].gpu_error(index, code, now)], now)

    def finish(self, now: datetime) -> None:
        """Applies the last heartbeats."""
        self._send(now, lambda node, at: [node.last_heartbeat(at)])

    def _send(self, now: datetime, messages_of: Callable[[DemoNode, datetime], list[StreamMessage]]) -> bool:
        messages = [each for node in self.nodes.values() for each in messages_of(node, now)]
        messages_apply(messages, now)
        return bool(messages)


def nodes_enrol(now: datetime) -> None:
    """Enrols every missing node, with the hardware that its agent will find."""
    for name, hardware in AGENTS.items():
        if Node.objects.filter(name=name, link_digest__isnull=False).exists():
            continue
        _, rack, _ = name.split("-")
        token = enrolment_token_create(node_name=name, rack_name=rack, now=now)
        inventory = wire.inventory_to_plain(inventory_of(name, hardware))
        node_enrol(token=token, inventory=json.loads(json.dumps(inventory)), now=now)


def inventory_of(name: str, hardware: str) -> wire.Inventory:
    """The inventory that an agent with this simulated hardware reports."""
    models = fleet_parse(hardware)
    simulated = Hardware(name, models, state=None, clock=lambda: 0.0)
    with installed(simulated):
        port = NvmlGpu(simulated.process_signal, simulated.reset)
        try:
            core_mb = CORE_MB * (set(models) == {CORES})
            return inventory_take(host_simulated(name, len(models), core_mb=core_mb), port)
        finally:
            port.close()


def _mode(mode: str) -> wire.Mode:
    return "sliced" if mode == "sliced" else "whole"


def _devices(key: str, place: _NodeAllocation) -> tuple[str, ...]:
    return (f"MIG-{uuid5(NAMESPACE_DNS, key)}",) if place.desired.profile else (place.gpu,)


# Basel is cheap at night, Bern is clean at noon.
_NIGHT, _DAY, _EVENING = Decimal("0.12"), Decimal("0.24"), Decimal("0.31")
BASEL = ZoneTerms(
    zone="basel",
    name="Basel",
    time_zone="Europe/Zurich",
    price=[*[_NIGHT] * 6, *[_DAY] * 12, *[_EVENING] * 5, _NIGHT],
    grams=[Decimal(each) for each in (*[38] * 7, *[45] * 10, *[62] * 5, *[40] * 2)],
    racks=["a1", "a2", "c1"],
)
BERN = ZoneTerms(
    zone="bern",
    name="Bern",
    time_zone="Europe/Zurich",
    price=[Decimal("0.21")],
    grams=[Decimal(each) for each in (*[52] * 9, *[24] * 7, *[48] * 8)],
    racks=["b1"],
)
# Agents report local NVMe; this node's is for something else.
STORAGE = {"gpu-b1-01": StorageTerms(storage="shared")}


def zones_seed(now: datetime) -> None:
    """Makes the zones, once."""
    if Zone.objects.exists():
        return
    actor = _actor()
    for terms in (BASEL, BERN):
        zone_set(actor=actor, terms=terms, now=now)
    for node in Node.objects.filter(name__in=STORAGE).order_by("name"):
        storage_set(actor=actor, node=node.name, terms=STORAGE[node.name], now=now)


def energy_seed(now: datetime) -> None:
    """Lets spot work wait for cheap energy."""
    energy_set(actor=_actor(), terms=EnergyTerms(tier="spot", prefers="price", hours=12), now=now)


def _actor() -> PlatformActor:
    operator = User.objects.get(username="olaf")
    return PlatformActor(operator.pk, operator.display_name)
