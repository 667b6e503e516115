"""The portal and one node on a clock that tests advance.

The node is the real agent over simulated GPUs; both communicate through the real Valkey. Only the
loops around them (Celery, the agent's threads, the reader's blocking reads) belong to the test.
"""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import wire
from agent.amd.gpu import AmdGpu
from agent.amd.measure import AmdWatch
from agent.amd.processors import Processors
from agent.host.machine import inventory_take
from agent.node import Node as AgentNode
from agent.nvml.watch import NvmlWatch
from agent.owner.booking_files import BookingFiles
from agent.ports.clock import Clock
from agent.ports.gpu import GpuPort, WatchPort
from agent.ports.handover import Handover
from agent.ports.link import Delivered, DocumentRead, LeaseRead, Outgoing
from agent.process import Agent
from agent.state.documents import Keys
from agent.state.enrol import Identity
from agent.state.store import Store
from allocation.models import Allocation, Booking, Node
from allocation.services.decide.cycle import CycleResult, cycle_run
from allocation.services.inbox.apply import message_apply
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from allocation.services.nodes.redis_accounts import agents_redis
from devtools.simulated.amd import SimulatedAmdFiles, SimulatedAmdSmi
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import host_simulated
from devtools.simulated.models import fleet_parse
from devtools.simulated.nvml import SimulatedNvml, installed
from devtools.simulated.programs import simulated_port
from tests.builders_allocation import NOW
from tests.roles import as_system

NAME = "gpu-a1-01"


@dataclasses.dataclass
class Line:
    """The agent's link in tests: messages go into the stream at once. `can_send` and `can_receive`
    cut it in one direction."""

    node: str
    can_send: bool = True
    can_receive: bool = True
    said: list[wire.Envelope] = dataclasses.field(default_factory=list)
    delivered: list[int] = dataclasses.field(default_factory=list)

    def send(self, outgoing: Outgoing) -> None:
        if not self.can_send:
            return
        fields: dict[Any, Any] = {**outgoing.envelope.to_fields()}
        agents_redis().xadd(wire.report_stream(self.node), fields)
        self.said.append(outgoing.envelope)
        if outgoing.seq is not None:
            self.delivered.append(outgoing.seq)


@dataclasses.dataclass
class Steady:
    """The agent's clocks: one moves with the plant's."""

    plant: "Plant"

    def __call__(self) -> float:
        return self.plant.now.timestamp()


