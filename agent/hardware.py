"""The GPUs and the host of this node, real or simulated."""

import argparse
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import wire
from agent.host.device_nodes import DriverDeviceNodes
from agent.host.machine import (
    Host,
    host_read,
    host_simulated,
    inventory_take,
    process_signal,
)
from agent.host.open_files import HostOpenFiles
from agent.nvml.gpu import NvmlGpu
from agent.nvml.timeout_wrapper import TimeoutDeviceNodes, driver_open
from agent.nvml.watch import NvmlWatch, process_user
from agent.owner.accounts import AccountDirectory
from agent.owner.cdi import DeviceNodes, driver_edits
from agent.owner.cgroups import Cgroups, CgroupsUnavailable, subtree_prepare
from agent.owner.device_acls import Access, SetFacl
from agent.owner.hooks import ModeHooks
from agent.owner.slices import (
    device_number,
)
from agent.ports.gpu import GpuPort, WatchPort, watched
from agent.ports.handover import HandoverObserver
from agent.ports.programs import HostPrograms, Programs
from agent.ports.suspender import Suspender, cuda_checkpoint_find
from agent.ports.systemd import Systemd, Units, limits_refusal
from agent.ports.worker_threads import WorkerThreads
from agent.simulated.device_nodes import (
    SimulatedAccess,
    SimulatedDeviceNodes,
    SimulatedUnits,
)
from agent.simulated.hardware import Hardware
from agent.simulated.models import fleet_parse
from agent.simulated.nvml import installed
from agent.simulated.programs import (
    SimulatedPrograms,
    SimulatedSuspender,
    SimulatedUsers,
    simulated_port,
)

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHardware:
    """The drivers of this node, or simulated ones with simulated users."""

    port: GpuPort
    watch: WatchPort
    host: Host
    nodes: DeviceNodes
    programs: Programs
    suspender: Suspender | None
    access: Callable[[], Access] = SetFacl
    units: Callable[[], Units] = Systemd
    number_of: Callable[[str], int] = device_number
    owners: tuple[HandoverObserver, ...] = ()
    driver: Callable[[], dict[str, Any]] = dict
    cgroups: Cgroups | None = None

    def inventory(self) -> wire.Inventory:
        """Raises GpuError."""
        return inventory_take(self.host, self.port)


def hardware_open(
    options: argparse.Namespace, directory: AccountDirectory, stack: contextlib.ExitStack
) -> NodeHardware:
    """Returns the drivers that the options name; `stack` closes them.

    Raises GpuError, ValueError, and OSError.
    """
    opened = _simulated if options.simulate else _real
    return _limited(opened(options, directory, stack), options)


def _real(
    options: argparse.Namespace, directory: AccountDirectory, stack: contextlib.ExitStack
) -> NodeHardware:
    threads = WorkerThreads()
    services = frozenset(filter(None, options.gpu_services.split(",")))
    port, watch = driver_open(
        threads,
        lambda: NvmlGpu(
            process_signal,
            files=HostOpenFiles(services=services),
            unwatched=ModeHooks(options.hooks, options.state) if options.hooks else watched,
        ),
        lambda: NvmlWatch(lambda pid: process_user(pid, directory.name)),
        stack,
    )
    return NodeHardware(
        port,
        watch,
        host_read(options.name),
        TimeoutDeviceNodes(DriverDeviceNodes(), threads),
        HostPrograms(name_of=directory.name),
        cuda_checkpoint_find(options.state / "toggles", port.driver()),
        driver=driver_edits,
    )


def _simulated(
    options: argparse.Namespace, _: AccountDirectory, stack: contextlib.ExitStack
) -> NodeHardware:
    models = fleet_parse(options.simulate)
    hardware = Hardware(
        options.name,
        models,
        state=options.state / "simulated.json",
        clock=time.time,
        driver=options.simulate_driver,
    )
    stack.enter_context(installed(hardware))
    port, watch = driver_open(
        WorkerThreads(),
        lambda: simulated_port(hardware),
        lambda: NvmlWatch(hardware.process_user),
        stack,
    )
    return NodeHardware(
        port,
        watch,
        host_simulated(options.name, len(models)),
        SimulatedDeviceNodes(hardware),
        SimulatedPrograms(hardware),
        SimulatedSuspender(hardware),
        access=SimulatedAccess,
        units=SimulatedUnits,
        number_of=lambda path: 0,
        owners=(SimulatedUsers(hardware),),
    )


def _limited(machine: NodeHardware, options: argparse.Namespace) -> NodeHardware:
    """Returns the same with limits of host cores and memory, where they can be enforced.

    Raises ValueError.
    """
    option = options.cgroup
    if "slice" in options.device_permissions:
        if option != "off":
            raise ValueError("slices keep bookings to cores and memory themselves: no --cgroup")
        return _limited_by_slices(machine, simulated=bool(options.simulate))
    if option == "off":
        host = dataclasses.replace(machine.host, limits_note="the agent runs without --cgroup")
        return dataclasses.replace(machine, host=host)
    try:
        cgroups = Cgroups(subtree_prepare(option), machine.programs)
    except CgroupsUnavailable as error:
        log.warning("host cores and memory are not enforced: %s", error)
        host = dataclasses.replace(machine.host, limits_note=str(error))
        return dataclasses.replace(machine, host=host)
    host = dataclasses.replace(machine.host, limits="enforced")
    return dataclasses.replace(machine, host=host, cgroups=cgroups)


def _limited_by_slices(machine: NodeHardware, *, simulated: bool) -> NodeHardware:
    note = "simulated slices limit nothing" if simulated else limits_refusal()
    limits: wire.HostLimits = "counted" if note else "enforced"
    host = dataclasses.replace(machine.host, limits=limits, limits_note=note)
    return dataclasses.replace(machine, host=host)
