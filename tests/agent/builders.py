"""Plain builders for the agent's tests."""

import dataclasses
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

import wire
from agent.host.machine import inventory_take
from agent.node import Node
from agent.nvml.watch import NvmlWatch
from agent.owner.booking_files import BookingFiles
from agent.owner.cdi import Cdi
from agent.owner.slices import Slices
from agent.ports.clock import Clock
from agent.ports.handover import Handover, HandoverObserver
from agent.ports.link import Delivered, DocumentRead, Outgoing
from agent.ports.suspender import Suspender
from agent.process import Agent
from agent.state.documents import Keys
from agent.state.enrol import Identity
from agent.state.store import Store
from devtools.simulated.device_nodes import SimulatedDeviceNodes
from devtools.simulated.drivers import DEFAULT
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import host_simulated
from devtools.simulated.models import fleet_parse
from devtools.simulated.nvml import SimulatedNvml, installed
from devtools.simulated.programs import (
    SimulatedPrograms,
    SimulatedSuspender,
    simulated_port,
)

NODE = "node-1"
KEY = b"k" * 32
KEYS = {1: KEY}
NOW = 1_800_000_000
HOUR = 3600


def cases(table: Mapping[str, tuple[object, ...]]) -> list[ParameterSet]:
    """A table of cases by an English name, for pytest's parametrize."""
    return [pytest.param(*values, id=name) for name, values in table.items()]


