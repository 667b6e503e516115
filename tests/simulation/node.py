"""A simulated node: the real agent over simulated GPUs, on a disk that outlives it."""

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml

from allocation import wire
from allocation.agent import bookings, handover, store
from allocation.agent import link as links
from allocation.agent.bookings import Bookings
from allocation.agent.enrol import Identity
from allocation.agent.follow import Keys
from allocation.agent.gpu import GpuError
from allocation.agent.handover import Handover
from allocation.agent.host import host_simulated, inventory_take
from allocation.agent.node import Node
from allocation.agent.nvml_gpu import NvmlGpu
from allocation.agent.process import Agent, Clock
from allocation.agent.simulated_hardware import Gpu, Hardware, Instance, fleet_parse
from allocation.agent.simulated_nvml import SimulatedNvml
from allocation.agent.simulated_programs import SimulatedPrograms, SimulatedSuspender
from allocation.agent.store import Store
from allocation.wire import DesiredAllocation
from tests.simulation.occupancy import Occupancy

CRASH_POINTS = (
    "before the state is on disk",
    "after the state is on disk",
    "before a file is written",
    "before a slice is made",
    "between the two steps of a slice",
    "after a slice is made",
    "between the two steps of taking it away",
    "after a slice is taken away",
    "after the mode has changed",
    "after a program was asked to end",
    "before a device is handed over",
    "after a device is handed over",
    "after a device is taken back",
    "before a word is said",
    "after a word is said",
)
_BEGINNINGS = (
    "before a slice is made",
    "after the mode has changed",
    "before a device is handed over",
)


class Crash(BaseException):
    """The agent dies here: no handler of its own may see it."""


class Machine(Hardware):
    """GPUs that tell at which point of their work the agent is."""

    def __init__(self, name: str, gpus: int, at: Callable[[str], None], clock: Callable[[], float]):
        super().__init__(name, fleet_parse(f"h100:{gpus}"), state=None, clock=clock)
        self._at = at

    def mode_set(self, gpu: Gpu, *, mig: bool) -> str:
        said = super().mode_set(gpu, mig=mig)
        self._at("after the mode has changed")
        return said

    def instance_create(self, gpu: Gpu, profile_id: int, start: int, size: int) -> Instance:
        self._at("before a slice is made")
        return super().instance_create(gpu, profile_id, start, size)

    def compute_create(self, gpu: Gpu, instance: Instance) -> None:
        self._at("between the two steps of a slice")
        super().compute_create(gpu, instance)
        self._at("after a slice is made")

    def instance_destroy(self, gpu: Gpu, instance: Instance) -> None:
        self._at("between the two steps of taking it away")
        super().instance_destroy(gpu, instance)
        self._at("after a slice is taken away")

    def process_signal(self, pid: int, *, force: bool) -> None:
        super().process_signal(pid, force=force)
        self._at("after a program was asked to end")

    def power_cycle(self) -> None:
        """Programs and slices are gone; the mode stays, as it does on this model."""
        for gpu in self.gpus:
            gpu.processes.clear()
            gpu.instances.clear()


class WatchedHandover(Handover):
    """Writes down who may use a device: from before its files are there until they are gone."""

    def __init__(self, root: Path, node: "SimNode") -> None:
        super().__init__(root, (node,))
        self._node = node
        # What is no longer on the disk was never given, or has been taken.
        kept = node.occupancy.given
        node.occupancy.given = {name: kept[name] for name in self.given if name in kept}

    def give(self, allocation: DesiredAllocation, device: str, now: float) -> None:
        self._node.at("before a device is handed over")
        slots = self._node.slots_of(device)
        self._node.occupancy.given[allocation.id] = slots
        self._node.look()
        super().give(allocation, device, now)
        self._node.at("after a device is handed over")

    def take(self, allocation: str) -> None:
        super().take(allocation)
        self._node.occupancy.given.pop(allocation, None)
        self._node.at("after a device is taken back")


