"""The platform of an agent on simulated GPUs, with simulated users and programs."""

import argparse
import contextlib
import time

from agent.doctor.checks import said
from agent.doctor.driver import ExaminedDriver
from agent.hardware import NodeHardware, Platform, amd_open
from agent.nvml.timeout_wrapper import driver_open
from agent.nvml.watch import NvmlWatch
from agent.owner.accounts import AccountDirectory
from agent.ports.host_cores import CoreDevices
from agent.ports.worker_threads import WorkerThreads
from devtools.simulated.amd import SimulatedAmdFiles, SimulatedAmdSmi
from devtools.simulated.device_nodes import (
    SimulatedAccess,
    SimulatedDeviceNodes,
    SimulatedUnits,
)
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import core_topology_simulated, group_use_simulated, host_simulated
from devtools.simulated.models import CORE_MB, CORES, fleet_parse
from devtools.simulated.nvml import installed
from devtools.simulated.programs import (
    SimulatedPrograms,
    SimulatedStarter,
    SimulatedSuspender,
    SimulatedUsers,
    simulated_port,
)


def simulated_platform(fleet: str, branch: str) -> Platform:
    """Returns the platform of `h100:8,l40s:4` with the driver of that branch.

    Raises ValueError.
    """
    models = fleet_parse(fleet)

    def hardware(
        options: argparse.Namespace, _: AccountDirectory, stack: contextlib.ExitStack
    ) -> NodeHardware:
        return _hardware(options, models, branch, stack)

    def driver(stack: contextlib.ExitStack) -> ExaminedDriver:
        gpus = Hardware("doctor", models, state=None, clock=time.time, driver=branch)
        stack.enter_context(installed(gpus))
        return ExaminedDriver(
            simulated_port(gpus),
            said("simulated", branch=branch),
            numa=host_simulated("doctor", len(models)).numa,
            has_files=False,
        )

    def amd(options: argparse.Namespace, _: AccountDirectory, stack: contextlib.ExitStack) -> NodeHardware:
        return _amd_hardware(options, models, stack)

    def amd_load() -> SimulatedAmdSmi:
        return SimulatedAmdSmi(Hardware("doctor", models, state=None, clock=time.time))

    doctor = ("devtools.simulated", "doctor", "--simulate", fleet, "--simulate-driver", branch)
    return Platform(hardware, driver, amd, amd_load, doctor=doctor, is_simulated=True)


def _amd_hardware(
    options: argparse.Namespace, models: list[str], stack: contextlib.ExitStack
) -> NodeHardware:
    state = options.state / "simulated.json"
    hardware = Hardware(options.name, models, state=state, clock=time.time)
    parts = amd_open(
        SimulatedAmdSmi(hardware),
        options.amd,
        SimulatedAmdFiles(hardware),
        hardware.process_signal,
        hardware.process_user,
        stack,
    )
    host = host_simulated(options.name, len(models))
    return NodeHardware(
        parts.port,
        parts.watch,
        host,
        parts.nodes,
        SimulatedPrograms(hardware),
        suspender=None,
        access=SimulatedAccess,
        units=SimulatedUnits,
        number_of=lambda path: 0,
        owners=(SimulatedUsers(hardware),),
        topology=lambda near: core_topology_simulated(host.cores, near),
        network=lambda interface: None,
        logins=options.state / "logins",
        slices_refusal=lambda: "simulated slices limit nothing",
        is_only_owner=lambda: True,
        group_use=group_use_simulated(hardware),
        starter=SimulatedStarter(options.state / "homes"),
        rocm_name_of=parts.rocm_name_of,
    )


def _hardware(
    options: argparse.Namespace, models: list[str], branch: str, stack: contextlib.ExitStack
) -> NodeHardware:
    hardware = Hardware(
        options.name,
        models,
        state=options.state / "simulated.json",
        clock=time.time,
        driver=branch,
    )
    stack.enter_context(installed(hardware))
    port, watch = driver_open(
        WorkerThreads(),
        lambda: simulated_port(hardware),
        lambda: NvmlWatch(hardware.process_user),
        stack,
    )
    only_cores = set(models) == {CORES}
    host = host_simulated(options.name, len(models), core_mb=CORE_MB * only_cores)
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
        topology=lambda near: CoreDevices() if only_cores else core_topology_simulated(host.cores, near),
        network=lambda interface: None,
        logins=options.state / "logins",
        slices_refusal=lambda: "simulated slices limit nothing",
        is_only_owner=lambda: True,
        group_use=group_use_simulated(hardware),
        links_use=lambda: None,
        starter=SimulatedStarter(options.state / "homes"),
    )
