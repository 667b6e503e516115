"""`gpu-agent`: options, enrolment, and the agent until it has to stop.

`gpu-agent run BK-12 -- COMMAND …` runs a program of a booking: see run.py, and `gpu-agent saved
BK-12` says that it has saved everything: see saved.py. `gpu-agent doctor` says what of this node
works, and what to do: see doctor.py. `gpu-agent unit` prints systemd's units: see unit.py.
From a checkout the same is `python -m allocation.agent`.
"""

import argparse
import contextlib
import dataclasses
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allocation import wire
from allocation.agent import run, saved, unit
from allocation.agent.doctor import command
from allocation.agent.host.device_nodes import DriverDeviceNodes
from allocation.agent.host.machine import (
    Host,
    host_read,
    host_simulated,
    inventory_take,
    process_signal,
)
from allocation.agent.host.network import network_find
from allocation.agent.host.open_files import HostOpenFiles
from allocation.agent.host.other_owners import OtherSchedulers
from allocation.agent.node import Node
from allocation.agent.nvml.gpu import NvmlGpu
from allocation.agent.nvml.timeout_wrapper import (
    ALL_GPUS,
    TimeoutDeviceNodes,
    TimeoutGpu,
    TimeoutWatch,
)
from allocation.agent.nvml.watch import NvmlWatch, process_user
from allocation.agent.options import options_parse
from allocation.agent.owner.accounts import LoginProgram
from allocation.agent.owner.booking_files import BookingFiles
from allocation.agent.owner.cdi import Cdi, DeviceNodes, driver_edits
from allocation.agent.owner.cgroups import Cgroups, CgroupsUnavailable, subtree_prepare
from allocation.agent.owner.device_acls import Access, DeviceAcls, SetFacl
from allocation.agent.owner.directory import AccountDirectory
from allocation.agent.owner.hooks import Hooks
from allocation.agent.owner.mode_hooks import ModeHooks
from allocation.agent.owner.mps_units import FOLDER, MpsUnits
from allocation.agent.owner.shares import NodeContext, cuda_order
from allocation.agent.owner.slices import (
    LOGINS_FOLDER,
    Account,
    Slices,
    SliceSettings,
    device_number,
)
from allocation.agent.ports.gpu import GpuError, GpuPort, WatchPort, watched
from allocation.agent.ports.handover import Handover, HandoverObserver
from allocation.agent.ports.host_cores import core_topology_read, core_topology_simulated
from allocation.agent.ports.link import Link
from allocation.agent.ports.programs import HostPrograms, Programs
from allocation.agent.ports.supervisor import Supervisor
from allocation.agent.ports.suspender import Suspender, cuda_checkpoint_find
from allocation.agent.ports.systemd import Systemd, Units, limits_refusal, unit_of
from allocation.agent.ports.worker_threads import OPEN_LIMIT_S, WorkerThreads
from allocation.agent.process import Agent, Stop
from allocation.agent.report.examination import Examiner, doctor_command
from allocation.agent.report.metrics import MetricsBoard, metrics_serve
from allocation.agent.simulated.checkpoint import SimulatedSuspender
from allocation.agent.simulated.device_nodes import (
    SimulatedAccess,
    SimulatedDeviceNodes,
    SimulatedUnits,
)
from allocation.agent.simulated.hardware import Hardware
from allocation.agent.simulated.models import fleet_parse
from allocation.agent.simulated.nvml import installed
from allocation.agent.simulated.owners import SimulatedUsers
from allocation.agent.simulated.programs import SimulatedPrograms, simulated_port
from allocation.agent.state.documents import Keys
from allocation.agent.state.enrol import (
    EnrolmentRefused,
    Identity,
    PortalUnreachable,
    enrol,
    identity_load,
)
from allocation.agent.state.store import Store, StoreError, folder_locked

log = logging.getLogger("allocation.agent")

