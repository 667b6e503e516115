"""What a node sends to the portal: inventory, reports, heartbeats, telemetry and examinations."""

import dataclasses
from typing import ClassVar, Literal

from wire.data import CachedData, DataName
from wire.fields import (
    ADDED,
    VERSION,
    AllocationState,
    CheckState,
    Count,
    Engine,
    HostLimits,
    HostName,
    Label,
    Line,
    Milliseconds,
    Mode,
    Name,
    PciePath,
    PciId,
    Plain,
    ProgressText,
    RackName,
    Recovery,
    SlotOffset,
    Small,
    StepName,
)
from wire.host_use import HostUse
from wire.notebooks import Notebooks
from wire.scripts import ReportedScript


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One legal placement of one MIG profile. `max` instances of the profile fit on one GPU."""

    profile: Label
    profile_id: Small
    start: SlotOffset
    size: Small
    compute: Small
    max: Small


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another GPU of the node, by index: the number of NVLinks between the two, direct or through
    NVSwitches, and their nearest common level over PCIe (None: unknown)."""

    index: Small
    nvlinks: Small
    path: PciePath | None


HOST_CORE = "Host core"
"""The product name of a device that is a core of a host, for work without a GPU."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """A GPU. `name` is NVML's product name, which differs between drivers; `device_id` and
    `subsystem_id` identify the board. `nvlink_domain` numbers the connected components of the
    node's NVLink graph, None without links. `placements` is empty without MIG."""

    index: Small
    uuid: Name
    name: Plain
    memory_mb: Count
    mig_capable: bool
    mode: Mode
    numa: Small | None
    pci: Plain
    nvlink_domain: Small | None
    placements: tuple[Placement, ...] = ()
    peers: tuple[Peer, ...] = dataclasses.field(default=(), metadata=ADDED)
    device_id: PciId = dataclasses.field(default="", metadata=ADDED)
    subsystem_id: PciId = dataclasses.field(default="", metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeStorage:
    """What programs of a node can write to: GB of local NVMe, and where shared file systems are mounted."""

    local_gb: Count
    shared: tuple[Plain, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The hardware of a node. `seq` is 0 in the unsigned inventory of an enrolment. Host cores and
    memory of bookings are `counted` in plans only, or also `enforced` on the node; `limits_note`
    says why they are not. `engine` gives the GPUs to bookings. `storage` is None where it was not
    inspected. `rack` is where the scheduler of an engine says that it stands. With a `pool` it
    is a slot there: the engine chooses the node for its jobs."""

    kind: ClassVar[str] = "inventory"
    hostname: Plain
    driver: Plain
    agent: Plain
    boot: Plain
    cores: Count
    memory_mb: Count
    gpus: tuple[InventoryGpu, ...] = ()
    seq: int = dataclasses.field(default=0, metadata=ADDED)
    limits: HostLimits = dataclasses.field(default="counted", metadata=ADDED)
    limits_note: Plain = dataclasses.field(default="", metadata=ADDED)
    engine: Engine = dataclasses.field(default="device", metadata=ADDED)
    storage: NodeStorage | None = dataclasses.field(default=None, metadata=ADDED)
    rack: RackName = dataclasses.field(default="", metadata=ADDED)
    pool: HostName = dataclasses.field(default="", metadata=ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An existing MIG instance. `allocation` is None if the agent did not make it for one; `uuid`
    is None while it has no compute instance."""

    profile: str
    profile_id: int
    slot: int
    size: int
    uuid: str | None
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedGpu:
    """A GPU as the driver reports it. `pending` is its mode after the next reset (None: the same).
    `error` says what prevents the desired mode; `stuck` is true once that has lasted. `withheld`: why
    the engine of the node starts nothing new on it; what runs there continues."""

    uuid: Name
    mode: Mode
    instances: tuple[Instance, ...] = ()
    error: str | None = None
    pending: Mode | None = dataclasses.field(default=None, metadata=ADDED)
    stuck: bool = dataclasses.field(default=False, metadata=ADDED)
    withheld: str | None = dataclasses.field(default=None, metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStep:
    """A step of the agent on an allocation's way to `ready`, from its first try to its success, by
    the node's clock."""

    name: StepName
    began: Milliseconds
    took: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAllocation:
    """An allocation on the node. `devices` are the UUIDs handed over. Times are of the node's
    clock: `since` the start of `state`, `noticed` the delivery of the notice, `saved` the owner's
    last report that everything is saved. `suspended`: its programs are suspended here. `steps` led
    to `ready`; they are sent until a report with them was delivered. `job` is the number of the job
    by which the engine of the node holds the device, and `host` where it runs, if the node is a slot of
    a pool. `staging`: data sets that are being fetched for it,
    and that it waits for. `script` is said by one allocation of those of a script's job."""

    id: Name
    state: AllocationState
    devices: tuple[str, ...]
    error: str | None
    since: int
    noticed: int | None = dataclasses.field(default=None, metadata=ADDED)
    saved: int | None = dataclasses.field(default=None, metadata=ADDED)
    suspended: bool = dataclasses.field(default=False, metadata=ADDED)
    steps: tuple[PreparedStep, ...] = dataclasses.field(default=(), metadata=ADDED)
    job: int | None = dataclasses.field(default=None, metadata=ADDED)
    staging: tuple[DataName, ...] = dataclasses.field(default=(), metadata=ADDED)
    script: ReportedScript | None = dataclasses.field(default=None, metadata=ADDED)
    host: HostName = dataclasses.field(default="", metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HardwareError:
    """An error that the driver reported at `at` (node's clock). `code` is the Xid, or the number of
    wrong memory bits. `instance` is the UUID of the slice, None for the GPU. With Xid 154
    `recovery` is the action that the driver asks for, where it names one."""

    gpu: Name
    kind: Literal["xid", "ecc"]
    code: int
    instance: str | None
    at: int
    recovery: Recovery | None = dataclasses.field(default=None, metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnbookedDevice:
    """A GPU (`slot` None) or slice with unbooked processes, and their users by name. With `booked`
    the device belongs to another user's booking, whose processes may be there too."""

    gpu: Name
    slot: int | None
    processes: int
    users: tuple[str, ...] = ()
    booked: bool = dataclasses.field(default=False, metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """An action at `at` (node's clock) against an unbooked process of `user` on a GPU (`slot` None)
    or slice: a warning on the user's terminals, TERM, or KILL."""

    gpu: Name
    slot: int | None
    pid: int
    step: Literal["warned", "asked", "killed"]
    user: str
    at: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The current state of a node. `observed_generation` is that of the document that was applied.

    A GPU that does not answer is missing from `gpus` and named in `error`; a driver call about
    those in `hanging` has not returned for long. `errors` and `deeds` (enforcement actions) are
    the latest of their kind, repeated in each report so that a lost report loses nothing.
    """

    kind: ClassVar[str] = "report"
    epoch: int
    observed_generation: int
    seq: int
    gpus: tuple[ReportedGpu, ...] = ()
    allocations: tuple[ReportedAllocation, ...] = ()
    error: str | None = None
    errors: tuple[HardwareError, ...] = dataclasses.field(default=(), metadata=ADDED)
    foreign: tuple[UnbookedDevice, ...] = dataclasses.field(default=(), metadata=ADDED)
    hanging: tuple[Name, ...] = dataclasses.field(default=(), metadata=ADDED)
    deeds: tuple[Enforcement, ...] = dataclasses.field(default=(), metadata=ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """`epoch` and `observed_generation` are of the document that the agent follows; agents before
    0.4 omit the epoch. `lease` is the remaining seconds of the agent's Lease; agents before
    `LEASE_REPORTED_SINCE` omit it."""

    kind: ClassVar[str] = "heartbeat"
    seq: int
    observed_generation: int
    sent_at: int
    epoch: int = dataclasses.field(default=0, metadata=ADDED)
    lease: int = dataclasses.field(default=0, metadata=ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement of a GPU (slot, size None) or slice. An unavailable value is None, never 0.

    Memory bandwidth and the time of SMs and tensor cores are percentages, links KiB per second.
    `throttle` holds NVML's clock event reasons. `energy_mj` grows until the driver is reloaded.
    """

    gpu: Name
    slot: int | None
    size: int | None
    allocation: str | None
    utilisation: int | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    power_mw: int | None
    temperature_c: int | None
    processes: int | None
    bandwidth: int | None = dataclasses.field(default=None, metadata=ADDED)
    tensor: int | None = dataclasses.field(default=None, metadata=ADDED)
    sm_mhz: int | None = dataclasses.field(default=None, metadata=ADDED)
    throttle: int | None = dataclasses.field(default=None, metadata=ADDED)
    pcie_rx_kb: int | None = dataclasses.field(default=None, metadata=ADDED)
    pcie_tx_kb: int | None = dataclasses.field(default=None, metadata=ADDED)
    nvlink_rx_kb: int | None = dataclasses.field(default=None, metadata=ADDED)
    nvlink_tx_kb: int | None = dataclasses.field(default=None, metadata=ADDED)
    energy_mj: int | None = dataclasses.field(default=None, metadata=ADDED)
    sm: int | None = dataclasses.field(default=None, metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine:
    """What the program of a booking said last of its progress; `allocation` is one of the booking's."""

    allocation: Name
    line: ProgressText


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Measurements, and the progress that programs have said since the last message. `data` are the data
    sets of the cache folder; None: this message says nothing of them. `host` is the use of the host by
    bookings."""

    kind: ClassVar[str] = "telemetry"
    sent_at: int
    samples: tuple[Sample, ...] = ()
    seq: int = dataclasses.field(default=0, metadata=ADDED)
    progress: tuple[ProgressLine, ...] = dataclasses.field(default=(), metadata=ADDED)
    data: tuple[CachedData, ...] | None = dataclasses.field(default=None, metadata=ADDED)
    host: tuple[HostUse, ...] = dataclasses.field(default=(), metadata=ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckFact:
    """A fact that the text of a check names."""

    name: Name
    value: Line


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check of `doctor`, and what the operator can do.

    `seen` and `do` are English. Their codes in `CHECK_TEXTS` and the facts make other languages.
    """

    name: Line
    state: CheckState
    seen: Line
    do: Line
    seen_code: Line = dataclasses.field(default="", metadata=ADDED)
    do_code: Line = dataclasses.field(default="", metadata=ADDED)
    facts: tuple[CheckFact, ...] = dataclasses.field(default=(), metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The results of `doctor` at `at` (node's clock), at most `CHECKS_MAX` of them."""

    kind: ClassVar[str] = "examination"
    at: int
    checks: tuple[CheckResult, ...]
    seq: int
    version: int = VERSION


FromAgent = Inventory | Report | Heartbeat | Telemetry | Examination | Notebooks