class Plant:
    """One enrolled node with its agent. `now` is the time of both."""

    def __init__(self, folder: Path, simulate: str, stack: ExitStack) -> None:
        self.now = NOW
        self.line = Line(NAME)
        self.reader = Reader("the test's", clock=lambda: self.now, steady=Steady(self))
        clock = Steady(self)
        self.hardware = Hardware(NAME, fleet_parse(simulate), state=None, clock=clock)
        self.driver: SimulatedNvml = stack.enter_context(installed(self.hardware))
        port, watch = _ports(self.hardware, stack)
        host = host_simulated(NAME, len(self.hardware.gpus))
        self.identity = self._enrol(inventory_take(host, port))
        keys = self.identity.keys
        store = Store(folder / "state.json", keys=keys, epoch=self.identity.epoch, now=self.now.timestamp())
        self.folder = folder
        self.node = node = AgentNode(
            keys=Keys(self.identity, folder / "identity.json"),
            port=port,
            store=store,
            handover=Handover(folder / "bookings", ()),
            bookings=BookingFiles(folder / "bookings"),
            inventory=lambda: inventory_take(host, port),
            watch=watch,
        )
        self.agent = Agent(node, Clock(wall=clock, steady=clock))

    def _enrol(self, inventory: wire.Inventory) -> Identity:
        with as_system():
            token = enrolment_token_create(node_name=NAME, rack_name="a1", now=self.now)
        sent = json.loads(json.dumps(wire.inventory_to_plain(inventory)))
        answer: Any = node_enrol(token=token, inventory=sent, now=self.now)
        return Identity(
            answer["node"],
            {answer["key_version"]: bytes.fromhex(answer["key"])},
            answer["epoch"],
            answer["redis_url"],
        )

    # What each side does.

    def cycle(self) -> CycleResult:
        """Runs one cycle."""
        with as_system():
            return cycle_run(self.now)

    def node_works(self) -> None:
        """The agent reads its document and carries it out."""
        if self.line.can_receive:
            raw = agents_redis().get(wire.desired_key(NAME))
            if isinstance(raw, bytes):
                self.agent.handle(DocumentRead(raw), self.line)
            lease = agents_redis().get(wire.lease_key(NAME))
            if isinstance(lease, bytes):
                self.agent.handle(LeaseRead(lease), self.line)
        self.agent.turn(self.line)
        while self.line.delivered:
            self.agent.handle(Delivered(self.line.delivered.pop()), self.line)

    def portal_reads(self, block_ms: int = 0) -> int:
        """The portal's reader takes the node's new messages; returns how many."""
        with as_system():
            return self.reader.turn(block_ms)

    def receive(self, envelope: wire.Envelope, *, node: str = NAME) -> str:
        """The portal applies a message."""
        with as_system():
            return message_apply(node_name=node, envelope=envelope, now=self.now)

    def report(self, *allocations: wire.ReportedAllocation, **fields: int) -> wire.Envelope:
        """A report signed by this node, with the next sequence number."""
        with as_system():
            node = Node.objects.get(name=NAME)
        values: dict[str, Any] = {
            "epoch": self.identity.epoch,
            "observed_generation": node.generation,
            "seq": node.report_seq + 1,
            **fields,
        }
        report = wire.Report(allocations=allocations, **values)
        version = self.identity.signing_version
        return wire.seal(report, key=self.identity.keys[version], key_version=version)

    # The passing of time.

    def round(self) -> None:
        """Cycle, node and reader run in turn until the node has nothing to send."""
        for _ in range(10):
            before = len(self.line.said)
            self.cycle()
            self.node_works()
            self.portal_reads()
            if len(self.line.said) == before:
                return
        raise AssertionError("the portal and its node did not become idle")

    def later(self, step: timedelta) -> None:
        """Advances the time, then runs a round."""
        self.agent.wait_s()
        self.now += step
        self.round()

    def later_until(self, moment: datetime) -> None:
        """Advances the time to a moment, then runs a round."""
        self.later(moment - self.now)


def _ports(hardware: Hardware, stack: ExitStack) -> tuple[GpuPort, WatchPort]:
    """The drivers of simulated GPUs; those of AMD are offered in the smallest partitions."""
    if hardware.gpus[0].model.maker == "amd":
        processors = Processors(SimulatedAmdSmi(hardware))
        stack.callback(processors.close)
        port = AmdGpu(processors, "cpx", hardware.process_signal, SimulatedAmdFiles(hardware))
        return port, AmdWatch(processors, hardware.process_user)
    nvml = simulated_port(hardware)
    stack.callback(nvml.close)
    watch = NvmlWatch(hardware.process_user)
    stack.callback(watch.close)
    return nvml, watch


def fresh(booking: Booking) -> Booking:
    """The booking as it is now."""
    with as_system():
        return Booking.objects.get(id=booking.id)


def rows_of(booking: Booking) -> list[Allocation]:
    """Its allocations, the oldest first."""
    with as_system():
        return list(booking.allocations.select_related("gpu__node").order_by("period", "id"))


@contextmanager
def a_plant(folder: Path, *, gpus: int = 1, simulate: str = "") -> Iterator[Plant]:
    """A node of `gpus` simulated H100 whose model is in the catalogue, without geometry yet, or of
    what else is to be simulated."""
    with ExitStack() as stack:
        plant = Plant(folder, simulate or f"h100:{gpus}", stack)
        plant.node_works()
        plant.portal_reads()
        yield plant