@dataclasses.dataclass
class FakeTime:
    """A clock that tests move by hand."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def a_slice(
    name: str = "a1",
    *,
    profile: str = "2g.20gb",
    profile_id: int = 14,
    slot: int = 0,
    size: int = 2,
    booking: str = "BK-2041",
    starts: int = NOW,
    ends: int = NOW + HOUR,
    state: str = "run",
) -> wire.DesiredAllocation:
    return wire.DesiredAllocation(
        id=name,
        booking=booking,
        tenant="biology",
        owner="ada",
        profile=profile,
        profile_id=profile_id,
        slot=slot,
        size=size,
        starts=starts,
        ends=ends,
        state="release" if state == "release" else "run",
    )


def a_whole(
    name: str = "w1",
    *,
    booking: str = "BK-7",
    starts: int = NOW,
    ends: int = NOW + HOUR,
    state: str = "run",
) -> wire.DesiredAllocation:
    sliced = a_slice(name, booking=booking, starts=starts, ends=ends, state=state)
    return dataclasses.replace(sliced, profile=None, profile_id=None, slot=0, size=8)


def noticed(
    allocation: wire.DesiredAllocation,
    *,
    at: int = NOW + 120,
    method: wire.PauseMethod = "stop",
    name: str = "p1",
) -> wire.DesiredAllocation:
    """The same under a notice, as the portal writes it."""
    notice = wire.Notice(id=name, told=NOW, at=at, method=method)
    return dataclasses.replace(allocation, notice=notice, ends=at)


def a_document(
    gpus: dict[str, list[wire.DesiredAllocation]],
    *,
    gangs: tuple[wire.Gang, ...] = (),
    generation: int = 1,
    epoch: int = 1,
    node: str = NODE,
    mode: wire.Mode | None = None,
) -> wire.Desired:
    """GPUs by UUID; the mode follows from what shall be there, if it is not given."""
    return wire.Desired(
        node=node,
        epoch=epoch,
        generation=generation,
        gangs=gangs,
        gpus=tuple(
            wire.DesiredGpu(
                uuid=uuid,
                mode=mode or ("sliced" if any(a.profile_id is not None for a in wanted) else "whole"),
                allocations=tuple(wanted),
            )
            for uuid, wanted in gpus.items()
        ),
    )


def signed(desired: wire.Desired, key: bytes = KEY) -> wire.Envelope:
    return wire.seal(desired, key=key, key_version=1)


class Sent:
    """Stands where the link would be and keeps what the agent says."""

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []

    def send(self, outgoing: Outgoing) -> None:
        self.outgoing.append(outgoing)

    def messages(self, kind: str) -> list[wire.FromAgent]:
        return [wire.open_report(o.envelope, KEYS) for o in self.outgoing if o.kind == kind]

    def report(self) -> wire.Report:
        """The last one."""
        last = self.messages("report")[-1]
        assert isinstance(last, wire.Report)
        return last

    def states(self) -> dict[str, str]:
        return {a.id: a.state for a in self.report().allocations}


@dataclasses.dataclass
class Rig:
    """A simulated node with its agent, on clocks that tests move."""

    hardware: Hardware
    driver: SimulatedNvml
    agent: Agent
    node: Node
    wall: FakeTime
    steady: FakeTime
    sent: Sent
    programs: SimulatedPrograms

    @property
    def gpu(self) -> str:
        """The UUID of the first GPU."""
        return self.hardware.gpus[0].uuid

    def desire(self, desired: wire.Desired) -> None:
        """A document arrives and is acted on."""
        self.agent.handle(DocumentRead(signed(desired).to_json()), self.sent)
        self.agent.turn(self.sent)

    def later(self, seconds: float) -> None:
        """Time passes, and the agent does what is due then."""
        self.agent.wait_s()
        self.wall.now += seconds
        self.steady.now += seconds
        self.agent.turn(self.sent)

    def delivered(self) -> None:
        """The last report reaches the stream."""
        self.agent.handle(Delivered(self.sent.report().seq), self.sent)

    def instances(self) -> list[tuple[str, int]]:
        """What really is on the first GPU: profile and start slot."""
        there = self.hardware.gpus[0].instances.values()
        return sorted((i.profile.name, i.start) for i in there)


@contextmanager
def a_rig(
    state: Path,
    *,
    simulate: str = "h100:2",
    at: float = NOW,
    owners: Callable[[Hardware], tuple[HandoverObserver, ...]] = lambda _: (),
    keys: dict[int, bytes] = KEYS,
    suspender: Callable[[Hardware], Suspender | None] = SimulatedSuspender,
    driver: str = DEFAULT,
    slices: Callable[[Hardware, FakeTime], Slices | None] = lambda hardware, steady: None,
) -> Iterator[Rig]:
    """Two rigs over the same `state` one after the other are an agent that was restarted."""
    wall, steady, sent = FakeTime(at), FakeTime(1000.0), Sent()
    saved = state / "simulated.json"
    hardware = Hardware(NODE, fleet_parse(simulate), state=saved, clock=wall, driver=driver)
    with ExitStack() as stack:
        simulated = stack.enter_context(installed(hardware))
        port = simulated_port(hardware)
        stack.callback(port.close)
        watch = NvmlWatch(hardware.process_user)
        stack.callback(watch.close)
        host = host_simulated(NODE, len(hardware.gpus))
        programs = SimulatedPrograms(hardware)
        guard = slices(hardware, steady)
        cdi = Cdi(state / "cdi", SimulatedDeviceNodes(hardware), {})
        node = Node(
            keys=Keys(Identity(NODE, keys, 1, "redis://127.0.0.1:1/0"), state / "identity.json"),
            port=port,
            store=Store(state / "state.json", keys=keys, epoch=1, now=at),
            handover=Handover(state / "bookings", owners(hardware), guard=guard),
            bookings=BookingFiles(state / "bookings", cdi=cdi),
            inventory=lambda: inventory_take(host, port),
            watch=watch,
            programs=programs,
            suspender=suspender(hardware),
            pause_signal=signal.SIGUSR1,
            slices=guard,
            available_mb=guard.available_mb if guard is not None else lambda booking: None,
        )
        agent = Agent(node, Clock(wall=wall, steady=steady))
        yield Rig(hardware, simulated, agent, node, wall, steady, sent, programs)