class SimNode:
    """`clock` is everybody's time. `overlaps` collects what was held twice."""

    def __init__(
        self, name: str, gpus: int, folder: Path, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.name, self.folder, self.rng, self._clock = name, folder / name, rng, clock
        self.folder.mkdir()
        self.skew = 0.0
        self.disk_full = False
        self.armed: tuple[str, int] | None = None
        self.hears = self.speaks = True
        self.outbox: list[links.Outgoing] = []
        self.arrivals: list[links.Arrival] = []
        self.overlaps: list[str] = []
        # (epoch, generation) of the documents that something was begun for.
        self.fences: list[tuple[int, int]] = []
        self.hardware = Machine(name, gpus, self.at, clock)
        self.driver = SimulatedNvml(self.hardware)
        self._symbols: dict[str, Any] = {}
        self.occupancy = Occupancy(self.hardware)
        self.agent: Agent | None = None
        self.identity: Identity | None = None
        self.node: Node | None = None

    def inventory(self) -> wire.Inventory:
        """As the agent would say it."""
        with self.at_driver():
            port = NvmlGpu(self.hardware.process_signal)
            return inventory_take(host_simulated(self.name, len(self.hardware.gpus)), port)

    def enrolled(self, identity: Identity) -> None:
        """Its key and the epoch it starts with."""
        self.identity = identity

    @contextlib.contextmanager
    def at_driver(self) -> Iterator[None]:
        """This node's GPUs behind pynvml, and its disk behind the agent."""
        with (
            mock.patch.object(pynvml, "nvmlLib", self.driver),
            mock.patch.object(pynvml, "_nvmlGetFunctionPointer_cache", self._symbols),
            mock.patch.object(store, "write_synced", self._write_synced),
            mock.patch.object(handover, "write_whole", self._write_whole),
            mock.patch.object(bookings, "write_whole", self._write_whole),
        ):
            yield

    # The life of an agent.

    def boot(self) -> None:
        """The agent starts, from what its disk tells; where the driver does not answer it ends
        at once, to be started again."""
        self.outbox.clear()
        self.arrivals = [links.Connected()]
        try:
            with self.at_driver():
                self.agent = self._agent()
        except GpuError:
            self.agent = None

    def _agent(self) -> Agent:
        identity = self.identity
        assert identity is not None
        state, host = self.folder, host_simulated(self.name, len(self.hardware.gpus))
        keys = identity.keys
        port = NvmlGpu(self.hardware.process_signal)
        self.node = Node(
            keys=Keys(identity, state / "identity.json"),
            port=port,
            store=Store(state / "state.json", keys=keys, epoch=identity.epoch, now=self.wall()),
            handover=WatchedHandover(state / "bookings", self),
            bookings=Bookings(state / "bookings"),
            inventory=lambda: inventory_take(host, port),
            programs=SimulatedPrograms(self.hardware),
            suspender=SimulatedSuspender(self.hardware),
        )
        return Agent(self.node, Clock(wall=self.wall, steady=self._clock))

    def dies(self) -> None:
        """kill -9; what was on its way to the server is gone with it."""
        self.agent, self.armed = None, None
        self.outbox.clear()

    def wall(self) -> float:
        """The node's own clock."""
        return self._clock() + self.skew

    def works(self, document: bytes | None) -> None:
        """The agent takes what arrived, does what is due and says it; perhaps it dies of it."""
        if self.agent is None:
            return
        arrivals, self.arrivals = self.arrivals, []
        if document is not None:
            arrivals.append(links.Document(document))
        try:
            with self.at_driver():
                for arrival in arrivals:
                    self.agent.arrived(arrival, self)
                self.agent.turn(self)
        except Crash:
            self.dies()
        self.look()

    def waits(self) -> None:
        """To be called before time passes: the agent notes what it will be due for."""
        if self.agent is not None:
            self.agent.pause()

    def send(self, outgoing: links.Outgoing) -> None:
        """See voice.Sender: said, and waiting for the server."""
        self.at("before a word is said")
        self.outbox.append(outgoing)
        self.at("after a word is said")

    # What the owners of bookings do.

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        """Most run something, soon; some programs end only when they are killed."""
        if self.rng.random() < 0.8:
            self.hardware.process_start(
                device,
                label=allocation.id,
                delay_s=self.rng.choice((0, 0, 2, 20)),
                stubborn=self.rng.random() < 0.2,
            )

    def taken(self, allocation: str) -> None:
        """Nobody starts anything on what is no longer theirs."""
        self.hardware.process_forget(allocation)

    # What is seen.

    def at(self, point: str) -> None:
        """The agent is here; raises Crash when it is to die here."""
        if point in _BEGINNINGS and self.node is not None:
            self.fences.append((self.node.store.epoch, self.node.store.generation))
        if self.armed is None or self.armed[0] != point:
            return
        if self.armed[1] > 0:
            self.armed = (point, self.armed[1] - 1)
            return
        self.armed = None
        raise Crash(point)

    def look(self) -> None:
        """Records who holds what."""
        self.overlaps += self.occupancy.look()

    def slots_of(self, device: str) -> tuple[str, int, int]:
        """Of a device by UUID."""
        for gpu in self.hardware.gpus:
            for instance in gpu.instances.values():
                if gpu.mig_uuid(instance) == device:
                    return gpu.uuid, instance.start, instance.start + instance.profile.size
        return device, 0, 8

    def _write_synced(self, path: Path, raw: bytes) -> None:
        self.at("before the state is on disk")
        if self.disk_full:
            raise OSError(28, "No space left on device")
        # Whole or not at all, as a synced rename is; the sync itself costs nothing in memory.
        fresh = path.with_suffix(".new")
        fresh.write_bytes(raw)
        fresh.replace(path)
        self.at("after the state is on disk")

    def _write_whole(self, path: Path, text: str) -> None:
        self.at("before a file is written")
        if self.disk_full:
            raise OSError(28, "No space left on device")
        _WRITE_WHOLE(path, text)


_WRITE_WHOLE = handover.write_whole
