"""What goes wrong in a schedule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from agent.ports.link import Connected
from devtools.simulated.hardware import Gpu
from devtools.simulated.models import HardwareFault
from devtools.simulated.processes import Kind
from tests.simulation.nodes.machine import unbooked_on
from tests.simulation.nodes.node import COMMON_POINTS, RARE_POINTS, SimNode
from tests.simulation.nodes.occupancy import FOREIGN
from tests.simulation.schedules.happenings import everybody_works

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule

GPU_FAULTS = {
    "nvmlDeviceCreateGpuInstanceWithPlacement": (
        "NVML_ERROR_INSUFFICIENT_RESOURCES",
        "NVML_ERROR_IN_USE",
        "NVML_ERROR_UNKNOWN",
    ),
    "nvmlGpuInstanceCreateComputeInstance": ("NVML_ERROR_UNKNOWN", "NVML_ERROR_TIMEOUT"),
    "nvmlGpuInstanceDestroy": ("NVML_ERROR_IN_USE", "NVML_ERROR_TIMEOUT"),
    "nvmlComputeInstanceDestroy": ("NVML_ERROR_IN_USE",),
    "nvmlDeviceSetMigMode": ("NVML_ERROR_IN_USE", "NVML_ERROR_TIMEOUT"),
    "nvmlDeviceGetMigMode": ("NVML_ERROR_TIMEOUT", "NVML_ERROR_NOT_READY"),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("NVML_ERROR_UNKNOWN", "NVML_ERROR_NO_PERMISSION"),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": ("NVML_ERROR_UNKNOWN",),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": ("NVML_ERROR_LIB_RM_VERSION_MISMATCH",),
    "nvmlDeviceGetMinorNumber": ("NVML_ERROR_UNKNOWN",),
    "nvmlGpuInstanceGetInfo": ("NVML_ERROR_TIMEOUT", "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"),
}


CONTAINED = 94
ERRORS = (13, 31, 48, 63, 64, 74, 79, 92, CONTAINED, CONTAINED, CONTAINED, 95, 154)


def reconnected(node: SimNode) -> None:
    """The connection is back."""
    if node.agent is not None:
        node.arrivals.append(Connected())


def agent_is_killed(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    if node.agent is None:
        schedule.log(f"the agent of {node.name} starts again")
        node.boot()
    elif schedule.world.rng.random() < 0.3:
        schedule.log(f"the agent of {node.name} is killed")
        node.kill()
    else:
        will_die(schedule, node)
    everybody_works(schedule)


def will_die(schedule: "Schedule", node: SimNode, kind: Sequence[str] = ()) -> None:
    """At one point of a kind; else at the first of many that it comes to, or at the second."""
    rng = schedule.world.rng
    every = rng.choice((COMMON_POINTS, RARE_POINTS, RARE_POINTS, RARE_POINTS))
    points = rng.sample(kind, 1) if kind else rng.sample(every, len(every) // 2)
    node.armed = (frozenset(points), 0 if kind else rng.choice((0, 0, 0, 1)))
    schedule.log(f"the agent of {node.name} will die {sorted(points)}, after {node.armed[1]}")


def node_reboots(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    schedule.log(f"{node.name} loses power and comes back")
    node.loses_power()


def connection_breaks(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    node.receives, node.sends = schedule.world.rng.choice(
        ((False, False), (True, False), (False, True), (True, True))
    )
    schedule.log(f"{node.name} receives {node.receives}, sends {node.sends}")
    if node.receives and node.sends:
        reconnected(node)
    everybody_works(schedule)


def server_loses_everything(schedule: "Schedule") -> None:
    schedule.log("the server loses everything")
    schedule.world.server.loses_everything()
    for node in schedule.world.nodes:
        reconnected(node)


def messages_are_disturbed(schedule: "Schedule") -> None:
    """Lost, doubled, late, in another order; old ones again."""
    rng, server = schedule.world.rng, schedule.world.server
    schedule.log("messages go astray")
    stream = [entry for entry in server.stream for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if server.received and rng.random() < 0.5:
        stream += rng.choices(server.received, k=3)
    rng.shuffle(stream)
    server.stream = stream
    schedule.world.portal_receives(rng.randrange(len(stream) + 1))


def old_document_comes(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    schedule.log(f"an old document comes to {node.name}")
    schedule.world.node_works(node, stale=True)


def gpu_fails(schedule: "Schedule") -> None:
    rng = schedule.world.rng
    if rng.random() < 0.25:
        gpu_falls_off(schedule)
        return
    node = rng.choice(schedule.world.nodes)
    symbol = rng.choice(sorted(GPU_FAULTS))
    code = rng.choice(GPU_FAULTS[symbol])
    node.driver.faults[symbol].extend([code] * rng.choice((1, 1, 2, 8)))
    schedule.log(f"{symbol} of {node.name} says {code}")
    node.able_since = None
    everybody_works(schedule)


def gpu_falls_off(schedule: "Schedule") -> None:
    """Off the bus, or is there again."""
    node = schedule.world.rng.choice(schedule.world.nodes)
    gpu = schedule.world.rng.choice(node.hardware.gpus)
    gpu.lost = not gpu.lost
    schedule.log(f"GPU {gpu.index} of {node.name}: lost is {gpu.lost}")
    node.able_since = None
    everybody_works(schedule)


def driver_hangs(schedule: "Schedule") -> None:
    """About one GPU no call comes back any more; or all of them do."""
    node = schedule.world.rng.choice(schedule.world.nodes)
    if node.hanging:
        schedule.log(f"the driver of {node.name} answers again")
        node.answers()
    else:
        gpu = schedule.world.rng.choice(node.hardware.gpus)
        schedule.log(f"the driver of {node.name} hangs about GPU {gpu.index}")
        node.hanging.add(gpu.uuid)
        node.able_since = None
    everybody_works(schedule)


def hardware_errs(schedule: "Schedule") -> None:
    """The driver reports an error: of a slice, of a GPU, or of the whole node."""
    rng = schedule.world.rng
    node = rng.choice(schedule.world.nodes)
    gpu = rng.choice(node.hardware.gpus)
    if node.agent is None or gpu.lost:
        return
    bits = rng.choice((0, 0, 0, 0, 1, 2))
    code = 0 if bits else rng.choice(ERRORS)
    instance = rng.choice([None, *sorted(gpu.instances)]) if code == CONTAINED else None
    schedule.log(f"GPU {gpu.index} of {node.name} reports Xid {code}, {bits} bits, in {instance}")
    node.hardware.fail(gpu, code, instance=instance, bits=bits)
    node.able_since = None
    schedule.happened["errors of hardware"] += 1
    everybody_works(schedule)


def operator_returns(schedule: "Schedule") -> None:
    """What waits for an operator is put back into service."""
    for uuid, gpu in sorted(schedule.portal.tables.gpus.items()):
        if gpu.needs_operator:
            schedule.log(f"an operator puts {uuid} back")
            schedule.portal.gpu_return(uuid, schedule.world.now)
            schedule.happened["GPUs put back by an operator"] += 1


def disk_fills(schedule: "Schedule") -> None:
    """Not where the clock is wrong too: see docs/faults.md, what is not covered."""
    node = schedule.world.rng.choice(schedule.world.nodes)
    if node.skew:
        return
    node.disk_full = not node.disk_full
    schedule.log(f"the disk of {node.name} is full: {node.disk_full}")
    everybody_works(schedule)


def clock_jumps(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    if node.disk_full:
        return
    node.skew = schedule.world.rng.choice((0.0, 0.0, -10.0, 10.0, -3600.0, 3600.0))
    schedule.log(f"the clock of {node.name} is off by {node.skew}")
    everybody_works(schedule)


def backup_comes_back(schedule: "Schedule") -> None:
    if not schedule.can_restore:
        return
    if schedule.saved is None:
        schedule.log("a backup is made")
        schedule.saved = schedule.portal.backup()
        return
    schedule.log("the backup comes back")
    schedule.portal.restore(schedule.saved, schedule.world.now)
    schedule.world.reset_started()
    schedule.saved = None


def unbooked_process_starts(schedule: "Schedule") -> None:
    """Somebody without a booking makes a slice, or starts a program where nothing is held."""
    rng = schedule.world.rng
    node = rng.choice(schedule.world.nodes)
    gpu = rng.choice(node.hardware.gpus)
    if node.agent is None or gpu.lost:
        return
    device = _slice_by_hand(schedule, node, gpu) if gpu.mig else gpu.uuid
    if device is None or (not gpu.mig and (_is_used(gpu) or _is_held(node, gpu, (0, 8)))):
        return
    if not gpu.mig or rng.random() < 0.7:
        schedule.happened["unbooked programs"] += 1
        name = f"{FOREIGN}-{schedule.happened['unbooked programs']}"
        schedule.log(f"{name} runs on GPU {gpu.index} of {node.name}")
        pid = node.hardware.process_start(device, label=name, user="mallory")
        node.hardware.use_as(pid, node.kinds.choice(get_args(Kind)))
    everybody_works(schedule)


def _slice_by_hand(schedule: "Schedule", node: SimNode, gpu: Gpu) -> str | None:
    profile = schedule.world.rng.choice(gpu.model.profiles)
    start = schedule.world.rng.choice(profile.starts)
    if _is_held(node, gpu, (start, start + profile.size)):
        return None
    try:
        made = node.hardware.made_by_hand(gpu, profile.id, start)
    except HardwareFault:
        return None
    schedule.happened["slices made by hand"] += 1
    schedule.log(f"somebody makes {profile.name} from {start} on GPU {gpu.index} of {node.name}")
    return gpu.mig_uuid(made)


def _is_used(gpu: Gpu) -> bool:
    return any(not each.service for each in gpu.processes.values())


def _is_held(node: SimNode, gpu: Gpu, slots: tuple[int, int]) -> bool:
    """Whether the agent has begun to give some of it, or what it gave is not proven empty; or it
    has read no document yet, and takes what it finds for what an earlier life of it gave."""
    if node.node is None or not node.node.store.remembers:
        return True
    held = node.node.store.held.values()
    mine = [each.allocation for each in held if each.gpu == gpu.uuid and each.given and not each.emptied]
    return any(each.slot < slots[1] and slots[0] < each.slot + each.size for each in mine)


def frozen_dies(schedule: "Schedule") -> None:
    """A program that a pause has suspended is ended by a person, or for lack of memory."""
    for node in schedule.world.rng.sample(schedule.world.nodes, len(schedule.world.nodes)):
        label = node.frozen_dies()
        if label is not None:
            schedule.log(f"what was frozen of {label} dies on {node.name}")
            everybody_works(schedule)
            return


def unbooked_processes_end(schedule: "Schedule") -> None:
    node = schedule.world.rng.choice(schedule.world.nodes)
    unbooked_end(node)
    schedule.log(f"who had no booking leaves {node.name}")
    everybody_works(schedule)


def unbooked_end(node: SimNode) -> None:
    """They end by themselves; slices that they made stay."""
    for pid in unbooked_on(node.hardware):
        for gpu in node.hardware.gpus:
            gpu.processes.pop(pid, None)