IDENTITY = "identity.json"
LOGIN = "login"
ACCOUNTS = "accounts.json"
_LONGEST_RETRY_S = 30


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """0 after a stop, 1 when the node can't be served."""
    if arguments[:1] == ["run"]:
        return run.main(arguments[1:], environment)
    if arguments[:1] == ["saved"]:
        return saved.main(arguments[1:], environment)
    if arguments[:1] == ["doctor"]:
        return command.main(arguments[1:], environment)
    if arguments[:1] == ["unit"]:
        return unit.main(arguments[1:])
    options = options_parse(arguments, environment)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder_locked(options.state))
            directory = AccountDirectory(options.state / ACCOUNTS)
            machine = _limited(_machine(options, directory, stack), options)
            identity = _identity(options, machine)
            supervisor = Supervisor(environment)
            node = _node(options, identity, machine, directory, stack)
            agent = Agent(dataclasses.replace(node, alive=supervisor.alive))
            examiner = Examiner(doctor_command(options), environment, agent.inbox.put)
            stack.callback(examiner.stop)
            _serve(agent, identity, supervisor, examiner)
    except (EnrolmentRefused, GpuError, StoreError, OSError, ValueError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        return 1
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHardware:
    """The GPUs of this machine, or simulated ones with simulated people."""

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


def _limited(machine: NodeHardware, options: argparse.Namespace) -> NodeHardware:
    """The same, keeping bookings to their cores and memory where it may. Raises ValueError."""
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


def _machine(
    options: argparse.Namespace, directory: AccountDirectory, stack: contextlib.ExitStack
) -> NodeHardware:
    threads = WorkerThreads()
    if not options.simulate:
        services = frozenset(filter(None, options.gpu_services.split(",")))
        port, watch = _driver(
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
    models = fleet_parse(options.simulate)
    hardware = Hardware(
        options.name,
        models,
        state=options.state / "simulated.json",
        clock=time.time,
        driver=options.simulate_driver,
    )
    stack.enter_context(installed(hardware))
    port, watch = _driver(
        threads,
        lambda: simulated_port(hardware),
        lambda: NvmlWatch(hardware.process_user),
        stack,
    )
    host = host_simulated(options.name, len(models))
    return NodeHardware(
        port,
        watch,
        host,
        SimulatedDeviceNodes(hardware),
        SimulatedPrograms(hardware),
        SimulatedSuspender(hardware),
        access=SimulatedAccess,
        units=SimulatedUnits,
        number_of=lambda path: 0,
        owners=(SimulatedUsers(hardware),),
    )


def _driver(
    threads: WorkerThreads,
    gpu: Callable[[], GpuPort],
    watch: Callable[[], WatchPort],
    stack: contextlib.ExitStack,
) -> tuple[GpuPort, WatchPort]:
    """Raises GpuError: also for a driver that hangs already, as nothing can be served then."""
    port = TimeoutGpu(threads.change(ALL_GPUS, gpu, OPEN_LIMIT_S), threads)
    stack.callback(port.close)
    watching = TimeoutWatch(threads.change(ALL_GPUS, watch, OPEN_LIMIT_S), threads)
    stack.callback(watching.close)
    return port, watching


def _identity(options: argparse.Namespace, machine: NodeHardware) -> Identity:
    """The saved one, else by enrolment, for as long as the portal does not answer."""
    path = options.state / IDENTITY
    found = identity_load(path)
    if found is not None and not options.enrol_again:
        return found
    if not options.portal or not options.token:
        raise ValueError("to enrol this node, give --portal and --token once")
    inventory = machine.inventory()
    for pause in itertools.chain((1, 2, 4, 8, 16), itertools.repeat(_LONGEST_RETRY_S)):
        try:
            return enrol(portal=options.portal, token=options.token, inventory=inventory, path=path)
        except PortalUnreachable as error:
            log.warning("%s; next try in %d s", error, pause)
            time.sleep(pause)
    raise AssertionError("unreachable: the pauses never end")


def _node(
    options: argparse.Namespace,
    identity: Identity,
    machine: NodeHardware,
    directory: AccountDirectory,
    stack: contextlib.ExitStack,
) -> Node:
    state: Path = options.state
    store = Store(state / "state.json", keys=identity.keys, epoch=identity.epoch, now=time.time())
    gpus = machine.inventory().gpus
    near = {gpu.uuid: gpu.numa for gpu in gpus}
    topology = core_topology_read(near)
    if options.simulate:
        topology = core_topology_simulated(machine.host.cores, near)
    cdi = Cdi(options.cdi, machine.nodes, machine.driver()) if options.cdi else None
    hooks = Hooks(options.hooks, state) if options.hooks else None
    if hooks is not None:
        stack.callback(hooks.stop)
    device_acls = None
    if "acl" in options.device_permissions:
        access = machine.access()
        device_acls = DeviceAcls(machine.nodes, access, state / "doors.json", directory.uid)
    memory = {gpu.uuid: gpu.memory_mb for gpu in gpus}
    board = None
    if options.metrics:
        board = MetricsBoard(identity.node)
        port, stop = metrics_serve(board, options.metrics)
        stack.callback(stop)
        log.info("metrics on port %d", port)
    place = NodeContext(
        identity.node,
        state.absolute() / "bookings",
        options.mps,
        memory,
        order=cuda_order(gpus),
        hidden=options.device_permissions != "off",
        network=None if options.simulate else network_find(options.interface),
        topology=topology,
    )
    account_of = _accounts(options, directory)
    if account_of is not None:
        place = dataclasses.replace(place, account_of=account_of)
    slices = _slices(options, machine, directory, account_of or directory.account)
    if slices is not None:
        place = dataclasses.replace(place, slice_of=_unit_of(directory))
    return Node(
        keys=Keys(identity, state / IDENTITY),
        port=machine.port,
        store=store,
        handover=Handover(place.root, machine.owners, place.share, topology, slices),
        bookings=BookingFiles(
            place.root,
            cdi=cdi,
            device_acls=device_acls,
            hooks=hooks,
            cgroups=machine.cgroups,
            uid_of=directory.uid,
        ),
        inventory=machine.inventory,
        watch=machine.watch,
        board=board,
        place=place,
        programs=machine.programs,
        suspender=machine.suspender,
        pause_signal=options.pause_signal,
        one_account=not options.many_accounts,
        may_end=_may_end(options),
        mps=_mps(options, stack),
        account_of=account_of or directory.account,
        slices=slices,
        available_mb=_room(slices, machine.cgroups),
    )


def _mps(options: argparse.Namespace, stack: contextlib.ExitStack) -> MpsUnits | None:
    """Raises OSError, ValueError."""
    if not options.mps_units:
        return None
    if options.mps != FOLDER:
        raise ValueError(f"with --mps-units the daemons listen in {FOLDER}: leave --mps out")
    units = MpsUnits()
    stack.callback(units.stop)
    return units


def _slices(
    options: argparse.Namespace,
    machine: NodeHardware,
    directory: AccountDirectory,
    account_of: Callable[[str], str | None],
) -> Slices | None:
    """Raises OSError where they are asked for and this node can't enforce their rules."""
    if "slice" not in options.device_permissions:
        return None

    def account(member: str) -> Account | None:
        name = account_of(member)
        uid = None if name is None else directory.uid(name)
        return None if name is None or uid is None else (name, uid)

    logins = options.state / "logins" if options.simulate else LOGINS_FOLDER
    site = SliceSettings(machine.nodes, account, options.slice_devices, logins, machine.number_of)
    return Slices(machine.units(), site, machine.programs)


def _unit_of(directory: AccountDirectory) -> Callable[[str, str], str]:
    """The slice of an account's booking, empty while the account is not known."""

    def unit(account: str, booking: str) -> str:
        uid = directory.uid(account)
        return "" if uid is None else unit_of(uid, booking)

    return unit


def _room(slices: Slices | None, cgroups: Cgroups | None) -> Callable[[str], int | None]:
    """What the memory limit of a booking leaves it."""
    if slices is not None:
        return slices.available_mb
    return cgroups.available_mb if cgroups is not None else lambda booking: None


def _may_end(options: argparse.Namespace) -> Callable[[], bool]:
    """Whether programs may be ended because nobody gave them their device."""
    if options.never_end_strangers:
        return lambda: False
    return (lambda: True) if options.simulate else OtherSchedulers().none


def _accounts(
    options: argparse.Namespace, directory: AccountDirectory
) -> Callable[[str], str | None] | None:
    """The site's own program that knows its members' accounts, if there is one."""
    program = options.hooks / LOGIN if options.hooks else None
    if program is None or not program.is_file():
        return None
    return LoginProgram(program, uid_of=directory.uid).account_of


def _serve(agent: Agent, identity: Identity, supervisor: Supervisor, examiner: Examiner) -> None:
    link = Link(url=identity.redis_url, node=identity.node, deliver=agent.inbox.put)
    # A signal only asks the loop to end, so that no step is cut in half.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.inbox.put(Stop()))
    log.info("serving as node %s", identity.node)
    link.start()
    supervisor.ready()
    examiner.start()
    agent.run(link)
    supervisor.stopping()
    link.stop()
    log.info("stopped; what runs on the GPUs goes on")


def console() -> int:
    """Entry point of the program `gpu-agent`."""
    return main(sys.argv[1:], os.environ)


if __name__ == "__main__":
    sys.exit(console())
