"""Assembles the agent of a node from its options, its identity and its hardware."""

import argparse
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path

from agent.data.folder import DataFolder
from agent.data.staging import STAGE, Stager
from agent.hardware import NodeHardware
from agent.node import Node
from agent.owner.accounts import AccountDirectory, LoginProgram
from agent.owner.booking_files import BookingFiles
from agent.owner.cdi import Cdi
from agent.owner.cgroups import Cgroups
from agent.owner.device_acls import DeviceAcls
from agent.owner.hooks import Hooks
from agent.owner.mps_units import FOLDER, MpsUnits
from agent.owner.notebooks import Notebooks, settings_read
from agent.owner.shares import NodeContext, cuda_order
from agent.owner.slices import (
    Account,
    Slices,
    SliceSettings,
)
from agent.ports.clock import Clock
from agent.ports.group_use import GroupUse
from agent.ports.handover import Handover, HandoverGuard
from agent.ports.notebook_programs import AccountStarter
from agent.ports.systemd import unit_of
from agent.report.metrics import MetricsBoard, metrics_serve
from agent.state.documents import Keys
from agent.state.enrol import (
    Identity,
)
from agent.state.store import Store

log = logging.getLogger(__name__)

IDENTITY = "identity.json"
_LOGIN = "login"


def node_assemble(
    options: argparse.Namespace,
    identity: Identity,
    hardware: NodeHardware,
    directory: AccountDirectory,
    stack: contextlib.ExitStack,
) -> Node:
    """Returns the parts of the agent; `stack` stops them.

    Raises GpuError, StoreError, OSError and ValueError.
    """
    state: Path = options.state
    store = Store(state / "state.json", keys=identity.keys, epoch=identity.epoch, now=time.time())
    account_of = hardware.account_of or _login_program(options, directory)
    account = account_of or directory.account
    slices = _slices(options, hardware, directory, account)
    context = _context(options, identity, hardware)
    if account_of is not None:
        context = dataclasses.replace(context, account_of=account)
    if slices is not None:
        context = dataclasses.replace(context, slice_of=_unit_of(directory))
    jobs = hardware.jobs(account, store) if hardware.jobs else None
    data = _data(options, stack)
    return Node(
        keys=Keys(identity, state / IDENTITY),
        port=hardware.port,
        store=store,
        handover=_handover(context, hardware, slices or jobs),
        bookings=_booking_files(options, hardware, directory, context.root, stack),
        inventory=hardware.inventory,
        watch=hardware.watch,
        board=_metrics_board(options, identity, stack),
        place=context,
        programs=hardware.programs,
        suspender=hardware.suspender,
        pause_signal=options.pause_signal,
        one_account=not options.many_accounts,
        may_end=(lambda: False) if options.never_end_unbooked else hardware.is_only_owner,
        mps=_mps(options, stack),
        account_of=account,
        slices=slices,
        jobs=jobs,
        available_mb=_available_memory(slices, hardware.cgroups),
        group_use=_group_use(slices, hardware),
        links_use=hardware.links_use,
        notebooks=_notebooks(options, hardware, directory),
        data=data,
        stager=_stager(options, data, stack),
        cores_kept=options.lend_cores if hardware.host.limits == "enforced" else None,
    )


def _handover(context: NodeContext, hardware: NodeHardware, guard: HandoverGuard | None) -> Handover:
    return Handover(context.root, hardware.owners, context.share, context.topology, guard, context.alone)


def _context(options: argparse.Namespace, identity: Identity, hardware: NodeHardware) -> NodeContext:
    gpus = hardware.inventory().gpus
    near = {gpu.uuid: gpu.numa for gpu in gpus}
    return NodeContext(
        identity.node,
        options.state.absolute() / "bookings",
        options.mps,
        {gpu.uuid: gpu.memory_mb for gpu in gpus},
        order=cuda_order(gpus),
        hidden=options.device_permissions != "off",
        network=hardware.network(options.interface),
        data=options.data.absolute() if options.data else None,
        topology=hardware.topology(near),
        files_of=hardware.files_of,
        rocm_name_of=hardware.rocm_name_of,
    )


