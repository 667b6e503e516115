"""A simulated node: the real agent over simulated GPUs, on a disk that outlives it."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pynvml

import wire
from agent.host.machine import Host, inventory_take
from agent.node import Node
from agent.nvml.gpu import NvmlGpu
from agent.nvml.timeout_wrapper import ALL_GPUS, TimeoutGpu, TimeoutWatch
from agent.owner import booking_files
from agent.owner.booking_files import BookingFiles
from agent.ports import handover
from agent.ports import link as links
from agent.ports.clock import Clock
from agent.ports.gpu import GpuError, GpuPort
from agent.process import Agent
from agent.report import reports
from agent.state import store
from agent.state.documents import Keys
from agent.state.enrol import Identity
from agent.state.store import Store
from devtools.simulated.drivers import DRIVERS
from devtools.simulated.host import host_simulated
from devtools.simulated.nvml import SimulatedNvml
from devtools.simulated.processes import Kind
from devtools.simulated.programs import SimulatedPrograms, simulated_port
from tests.simulation.nodes.disk import Disk
from tests.simulation.nodes.machine import (
    Machine,
    QuietWatch,
    SlowSuspender,
    SlowWorkerThreads,
    WatchedHandover,
)
from tests.simulation.nodes.occupancy import Occupancy, is_foreign
from wire import DesiredAllocation

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
    "before a program is frozen or woken",
    "while a program is frozen or woken",
    "before a device is handed over",
    "after a device is handed over",
    "after a device is taken back",
    "before a word is said",
    "after a word is said",
)
# Those that every life comes to soon hide the others.
COMMON_POINTS = tuple(p for p in CRASH_POINTS if p.endswith(("on disk", "said")))
RARE_POINTS = tuple(p for p in CRASH_POINTS if p not in COMMON_POINTS)
WATCHER = "nv-hostengine"
_BEGINNINGS = (
    "before a slice is made",
    "after the mode has changed",
    "before a device is handed over",
)


class Crash(BaseException):
    """The agent dies here: no handler of its own may see it."""


@dataclass(frozen=True)
class Stopped:
    """Somebody lost a device, or was asked to let it go, at `wall` by the node's clock; under a
    notice that was delivered, or none. `early`: before their document says so."""

    allocation: str
    wall: float
    notice: str | None
    early: bool


class SimNode:
    """`clock` is everybody's time. `overlaps` collects what was held twice, `stopped` who had to
    stop."""

    def __init__(
        self, name: str, gpus: int, folder: Path, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.name, self.folder, self.rng, self._clock = name, folder / name, rng, clock
        self.folder.mkdir()
        self.skew = 0.0
        self.disk_full = False
        # Until when the agent is stopped (SIGSTOP), and does nothing.
        self.stopped_until: float | None = None
        self._disk = Disk()
        self.armed: tuple[frozenset[str], int] | None = None
        self.receives = self.sends = True
        self.outbox: list[links.Outgoing] = []
        self.arrivals: list[links.Arrival] = []
        self.overlaps: list[str] = []
        # Those of which what was frozen has died.
        self.died_frozen: set[str] = set()
        # (epoch, generation) of the documents that something was begun for.
        self.fences: list[tuple[int, int]] = []
        self.stopped: list[Stopped] = []
        # Since when the agent runs and its driver answers; None: it can't do all that it must.
        self.able_since: float | None = clock()
        self.boots = 0
        # Readings take a tenth of all the time, and no invariant depends on them.
        self.measures = rng.random() < 0.2
        self.happened: Counter[str] = Counter()
        self.lease: bytes | None = None
        # What a driver and its users are like draws from a source of its own: it leaves the
        # schedule of a seed as it is.
        self.kinds = random.Random(str(rng.getstate()[1][:8]) + name)  # noqa: S311
        self._hardware_begin(gpus)
        self.agent: Agent | None = None
        self.identity: Identity | None = None
        self.node: Node | None = None

    def _hardware_begin(self, gpus: int) -> None:
        """The GPUs, their driver and who watches them."""
        self.hardware = Machine(self, gpus, self._clock, self.kinds.choice(sorted(DRIVERS)))
        self.is_watched = self.kinds.random() < 0.3
        self.watchers_start()
        self.driver = SimulatedNvml(self.hardware)
        # GPUs about which the driver does not come back from any call.
        self.hanging: set[str] = set()
        self._threads = SlowWorkerThreads(self)
        self._symbols: dict[str, Any] = {}
        self._inventories: dict[object, wire.Inventory] = {}
        self.occupancy = Occupancy(self.hardware)

    def inventory(self) -> wire.Inventory:
        """As the agent would say it."""
        with self.at_driver():
            port = simulated_port(self.hardware)
            return self._inventory(self._host(), port)

    def _inventory(self, host: Host, port: GpuPort) -> wire.Inventory:
        """Hundreds of calls, and always the same answers as long as nothing has changed."""
        if self.hanging or any(self.driver.faults.values()):
            return inventory_take(host, port)
        seen = (host.boot, *((gpu.lost, gpu.mig) for gpu in self.hardware.gpus))
        if seen not in self._inventories:
            self._inventories[seen] = inventory_take(host, port)
        return self._inventories[seen]

    def _host(self) -> Host:
        host = host_simulated(self.name, len(self.hardware.gpus))
        return replace(host, boot=f"{host.boot[:-2]}{self.boots:02}")

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
            mock.patch.object(handover, "write_atomic", self._write_atomic),
            mock.patch.object(booking_files, "write_atomic", self._write_atomic),
            mock.patch.object(reports, "samples_take", self._samples_take),
        ):
            yield

    # The life of an agent.

    def boot(self) -> None:
        """The agent starts, from its disk; where the driver does not answer it ends
        at once, to be started again."""
        self.outbox.clear()
        self.arrivals = [links.Connected()]
        self.lease = None
        try:
            with self.at_driver():
                self.agent = self._agent()
        except GpuError:
            self.agent = None

    def _agent(self) -> Agent:
        identity = self.identity
        assert identity is not None
        state, host = self.folder, self._host()
        keys = identity.keys
        lanes = self._threads
        port = TimeoutGpu(lanes.change(ALL_GPUS, self._driver_open), lanes)
        self.node = Node(
            keys=Keys(identity, state / "identity.json"),
            port=port,
            store=Store(state / "state.json", keys=keys, epoch=identity.epoch, now=self.wall()),
            handover=WatchedHandover(state / "bookings", self),
            bookings=BookingFiles(state / "bookings"),
            inventory=lambda: self._inventory(host, port),
            programs=SimulatedPrograms(self.hardware),
            suspender=SlowSuspender(self),
            watch=TimeoutWatch(QuietWatch(self.hardware), lanes),
        )
        return Agent(self.node, Clock(wall=self.wall, steady=self._clock))

    def _driver_open(self) -> NvmlGpu:
        return simulated_port(self.hardware, self._unwatched)

    def watchers_start(self) -> None:
        """Services of the site that have all GPUs open."""
        if self.is_watched:
            for gpu in self.hardware.gpus:
                self.hardware.holder_start(gpu.uuid, label=WATCHER, kind="file", service=True)

    @contextlib.contextmanager
    def _unwatched(self, _: str) -> Iterator[None]:
        """The site's hooks stop its services for a change of mode."""
        for gpu in self.hardware.gpus:
            for each in [p for p in gpu.processes.values() if p.service]:
                del gpu.processes[each.pid]
                self.happened["services stopped for a change"] += 1
        try:
            yield
        finally:
            self.watchers_start()

    def answers(self) -> None:
        """The driver comes back from every call that hung."""
        self.hanging.clear()
        try:
            with self.at_driver():
                self._threads.come_back()
        except Crash:
            self.kill()
        self.look()

    def kill(self) -> None:
        """kill -9; what was on its way to the server is gone with it."""
        self.agent, self.armed, self.stopped_until = None, None, None
        self.outbox.clear()

    def stops_for(self, seconds: float) -> None:
        """SIGSTOP: the process stays, with all that it knows."""
        self.stopped_until = self._clock() + seconds
        self.able_since = None

    def continues(self) -> None:
        """SIGCONT: it does what is due by its clock before it reads anything new."""
        self.stopped_until = None
        if self.agent is None:
            return
        try:
            with self.at_driver():
                self.agent.turn(self)
        except Crash:
            self.kill()
        self.look()

    @property
    def is_stopped(self) -> bool:
        return self.stopped_until is not None and self._clock() < self.stopped_until

    def wall(self) -> float:
        """The node's own clock."""
        return self._clock() + self.skew

    def loses_power(self) -> None:
        """And is there again, with what is on its disk."""
        self.kill()
        self.boots += 1
        self.hanging.clear()
        self._threads = SlowWorkerThreads(self)
        written = sorted(path for path in self.folder.rglob("*") if path.is_file())
        unsynced = [path for path in written if path.name != "state.json"]
        self._disk.loses_power(unsynced, self.kinds)
        self.hardware.power_cycle()
        self.watchers_start()
        self.look()
        self.boot()

    def works(self, document: bytes | None, lease: bytes | None = None) -> None:
        """The agent takes what arrived, does what is due and says it; perhaps it dies of it."""
        if self.stopped_until is not None and not self.is_stopped:
            self.continues()
        if self.agent is None or self.is_stopped:
            return
        arrivals, self.arrivals = self.arrivals, []
        if document is not None:
            arrivals.append(links.DocumentRead(document))
        if lease is not None and lease != self.lease:
            self.lease = lease
            arrivals.append(links.LeaseRead(lease))
        try:
            with self.at_driver():
                for arrival in arrivals:
                    self.agent.handle(arrival, self)
                self.agent.turn(self)
        except Crash:
            self.kill()
        self.look()

    def waits(self) -> float | None:
        """To be called before time passes: the agent notes what will be due, and returns in how
        many seconds."""
        if self.agent is None:
            return None
        if self.stopped_until is not None:
            return max(0.0, self.stopped_until - self._clock())
        return self.agent.wait_s()

    def is_on_lease(self) -> bool:
        """Whether something here has to end in time if the portal is not heard."""
        held = self.node.store.held.values() if self.node is not None else ()
        return any(each.allocation.lease and each.given and not each.emptied for each in held)

    def send(self, outgoing: links.Outgoing) -> None:
        """See voice.Sender: said, and waiting for the server."""
        self.at("before a word is said")
        self.outbox.append(outgoing)
        self.at("after a word is said")

    # What the owners of bookings do.

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        """Most run something, soon; some programs end only when they are killed."""
        if self.rng.random() < 0.8 and allocation.resumes is None:
            pid = self.hardware.process_start(
                device,
                label=allocation.id,
                delay_s=self.rng.choice((0, 0, 2, 20)),
                stubborn=self.rng.random() < 0.2,
            )
            kind = self.kinds.choice(("compute", *get_args(Kind)))
            self.hardware.use_as(pid, kind)
            self.happened["programs that are on no list"] += kind == "file"
            self.happened["programs on the other lists"] += kind in ("graphics", "mps")

    def taken(self, allocation: str) -> None:
        """Nobody starts anything on what is no longer theirs."""
        self.hardware.process_forget(allocation)

    def frozen_dies(self) -> str | None:
        """Somebody ends a program that is frozen, past the agent; returns whose it was."""
        frozen = {
            process.pid: process.label
            for gpu in self.hardware.gpus
            for process in gpu.processes.values()
            if process.frozen and process.pid not in self.hardware.toggles
        }
        if not frozen or self.node is None:
            return None
        pid = self.rng.choice(sorted(frozen))
        for gpu in self.hardware.gpus:
            gpu.processes.pop(pid, None)
        runs = self.occupancy.runs_of(frozen[pid])
        held = self.node.store.held.values()
        # An earlier run may have gone on as it should.
        went_on = {each.allocation.resumes for each in held if each.resumed}
        self.died_frozen |= {run for run in runs if run not in went_on}
        self.happened["frozen programs that died"] += 1
        return runs[-1]

    def unreported_deaths(self) -> list[str]:
        """Runs that were to resume programs that had died, and whose owners were not notified."""
        if self.node is None or not self.died_frozen:
            return []
        held = self.node.store.held.values()
        on = (each for each in held if each.allocation.resumes in self.died_frozen)
        return [each.allocation.id for each in on if each.resumed and each.note is None]

    # What is seen.

    def at(self, point: str) -> None:
        """The agent is here; raises Crash when it is to die here."""
        if point in _BEGINNINGS and self.node is not None:
            self.fences.append((self.node.store.epoch, self.node.store.generation))
        if self.armed is None or point not in self.armed[0]:
            return
        points, skipped = self.armed
        if skipped > 0:
            self.armed = (points, skipped - 1)
            return
        self.armed = None
        self.happened[f"died {point}"] += 1
        raise Crash(point)

    def stops(self, label: str) -> None:
        """The agent takes a device, or lets a program end."""
        name = self.occupancy.now_of(label)
        if is_foreign(name):
            self.overlaps.append(f"{name} was ended, and is nobody's here")
            return
        assert self.node is not None
        record, desired = self.node.store.held.get(name), self.node.store.desired
        every = (a for gpu in desired.gpus for a in gpu.allocations) if desired else ()
        running = next((a for a in every if a.id == name and a.state == "run"), None)
        # A disk that is full may have lost the mark: the lease itself decides.
        fenced = record is not None and (record.fenced or (record.allocation.lease and not self._has_lease()))
        self.happened["leases that ran out"] += fenced
        early = running is not None and self.wall() < running.ends and not fenced
        notice = None if record is None or fenced else record.notice
        self.stopped.append(Stopped(name, self.wall(), notice, early))

    def _has_lease(self) -> bool:
        return self.agent is not None and self.agent._leases.is_valid(self._clock())

    def look(self) -> None:
        """Records who holds what, and whether the agent can do what it must."""
        self.hardware.toggles_settle()
        self.overlaps += self.occupancy.look()
        lost = any(gpu.lost for gpu in self.hardware.gpus)
        broken = lost or bool(self.hanging) or any(self.driver.faults.values())
        if self.agent is None or self.stopped_until is not None or broken:
            self.able_since = None
        elif self.able_since is None:
            self.able_since = self._clock()

    def slots_of(self, device: str) -> tuple[str, int, int]:
        """Of a device by UUID."""
        for gpu in self.hardware.gpus:
            for instance in gpu.instances.values():
                if gpu.mig_uuid(instance) == device:
                    return gpu.uuid, instance.start, instance.start + instance.profile.size
        return device, 0, 8

    def _samples_take(self, *requested: Any) -> tuple[wire.Sample, ...]:  # noqa: ANN401 (as the real one)
        return _SAMPLES_TAKE(*requested) if self.measures else ()

    def _write_synced(self, path: Path, raw: bytes) -> None:
        self.at("before the state is on disk")
        if self.disk_full:
            raise OSError(28, "No space left on device")
        self._disk.write_synced(path, raw)
        self.at("after the state is on disk")

    def _write_atomic(self, path: Path, text: str) -> None:
        self.at("before a file is written")
        if self.disk_full:
            raise OSError(28, "No space left on device")
        _WRITE_ATOMIC(path, text)


_WRITE_ATOMIC = handover.write_atomic
_SAMPLES_TAKE = reports.samples_take
