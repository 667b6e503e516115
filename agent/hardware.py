"""The GPUs and the host of this node, and the platform that they are from."""

import argparse
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wire
from agent.amd.gpu import AmdGpu
from agent.amd.library import Smi, library_load
from agent.amd.measure import AmdWatch
from agent.amd.processors import AmdDeviceNodes, Processors
from agent.cores.port import HostCores
from agent.device_files.listed import devices_read
from agent.device_files.port import FileDevices, FileWatch, ListedNodes
from agent.doctor.driver import ExaminedDriver, driver_load
from agent.host.device_nodes import DriverDeviceNodes
from agent.host.machine import (
    Host,
    host_read,
    inventory_take,
    process_signal,
)
from agent.host.network import Network, network_find
from agent.host.open_files import AMD_FILE, HostOpenFiles, OpenFiles
from agent.host.other_owners import OtherSchedulers
from agent.kubernetes.parts import BookingParts
from agent.nvml.exporter import Exporter
from agent.nvml.gpu import NvmlGpu
from agent.nvml.timeout_wrapper import TimeoutDeviceNodes, driver_open
from agent.nvml.watch import NvmlWatch, process_user
from agent.owner.accounts import AccountDirectory
from agent.owner.cdi import DeviceNodes, driver_edits
from agent.owner.cgroups import Cgroups, CgroupsUnavailable, subtree_prepare
from agent.owner.device_acls import Access, SetFacl
from agent.owner.hooks import ModeHooks
from agent.owner.slices import LOGINS_FOLDER, device_number
from agent.ports.gpu import GpuPort, WatchPort, watched
from agent.ports.group_use import GroupUse, LinkUse, links_use
from agent.ports.handover import HandoverObserver
from agent.ports.host_cores import (
    CoreDevices,
    CoreTopology,
    core_device,
    core_topology_read,
    cores_parse,
)
from agent.ports.notebook_programs import NotebookStarter
from agent.ports.programs import HostPrograms, Programs
from agent.ports.suspender import Suspender, cuda_checkpoint_find
from agent.ports.systemd import Systemd, Units, limits_refusal
from agent.ports.worker_threads import WorkerThreads
from agent.slurm.jobs import BookingJobs
from agent.state.store import Store

log = logging.getLogger(__name__)

EngineJobs = BookingJobs | BookingParts
"""The jobs of bookings, or what stands for them, by the kind of scheduler."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHardware:
    """The drivers of this node, and the machine around them. `jobs` makes, from the accounts of
    members and the agent's state, the jobs of another scheduler that holds the devices. `account_of` is
    set where members need no account of the host. `group_use` reads what a booking uses where no cgroup
    does, `links_use` the node's RDMA adapters. `starter` is for notebooks; None: they start as the accounts
    of their owners. `files_of` is set where programs find a device by its files, and `rocm_name_of` where
    they find it by its name for ROCm."""

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
    topology: Callable[[Mapping[str, int | None]], CoreTopology] = core_topology_read
    network: Callable[[str | None], Network | None] = network_find
    logins: Path = LOGINS_FOLDER
    slices_refusal: Callable[[], str] = limits_refusal
    jobs: Callable[[Callable[[str], str | None], Store], EngineJobs] | None = None
    account_of: Callable[[str], str | None] | None = None
    starter: NotebookStarter | None = None
    files_of: Callable[[str], tuple[str, ...]] | None = None
    rocm_name_of: Callable[[str], str] | None = None
    group_use: Callable[[str], GroupUse | None] | None = None
    links_use: Callable[[], LinkUse | None] = links_use
    is_only_owner: Callable[[], bool] = dataclasses.field(default_factory=lambda: OtherSchedulers().none)

    def inventory(self) -> wire.Inventory:
        """Raises GpuError."""
        return inventory_take(self.host, self.port)


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
            exporter=Exporter(options.dcgm_exporter) if options.dcgm_exporter else None,
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


def _listed(options: argparse.Namespace, directory: AccountDirectory) -> NodeHardware:
    """The devices of the site's list. Raises OSError, ValueError."""
    devices = devices_read(options.device_list)
    paths = frozenset(file for device in devices for file in device.files)
    services = frozenset(filter(None, options.gpu_services.split(",")))
    return NodeHardware(
        FileDevices(devices, process_signal, HostOpenFiles(services=services, paths=paths)),
        FileWatch(lambda pid: process_user(pid, directory.name)),
        host_read(options.name),
        ListedNodes(devices),
        HostPrograms(name_of=directory.name),
        suspender=None,
        files_of=ListedNodes(devices).of,
    )