def _booking_files(
    options: argparse.Namespace,
    hardware: NodeHardware,
    directory: AccountDirectory,
    root: Path,
    stack: contextlib.ExitStack,
) -> BookingFiles:
    hooks = Hooks(options.hooks, options.state) if options.hooks else None
    if hooks is not None:
        stack.callback(hooks.stop)
    device_acls = None
    if "acl" in options.device_permissions:
        rights = options.state / "doors.json"
        device_acls = DeviceAcls(hardware.nodes, hardware.access(), rights, directory.uid)
    return BookingFiles(
        root,
        cdi=Cdi(options.cdi, hardware.nodes, hardware.driver()) if options.cdi else None,
        device_acls=device_acls,
        hooks=hooks,
        cgroups=hardware.cgroups,
        uid_of=directory.uid,
    )


def _notebooks(
    options: argparse.Namespace, hardware: NodeHardware, directory: AccountDirectory
) -> Notebooks | None:
    """Returns the notebooks if the site offers some. Raises OSError, ValueError."""
    if not options.notebooks:
        return None
    starter = hardware.starter or AccountStarter(directory.uid)
    return Notebooks(settings_read(options.notebooks), starter, options.state)


def _data(options: argparse.Namespace, stack: contextlib.ExitStack) -> DataFolder | None:
    """Returns the cache folder if the node has one. It begins to be listed."""
    if not options.data:
        return None
    folder = DataFolder(options.data.absolute())
    folder.start()
    stack.callback(folder.stop)
    return folder


def _stager(
    options: argparse.Namespace, data: DataFolder | None, stack: contextlib.ExitStack
) -> Stager | None:
    """Returns what fetches missing data, if the site has a program `stage`."""
    program = options.hooks / STAGE if options.hooks else None
    if data is None or program is None or not program.is_file():
        return None
    stager = Stager(data, program.absolute(), options.stage_limit, Clock())
    stack.callback(stager.stop)
    return stager


def _metrics_board(
    options: argparse.Namespace, identity: Identity, stack: contextlib.ExitStack
) -> MetricsBoard | None:
    if not options.metrics:
        return None
    board = MetricsBoard(identity.node)
    port, stop = metrics_serve(board, options.metrics)
    stack.callback(stop)
    log.info("metrics on port %d", port)
    return board


def _mps(options: argparse.Namespace, stack: contextlib.ExitStack) -> MpsUnits | None:
    """Returns the MPS units if enabled. Raises OSError, ValueError."""
    if not options.mps_units:
        return None
    if options.mps != FOLDER:
        raise ValueError(f"with --mps-units the daemons listen in {FOLDER}: leave --mps out")
    units = MpsUnits()
    stack.callback(units.stop)
    return units


def _slices(
    options: argparse.Namespace,
    hardware: NodeHardware,
    directory: AccountDirectory,
    account_of: Callable[[str], str | None],
) -> Slices | None:
    """Returns the slices if enabled. Raises OSError if this node can't enforce their rules."""
    if "slice" not in options.device_permissions:
        return None

    def account(member: str) -> Account | None:
        name = account_of(member)
        uid = None if name is None else directory.uid(name)
        return None if name is None or uid is None else (name, uid)

    settings = SliceSettings(
        hardware.nodes, account, options.slice_devices, hardware.logins, hardware.number_of
    )
    return Slices(hardware.units(), settings, hardware.programs)


def _unit_of(directory: AccountDirectory) -> Callable[[str, str], str]:
    """Returns a function that names the slice of an account's booking; empty for unknown
    accounts."""

    def unit(account: str, booking: str) -> str:
        uid = directory.uid(account)
        return "" if uid is None else unit_of(uid, booking)

    return unit


def _available_memory(slices: Slices | None, cgroups: Cgroups | None) -> Callable[[str], int | None]:
    """Returns a reader of the memory that a booking's limit leaves."""
    if slices is not None:
        return slices.available_mb
    return cgroups.available_mb if cgroups is not None else lambda booking: None


def _group_use(slices: Slices | None, hardware: NodeHardware) -> Callable[[str], GroupUse | None]:
    """Returns a reader of what a booking's programs have used of the host."""
    if slices is not None:
        return slices.use
    if hardware.cgroups is not None:
        return hardware.cgroups.use
    return hardware.group_use or (lambda booking: None)


def _login_program(
    options: argparse.Namespace, directory: AccountDirectory
) -> Callable[[str], str | None] | None:
    """Returns the look-up by the site's program `login`, if there is one."""
    program = options.hooks / _LOGIN if options.hooks else None
    if program is None or not program.is_file():
        return None
    return LoginProgram(program, uid_of=directory.uid).account_of
