"""The host of the GPUs: its inventory, and signals to its processes."""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import wire
from agent import VERSION
from agent.host.storage import storage_read
from agent.ports.gpu import GpuPort
from agent.ports.host_cores import numa_node
from agent.ports.programs import signal_send

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The host. `numa` returns the NUMA node next to a GPU, None when unknown, and `storage` what
    programs can write to. `rack` is what an engine's scheduler says. With a `pool` it is a slot there."""

    name: str
    boot: str
    cores: int
    memory_mb: int
    limits: wire.HostLimits = "counted"
    limits_note: str = ""
    engine: wire.Engine = "device"
    numa: Callable[[wire.InventoryGpu], int | None] = lambda gpu: numa_node(gpu.pci)
    storage: Callable[[], wire.NodeStorage | None] = lambda: None
    rack: str = ""
    pool: str = ""


def host_read(name: str, *, inspect: bool = True) -> Host:
    """Returns this machine. An engine that serves others does not `inspect` its storage for them."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    boot = _BOOT_ID.read_text().strip()
    found = Host(name, boot, os.cpu_count() or 1, pages * size >> 20)
    return dataclasses.replace(found, storage=storage_read) if inspect else found


def inventory_take(host: Host, port: GpuPort) -> wire.Inventory:
    """Raises GpuError."""
    return wire.Inventory(
        hostname=host.name,
        driver=port.driver(),
        agent=VERSION,
        boot=host.boot,
        cores=host.cores,
        memory_mb=host.memory_mb,
        gpus=tuple(dataclasses.replace(gpu, numa=host.numa(gpu)) for gpu in port.inventory()),
        limits=host.limits,
        limits_note=host.limits_note[:200],
        engine=host.engine,
        storage=host.storage(),
        rack=host.rack,
        pool=host.pool,
    )


def process_signal(pid: int, *, force: bool) -> None:
    """Sends TERM, or KILL with `force`. An ended process is no error. Raises PermissionError."""
    signal_send(pid, signal.SIGKILL if force else signal.SIGTERM)