def _amd(
    options: argparse.Namespace, directory: AccountDirectory, stack: contextlib.ExitStack
) -> NodeHardware:
    services = frozenset(filter(None, options.gpu_services.split(",")))
    parts = amd_open(
        library_load(),
        options.amd,
        HostOpenFiles(services=services, pattern=AMD_FILE),
        process_signal,
        lambda pid: process_user(pid, directory.name),
        stack,
    )
    programs = HostPrograms(name_of=directory.name)
    return NodeHardware(
        parts.port,
        parts.watch,
        host_read(options.name),
        parts.nodes,
        programs,
        suspender=None,
        rocm_name_of=parts.rocm_name_of,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AmdParts:
    """What of a node's hardware is over amdsmi."""

    port: GpuPort
    watch: WatchPort
    nodes: AmdDeviceNodes
    rocm_name_of: Callable[[str], str]


def amd_open(
    smi: Smi,
    partition: str,
    files: OpenFiles,
    signal_process: Callable[..., None],
    user_of: Callable[[int], str | None],
    stack: contextlib.ExitStack,
) -> AmdParts:
    """Opens AMD's library; `stack` closes it. Raises GpuError."""
    threads = WorkerThreads()
    opened: list[Processors] = []

    def gpu() -> AmdGpu:
        opened.append(Processors(smi))
        return AmdGpu(opened[0], partition, signal_process, files)

    port, watch = driver_open(threads, gpu, lambda: AmdWatch(opened[0], user_of), stack)
    return AmdParts(port, watch, AmdDeviceNodes(opened[0]), lambda device: opened[0].device(device).rocm_name)


def _cores(options: argparse.Namespace, directory: AccountDirectory) -> NodeHardware:
    """Cores of this host for work without a GPU. Raises ValueError."""
    if options.device_permissions != "off" or options.cdi or options.device_list or options.leave_cores:
        raise ValueError("--host-cores gives no device files: leave out options about GPUs and devices")
    cores = cores_parse(options.host_cores)
    programs = HostPrograms(name_of=directory.name)
    host = dataclasses.replace(
        host_read(options.name), cores=len(cores), memory_mb=options.host_memory, numa=lambda _: None
    )
    port = HostCores(
        {core_device(options.name, core): core for core in sorted(cores)},
        options.host_memory,
        programs=programs,
        bookings=options.state.absolute() / "bookings",
        signal_process=process_signal,
    )
    machine = NodeHardware(
        port,
        FileWatch(lambda pid: process_user(pid, directory.name)),
        host,
        ListedNodes(()),
        programs,
        suspender=None,
        owners=(port,),
        topology=lambda _: CoreDevices({0: cores}),
    )
    limited = _limited(machine, options)
    return dataclasses.replace(limited, port=port.kept_by(limited.cgroups))


def _left(machine: NodeHardware, options: argparse.Namespace) -> NodeHardware:
    """The same without the cores and the memory that another agent of this host gives to bookings.

    Raises ValueError.
    """
    cores, host = frozenset(cores_parse(options.leave_cores)), machine.host
    if len(cores) >= host.cores or options.leave_memory >= host.memory_mb:
        raise ValueError("--leave-cores and --leave-memory leave nothing to bookings of GPUs")
    host = dataclasses.replace(
        host, cores=host.cores - len(cores), memory_mb=host.memory_mb - options.leave_memory
    )
    read = machine.topology
    return dataclasses.replace(machine, host=host, topology=lambda near: read(near).without(cores))


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """Where a node's hardware is from: its drivers, or what development puts in their place.

    `doctor` is the module and the words that examine it.
    """

    hardware: Callable[[argparse.Namespace, AccountDirectory, contextlib.ExitStack], NodeHardware] = _real
    driver: Callable[[contextlib.ExitStack], ExaminedDriver] = driver_load
    amd: Callable[[argparse.Namespace, AccountDirectory, contextlib.ExitStack], NodeHardware] = _amd
    amd_load: Callable[[], Smi] = library_load
    doctor: tuple[str, ...] = ("agent", "doctor")
    is_simulated: bool = False


REAL = Platform()


def hardware_open(
    platform: Platform,
    options: argparse.Namespace,
    directory: AccountDirectory,
    stack: contextlib.ExitStack,
) -> NodeHardware:
    """Returns the drivers of the platform; `stack` closes them.

    Raises GpuError, ValueError, and OSError.
    """
    if options.device_list and options.amd:
        raise ValueError("a node has GPUs of AMD or a list of devices: not both --amd and --device-list")
    if options.host_cores:
        return _cores(options, directory)
    if options.device_list:
        machine = _listed(options, directory)
    elif options.amd:
        if options.device_permissions == "off":
            # A program with ROCm opens the files of all GPUs that it may open, whichever it uses.
            raise ValueError("--amd needs --device-permissions: open files prove that a GPU is empty")
        machine = platform.amd(options, directory, stack)
    else:
        machine = platform.hardware(options, directory, stack)
    return _limited(_left(machine, options), options)


def _limited(machine: NodeHardware, options: argparse.Namespace) -> NodeHardware:
    """Returns the same with limits of host cores and memory, where they can be enforced.

    Raises ValueError.
    """
    option = options.cgroup
    if "slice" in options.device_permissions:
        if option != "off":
            raise ValueError("slices keep bookings to cores and memory themselves: no --cgroup")
        return _limited_by_slices(machine)
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


def _limited_by_slices(machine: NodeHardware) -> NodeHardware:
    note = machine.slices_refusal()
    limits: wire.HostLimits = "counted" if note else "enforced"
    host = dataclasses.replace(machine.host, limits=limits, limits_note=note)
    return dataclasses.replace(machine, host=host)
