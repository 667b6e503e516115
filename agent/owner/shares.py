"""The active bookings of a node and the environment of their programs. Pure."""

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import wire
from agent.host.network import Network
from agent.ports.gpu import GpuError
from agent.ports.handover import NO_GPU, booking_full_name, exports, host_environment
from agent.ports.host_cores import CoreTopology, core_of_device, cores_text

SAVED, PROGRESS, NOTICE = "saved", "progress", "notice.json"
HOSTS, MACHINES = "hosts", "machines"
_FIRST_PORT = 20_000
_PORTS = 12_000


@dataclasses.dataclass(frozen=True, slots=True)
class ResumedAllocation:
    """An allocation with its device, and the suspended allocation that it resumes."""

    allocation: str
    suspended: str
    device: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodeContext:
    """This node: its name, the folder with the bookings' folders, where each GPU's MPS daemon
    listens, the memory of each GPU in MiB, by UUID, and the local account of each member.

    `order` has the UUIDs of all its GPUs by PCI address. `hidden`: accounts can't open the files of
    GPUs that are not theirs. `network` is how its programs reach those of other nodes. `topology`
    has the cores next to each GPU. `slice_of` gives the systemd slice of an account's booking,
    empty where there is none. `data` is the folder with data sets. `files_of` gives the files of a device
    that is no GPU, and `rocm_name_of` the name of a GPU of AMD for ROCm, empty where it has none."""

    node: str
    root: Path
    mps: Path = Path("/run/gpu-agent/mps")
    memory_mb: Mapping[str, int] = dataclasses.field(default_factory=dict)
    account_of: Callable[[str], str | None] = lambda member: member
    order: tuple[str, ...] = ()
    hidden: bool = False
    network: Network | None = None
    topology: CoreTopology = dataclasses.field(default_factory=CoreTopology)
    slice_of: Callable[[str, str], str] = lambda account, booking: ""
    files_of: Callable[[str], tuple[str, ...]] | None = None
    rocm_name_of: Callable[[str], str] | None = None
    data: Path | None = None

    def alone(self, device: str) -> dict[str, str]:
        """Returns the variables by which a program finds one device. Raises GpuError."""
        if self.files_of is not None:
            return _file_list((self.files_of(device),))
        if self.rocm_name_of is not None:
            return _rocm_variables((self.rocm_name_of(device),))
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": device,
            "NVIDIA_VISIBLE_DEVICES": device,
        }

    def share(self, gpu: str, thousandths: int) -> dict[str, str]:
        """Returns the variables that give a program its share of a GPU, and limit it. Raises GpuError."""
        if self.files_of is not None or self.rocm_name_of is not None:
            raise GpuError("unsupported", "only NVIDIA's GPUs can be shared, by MPS")
        values = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.mps / gpu),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, thousandths // 10)),
        }
        memory = self.memory_mb.get(gpu)
        if memory is not None:
            values["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory * thousandths // 1000}M"
        return values


@dataclasses.dataclass(frozen=True, slots=True)
class ActiveBooking:
    """A booking that is active on this node: all of its devices here are handed over.

    `devices` are UUIDs in the order of GPUs and slots. `members` are the nodes of the booking in
    the order of their ranks, `rank` is this node's place among them. Times in Unix seconds.
    `account` is its owner's here, empty where that is not known. `folder` is where its files are.
    `shares` has what a program must know to use each device if they are shares of GPUs, else
    nothing. `cores` and `memory_mb` of the host are its own here. `indexes` are the devices' as
    CUDA counts the GPUs of the node, empty where that is not certain; `inside` are those in a
    container that has no other GPUs. `network` is set if it has several nodes. `gpus` are those
    that the devices are on, and `topology` has the cores next to them. `unit` is the systemd
    slice that may open its devices, empty where there is none. `data` are the data sets that it names,
    in `data_folder`. `files` are those of devices that are no GPUs, and `rocm_names` those of AMD's GPUs.
    """

    name: str
    booking: str
    tenant: str
    owner: str
    sliced: bool
    starts: int
    ends: int
    devices: tuple[str, ...]
    members: tuple[wire.Member, ...]
    rank: int
    account: str = ""
    folder: str = ""
    shares: tuple[Mapping[str, str], ...] = ()
    notice: wire.Notice | None = None
    resumes: tuple[ResumedAllocation, ...] = ()
    cores: tuple[int, ...] = ()
    memory_mb: int = 0
    indexes: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    network: Network | None = None
    gpus: tuple[str, ...] = ()
    topology: CoreTopology = dataclasses.field(default_factory=CoreTopology)
    unit: str = ""
    files: tuple[tuple[str, ...], ...] = ()
    rocm_names: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    data_folder: str = ""

    @property
    def divided(self) -> bool:
        """Whether a program can use one device only: a slice or a share."""
        return self.sliced or bool(self.shares)

    @property
    def is_without_gpu(self) -> bool:
        """Whether its devices are cores of the host."""
        return any(core_of_device(device) is not None for device in self.devices)

    @property
    def port(self) -> int:
        """Where its processes meet: the same on every node, below the ports that kernels lend."""
        return meeting_port(self.name)

    @property
    def address(self) -> str:
        """Where its processes meet. On the first node itself its address: its name may mean
        127.0.1.1 there, and is passed on to the other nodes by some launchers."""
        if len(self.members) == 1:
            return "127.0.0.1"
        if self.rank == 0 and self.network is not None:
            return self.network.address
        return self.members[0].node

    @property
    def world_size(self) -> int:
        """Its devices on all nodes; without a GPU one process on each node."""
        if self.is_without_gpu:
            return len(self.members)
        return sum(member.devices for member in self.members)


def cuda_order(gpus: Iterable[wire.InventoryGpu]) -> tuple[str, ...]:
    """Returns the UUIDs in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    return tuple(gpu.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.pci.lower()))


def meeting_port(booking: str, run: str = "") -> int:
    """Returns the port of a booking, by its full name, or of one of its runs."""
    mark = hashlib.sha256(f"{booking} {run}".rstrip().encode()).digest()
    return _FIRST_PORT + int.from_bytes(mark[:8], "big") % _PORTS


def tf_config(nodes: Iterable[str], rank: int, port: int) -> str:
    """Returns TF_CONFIG for one worker on each of these nodes."""
    workers = [f"{node}:{port}" for node in nodes]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def active_bookings(
    desired: wire.Desired | None,
    given: Mapping[str, str],
    now: float,
    place: NodeContext,
    cores: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, ActiveBooking]:
    """The bookings that are whole on this node, by full name; `given` maps allocations to devices,
    and `cores` to those of the host.

    One that misses a device, at its start or because its end has begun, is not there.
    """
    if desired is None:
        return {}
    wanted: dict[str, list[wire.DesiredAllocation]] = defaultdict(list)
    gpu_of = {each.id: gpu.uuid for gpu in desired.gpus for each in gpu.allocations}
    for gpu in desired.gpus:
        for allocation in sorted(gpu.allocations, key=lambda each: each.slot):
            if allocation.state == "run" and allocation.starts <= now < allocation.ends:
                wanted[booking_full_name(allocation)].append(allocation)
    countable = () if place.hidden else _indexable(desired, place.order)
    gangs = {f"{gang.tenant}.{gang.booking}": gang.members for gang in desired.gangs}
    return {
        name: dataclasses.replace(
            _active_booking(name, allocations, given, gangs.get(name), place),
            indexes=_indexes(allocations, given, countable),
            inside=_container_indexes(allocations, given, place.order),
            gpus=tuple(gpu_of[each.id] for each in allocations),
            cores=tuple(sorted(c for each in allocations for c in (cores or {}).get(each.id, ()))),
        )
        for name, allocations in wanted.items()
        if all(each.id in given for each in allocations)
    }


def _indexable(desired: wire.Desired, order: tuple[str, ...]) -> tuple[str, ...]:
    """Returns `order` if its indexes are certain. How CUDA counts GPUs on a node with others in MIG
    mode, or with a lost one, is not documented."""
    plain = {gpu.uuid for gpu in desired.gpus if gpu.mode != "sliced"}
    return order if plain == set(order) and len(desired.gpus) == len(order) else ()


def _indexes(
    allocations: Sequence[wire.DesiredAllocation], given: Mapping[str, str], order: Sequence[str]
) -> tuple[int, ...]:
    devices = [given[each.id] for each in allocations]
    whole = all(each.profile is None and each.share is None for each in allocations)
    known = whole and all(device in order for device in devices)
    return tuple(order.index(device) for device in devices) if known else ()


def _container_indexes(
    allocations: Sequence[wire.DesiredAllocation], given: Mapping[str, str], order: Sequence[str]
) -> tuple[int, ...]:
    """Returns the same in a container, where there are no GPUs but these."""
    indexes = _indexes(allocations, given, order)
    ranked = sorted(indexes)
    return tuple(ranked.index(index) for index in indexes)


def _active_booking(
    name: str,
    allocations: list[wire.DesiredAllocation],
    given: Mapping[str, str],
    members: tuple[wire.Member, ...] | None,
    place: NodeContext,
) -> ActiveBooking:
    first = allocations[0]
    account = place.account_of(first.owner) or ""
    alone = (wire.Member(node=place.node, devices=len(allocations)),)
    named = [member.node for member in members or ()]
    if members is None or place.node not in named:
        members, named = alone, [place.node]
    return ActiveBooking(
        name=name,
        booking=first.booking,
        tenant=first.tenant,
        owner=first.owner,
        # Of AMD's partitions a program uses all that it has, as of whole GPUs.
        sliced=first.profile is not None and place.rocm_name_of is None,
        starts=first.starts,
        ends=first.ends,
        devices=tuple(given[each.id] for each in allocations),
        members=members,
        rank=named.index(place.node),
        account=account,
        folder=str(place.root / name),
        shares=tuple(place.share(given[each.id], each.share) for each in allocations if each.share),
        notice=first.notice,
        resumes=tuple(
            ResumedAllocation(each.id, each.resumes, given[each.id]) for each in allocations if each.resumes
        ),
        memory_mb=sum(each.memory_mb for each in allocations),
        network=place.network if len(members) > 1 else None,
        topology=place.topology,
        unit=place.slice_of(account, name) if account else "",
        files=tuple(place.files_of(given[each.id]) for each in allocations) if place.files_of else (),
        rocm_names=_rocm_names(place, (given[each.id] for each in allocations)),
        data=first.data,
        data_folder=str(place.data) if place.data and first.data else "",
    )


def environment(part: ActiveBooking, only: int | None = None, *, contained: bool = False) -> dict[str, str]:
    """What a program of the booking finds in its environment; `only` picks one of its devices.
    `contained`: in a container that has these devices and no others.

    Of several slices only the first is visible: CUDA uses one slice in one process.
    WORLD_SIZE and RANK are set by the launcher: with them, a program that is started alone would
    wait for other processes.
    """
    nodes, rank, port = str(len(part.members)), str(part.rank), str(part.port)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GPU_BOOKING": part.booking,
        "GPU_BOOKING_TENANT": part.tenant,
        "GPU_BOOKING_OWNER": part.owner,
        "GPU_BOOKING_ENDS": _iso(part.ends),
        "GPU_BOOKING_DEVICES": ",".join(part.devices),
        "GPU_BOOKING_NODES": ",".join(member.node for member in part.members),
        "GPU_BOOKING_WORLD_SIZE": str(part.world_size),
        "MASTER_ADDR": part.address,
        "MASTER_PORT": port,
        "NNODES": nodes,
        "NODE_RANK": rank,
        # torchrun takes the defaults of its options from these.
        "PET_NNODES": nodes,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": part.address,
        "PET_MASTER_PORT": port,
        **_device_variables(part, only, contained=contained),
        **_peer_variables(part),
        **_array_variables(part.booking),
        **host_environment(part.cores, part.memory_mb),
        **_file_variables(part.folder),
        **_data_variables(part),
        **_pause_variables(part),
    }


def _device_variables(part: ActiveBooking, only: int | None, *, contained: bool = False) -> dict[str, str]:
    """Returns the variables that depend on the device. Whole GPUs have indexes, because some
    programs (vLLM) accept no UUIDs; a slice has only its UUID."""
    first = 0 if only is None else only
    one = only is not None or part.divided
    chosen = slice(first, first + 1) if one else slice(None)
    devices = part.devices[chosen]
    indexes = part.indexes[chosen]
    if contained and part.inside:
        indexes = (0,) if one else part.inside
    count = str(len(devices))
    if part.is_without_gpu:
        return {**NO_GPU, "NPROC_PER_NODE": "1", "PET_NPROC_PER_NODE": "1"}
    if part.files:
        found = _file_list(part.files[chosen])
        return {**found, "NPROC_PER_NODE": count, **_numa_variables(part, chosen)}
    if part.rocm_names:
        return {
            **_rocm_variables(part.rocm_names[chosen], contained=contained),
            "NPROC_PER_NODE": count,
            "PET_NPROC_PER_NODE": count,
            **_numa_variables(part, chosen),
        }
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, indexes or devices)),
        "NVIDIA_VISIBLE_DEVICES": ",".join(devices),
        "NPROC_PER_NODE": count,
        "PET_NPROC_PER_NODE": count,
        **_numa_variables(part, chosen),
        **(part.shares[first] if part.shares else {}),
    }


def _file_list(files: Iterable[tuple[str, ...]]) -> dict[str, str]:
    return {"GPU_BOOKING_DEVICE_FILES": ",".join(path for each in files for path in each)}


def _rocm_names(place: NodeContext, devices: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of devices; one that is lost has none, and its booking is about to fail."""
    found = []
    for device in devices if place.rocm_name_of else ():
        try:
            found.append(place.rocm_name_of(device) if place.rocm_name_of else "")
        except GpuError:
            found.append("")
    return tuple(found)


def _rocm_variables(names: Sequence[str], *, contained: bool = False) -> dict[str, str]:
    """HIP counts what ROCm shows. Without names ROCm shows the devices that the account may open, and in a
    container those that are there."""
    values = {"HIP_VISIBLE_DEVICES": ",".join(str(number) for number in range(len(names)))}
    if not contained and all(names):
        values["ROCR_VISIBLE_DEVICES"] = ",".join(names)
    return values


def _numa_variables(part: ActiveBooking, chosen: slice) -> dict[str, str]:
    """Returns the NUMA nodes next to the devices, for `numactl`, and the cores of those nodes."""
    nodes, cores = part.topology.cores_near(part.gpus[chosen])
    if not nodes:
        return {}
    return {
        "GPU_BOOKING_NUMA_NODES": cores_text(nodes),
        "GPU_BOOKING_NUMA_CORES": cores_text(cores),
    }


def _peer_variables(part: ActiveBooking) -> dict[str, str]:
    """Returns what programs on several nodes need to find each other."""
    if len(part.members) == 1:
        return {}
    nodes = (member.node for member in part.members)
    values = {"TF_CONFIG": tf_config(nodes, part.rank, part.port)}
    if part.network is not None:
        values["GLOO_SOCKET_IFNAME"] = part.network.interface
        # Without the sign NCCL takes every interface whose name begins so.
        values["NCCL_SOCKET_IFNAME"] = f"={part.network.interface}"
    return values


def _array_variables(booking: str) -> dict[str, str]:
    """Returns the array and the index of an element, which is `BK-2041_17` on nodes."""
    array, _, index = booking.partition("_")
    return {"GPU_BOOKING_ARRAY": array, "GPU_BOOKING_ARRAY_INDEX": index} if index else {}


def _file_variables(folder: str) -> dict[str, str]:
    if not folder:
        return {}
    hosts, machines = f"{folder}/{HOSTS}", f"{folder}/{MACHINES}"
    return {
        "GPU_BOOKING_FOLDER": folder,
        "GPU_BOOKING_SAVED": f"{folder}/{SAVED}",
        "GPU_BOOKING_PROGRESS": f"{folder}/{PROGRESS}",
        # Open MPI 4 and 5, MPICH, Intel MPI.
        "OMPI_MCA_orte_default_hostfile": hosts,
        "PRTE_MCA_prte_default_hostfile": hosts,
        "HYDRA_HOST_FILE": machines,
        "I_MPI_HYDRA_HOST_FILE": machines,
    }


def _data_variables(part: ActiveBooking) -> dict[str, str]:
    """Returns the data sets that the booking names, and the folder in which they are."""
    if not part.data_folder:
        return {}
    return {"GPU_BOOKING_DATA": ",".join(part.data), "GPU_BOOKING_DATA_FOLDER": part.data_folder}


def _pause_variables(part: ActiveBooking) -> dict[str, str]:
    """Returns the variables under a notice or after a pause."""
    values = {"GPU_BOOKING_RESUMES": "1"} if part.resumes else {}
    if part.notice is None:
        return values
    return {
        **values,
        "GPU_BOOKING_PAUSE_ID": part.notice.id,
        "GPU_BOOKING_PAUSE_AT": _iso(part.notice.at),
        "GPU_BOOKING_PAUSE_METHOD": part.notice.method,
    }


def files(part: ActiveBooking) -> dict[str, str]:
    """Returns the files of the booking's folder, by name."""
    found = {
        "env": exports(environment(part)),
        "booking.json": json.dumps(description(part), indent=2) + "\n",
        HOSTS: "".join(f"{each.node} slots={each.devices}\n" for each in part.members),
        MACHINES: "".join(f"{each.node}:{each.devices}\n" for each in part.members),
    }
    if part.notice is not None:
        found[NOTICE] = json.dumps(dataclasses.asdict(part.notice), indent=2) + "\n"
    return found


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def description(part: ActiveBooking) -> dict[str, Any]:
    """Returns the content of `booking.json`."""
    return {
        "booking": part.booking,
        "tenant": part.tenant,
        "owner": part.owner,
        "account": part.account,
        "slice": part.unit,
        "starts": part.starts,
        "ends": part.ends,
        "sliced": part.sliced,
        "isolated": not part.shares,
        "notice": None if part.notice is None else dataclasses.asdict(part.notice),
        "devices": list(part.devices),
        "nodes": [dataclasses.asdict(member) for member in part.members],
        "node_rank": part.rank,
        "world_size": part.world_size,
        "master": {"address": part.address, "port": part.port},
        "cores": list(part.cores),
        "memory_mb": part.memory_mb,
        "environment": environment(part),
        "parts": [_device_variables(part, number) for number in range(len(part.devices))],
    }
