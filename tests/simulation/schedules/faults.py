"""What goes wrong in a schedule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from allocation.agent.ports.link import Connected
from allocation.agent.simulated.hardware import Gpu, Kind
from allocation.agent.simulated.models import HardwareFault
from tests.simulation.nodes.machine import strangers_on
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
    """The line is there again."""
    if node.agent is not None:
        node.arrivals.append(Connected())


def agent_is_killed(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    if node.agent is None:
        it.tell(f"the agent of {node.name} starts again")
        node.boot()
    elif it.world.rng.random() < 0.3:
        it.tell(f"the agent of {node.name} is killed")
        node.dies()
    else:
        will_die(it, node)
    everybody_works(it)


def will_die(it: "Schedule", node: SimNode, kind: Sequence[str] = ()) -> None:
    """At one point of a kind; else at the first of many that it comes to, or at the second."""
    rng = it.world.rng
    every = rng.choice((COMMON_POINTS, RARE_POINTS, RARE_POINTS, RARE_POINTS))
    points = rng.sample(kind, 1) if kind else rng.sample(every, len(every) // 2)
    node.armed = (frozenset(points), 0 if kind else rng.choice((0, 0, 0, 1)))
    it.tell(f"the agent of {node.name} will die {sorted(points)}, after {node.armed[1]}")


def node_reboots(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    it.tell(f"{node.name} loses power and comes back")
    node.loses_power()


def line_breaks(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    node.hears, node.speaks = it.world.rng.choice(
        ((False, False), (True, False), (False, True), (True, True))
    )
    it.tell(f"{node.name} hears {node.hears}, speaks {node.speaks}")
    if node.hears and node.speaks:
        reconnected(node)
    everybody_works(it)


def server_loses_everything(it: "Schedule") -> None:
    it.tell("the server loses everything")
    it.world.server.loses_everything()
    for node in it.world.nodes:
        reconnected(node)


def messages_go_astray(it: "Schedule") -> None:
    """Lost, doubled, late, in another order; old ones again."""
    rng, server = it.world.rng, it.world.server
    it.tell("messages go astray")
    stream = [entry for entry in server.stream for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if server.heard and rng.random() < 0.5:
        stream += rng.choices(server.heard, k=3)
    rng.shuffle(stream)
    server.stream = stream
    it.world.portal_hears(rng.randrange(len(stream) + 1))


def old_document_comes(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    it.tell(f"an old document comes to {node.name}")
    it.world.node_works(node, stale=True)


def gpu_fails(it: "Schedule") -> None:
    rng = it.world.rng
    if rng.random() < 0.25:
        gpu_falls_off(it)
        return
    node = rng.choice(it.world.nodes)
    symbol = rng.choice(sorted(GPU_FAULTS))
    code = rng.choice(GPU_FAULTS[symbol])
    node.driver.faults[symbol].extend([code] * rng.choice((1, 1, 2, 8)))
    it.tell(f"{symbol} of {node.name} says {code}")
    node.able_since = None
    everybody_works(it)


def gpu_falls_off(it: "Schedule") -> None:
    """Off the bus, or is there again."""
    node = it.world.rng.choice(it.world.nodes)
    gpu = it.world.rng.choice(node.hardware.gpus)
    gpu.lost = not gpu.lost
    it.tell(f"GPU {gpu.index} of {node.name}: lost is {gpu.lost}")
    node.able_since = None
    everybody_works(it)


def driver_hangs(it: "Schedule") -> None:
    """About one GPU no call comes back any more; or all of them do."""
    node = it.world.rng.choice(it.world.nodes)
    if node.hanging:
        it.tell(f"the driver of {node.name} answers again")
        node.answers()
    else:
        gpu = it.world.rng.choice(node.hardware.gpus)
        it.tell(f"the driver of {node.name} hangs about GPU {gpu.index}")
        node.hanging.add(gpu.uuid)
        node.able_since = None
    everybody_works(it)


def hardware_errs(it: "Schedule") -> None:
    """The driver tells of an error: of a slice, of a GPU, or of the whole node."""
    rng = it.world.rng
    node = rng.choice(it.world.nodes)
    gpu = rng.choice(node.hardware.gpus)
    if node.agent is None or gpu.lost:
        return
    bits = rng.choice((0, 0, 0, 0, 1, 2))
    code = 0 if bits else rng.choice(ERRORS)
    instance = rng.choice([None, *sorted(gpu.instances)]) if code == CONTAINED else None
    it.tell(f"GPU {gpu.index} of {node.name} tells of Xid {code}, {bits} bits, in {instance}")
    node.hardware.fail(gpu, code, instance=instance, bits=bits)
    node.able_since = None
    it.happened["errors of hardware"] += 1
    everybody_works(it)


def operator_returns(it: "Schedule") -> None:
    """What waits for an operator is put back into service."""
    for uuid, gpu in sorted(it.portal.tables.gpus.items()):
        if gpu.needs_operator:
            it.tell(f"an operator puts {uuid} back")
            it.portal.gpu_return(uuid, it.world.now)
            it.happened["GPUs put back by an operator"] += 1


def disk_fills(it: "Schedule") -> None:
    """Not where the clock is wrong too: see docs/faults.md, what is not covered."""
    node = it.world.rng.choice(it.world.nodes)
    if node.skew:
        return
    node.disk_full = not node.disk_full
    it.tell(f"the disk of {node.name} is full: {node.disk_full}")
    everybody_works(it)


def clock_jumps(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    if node.disk_full:
        return
    node.skew = it.world.rng.choice((0.0, 0.0, -10.0, 10.0, -3600.0, 3600.0))
    it.tell(f"the clock of {node.name} is off by {node.skew}")
    everybody_works(it)


def backup_comes_back(it: "Schedule") -> None:
    if not it.can_restore:
        return
    if it.saved is None:
        it.tell("a backup is made")
        it.saved = it.portal.backup()
        return
    it.tell("the backup comes back")
    it.portal.restore(it.saved, it.world.now)
    it.world.forget_told()
    it.saved = None


def stranger_comes(it: "Schedule") -> None:
    """Somebody without a booking makes a slice, or starts a program where nothing is held."""
    rng = it.world.rng
    node = rng.choice(it.world.nodes)
    gpu = rng.choice(node.hardware.gpus)
    if node.agent is None or gpu.lost:
        return
    device = _slice_by_hand(it, node, gpu) if gpu.mig else gpu.uuid
    if device is None or (not gpu.mig and (_is_used(gpu) or _is_held(node, gpu, (0, 8)))):
        return
    if not gpu.mig or rng.random() < 0.7:
        it.happened["programs of strangers"] += 1
        name = f"{FOREIGN}-{it.happened['programs of strangers']}"
        it.tell(f"{name} runs on GPU {gpu.index} of {node.name}")
        pid = node.hardware.process_start(device, label=name, user="mallory")
        node.hardware.use_as(pid, node.kinds.choice(get_args(Kind)))
    everybody_works(it)


def _slice_by_hand(it: "Schedule", node: SimNode, gpu: Gpu) -> str | None:
    profile = it.world.rng.choice(gpu.model.profiles)
    start = it.world.rng.choice(profile.starts)
    if _is_held(node, gpu, (start, start + profile.size)):
        return None
    try:
        made = node.hardware.made_by_hand(gpu, profile.id, start)
    except HardwareFault:
        return None
    it.happened["slices made by hand"] += 1
    it.tell(f"somebody makes {profile.name} from {start} on GPU {gpu.index} of {node.name}")
    return gpu.mig_uuid(made)


def _is_used(gpu: Gpu) -> bool:
    return any(not each.service for each in gpu.processes.values())


def _is_held(node: SimNode, gpu: Gpu, slots: tuple[int, int]) -> bool:
    """Whether the agent has begun to give some of it, or what it gave is not proven empty; or it
    has read no document yet, and takes what it finds for what an earlier life of it gave."""
    if node.node is None or not node.node.store.remembers:
        return True
    held = node.node.store.held.values()
    mine = [each.allocation for each in held if each.gpu == gpu.uuid and each.given
            and not each.emptied]  # fmt: skip
    return any(each.slot < slots[1] and slots[0] < each.slot + each.size for each in mine)


def frozen_dies(it: "Schedule") -> None:
    """A program that a pause has frozen is ended by somebody, or by want of memory."""
    for node in it.world.rng.sample(it.world.nodes, len(it.world.nodes)):
        label = node.frozen_dies()
        if label is not None:
            it.tell(f"what was frozen of {label} dies on {node.name}")
            everybody_works(it)
            return


def stranger_leaves(it: "Schedule") -> None:
    node = it.world.rng.choice(it.world.nodes)
    strangers_leave(node)
    it.tell(f"who had no booking leaves {node.name}")
    everybody_works(it)


def strangers_leave(node: SimNode) -> None:
    """They end by themselves; slices that they made stay."""
    for pid in strangers_on(node.hardware):
        for gpu in node.hardware.gpus:
            gpu.processes.pop(pid, None)
