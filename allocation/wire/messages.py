"""Every message as a frozen dataclass; `Name` is safe in keys and paths."""

import dataclasses
import re
from typing import Annotated, ClassVar, Literal

VERSION = 1
LEASE_EXPIRED = "its lease ran out"
"""The error of what the agent has ended because the portal no longer vouched for it."""
NOT_ANSWERING = "the driver does not come back from a call"
"""The error of a GPU about which the driver hangs."""
_ADDED = {"later": True}

Name = Annotated[str, re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]
"""Safe as a part of a Redis key and of a path: no slash, no colon, no leading dot."""

PciId = Annotated[str, re.compile(r"(?:[0-9a-f]{4}:[0-9a-f]{4})?")]
"""Vendor and device as `lspci -nn` writes them, "10de:2330"; empty where it is not known."""

_UNSAFE = "\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
LINE_MAX_LENGTH = 300
Line = Annotated[str, re.compile(f"[^{_UNSAFE}]{{0,{LINE_MAX_LENGTH}}}")]
"""Text of one line for pages: no control character, nothing that turns the direction of text."""
Label = Annotated[str, re.compile(f"[^{_UNSAFE}]{{0,24}}")]
"""A short Line, such as the name of a profile."""

Plain = Annotated[str, re.compile("[^\\x00\\ud800-\\udfff]*")]
"""Text of any length that PostgreSQL can hold."""

Small = Annotated[int, range(1 << 14)]
"""An index or a count, as the portal's columns hold it."""

SlotOffset = Annotated[int, range(-1 << 15, 1 << 15)]
"""A place that may be none: what lies before the first slot is offered to nobody."""

Count = Annotated[int, range(1 << 31)]
"""A larger count, as the portal's columns hold it."""

CHECKS_MAX = 64
"""Of one Examination."""

SLOTS = 8
"""Memory slots of a GPU at most, in every message."""

Mode = Literal["whole", "sliced", "shared"]
"""shared: not cut, for several at once; hardware knows no such mode and reports it as whole."""
AllocationState = Literal["preparing", "ready", "ending", "empty", "failed"]
PciePath = Literal["board", "switch", "switches", "bridge", "numa", "system"]
"""From nearest to farthest: one board, one PCIe switch, several, one host bridge, one NUMA node,
across the machine."""
HostLimits = Literal["counted", "enforced"]
CheckState = Literal["ok", "warn", "fail", "unknown"]
PauseMethod = Literal["stop", "signal", "suspend"]
Recovery = Literal["none", "reset", "drain", "reboot"]
"""stop: TERM, then KILL. signal: the owner's program ends itself, KILL at the deadline. suspend:
copied to the host's memory and frozen, to go on later on the same node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The owner was told at `told` to give the devices back until `at` (Unix seconds)."""

    id: Name
    told: int
    at: int
    method: PauseMethod


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredAllocation:
    """One allocation on one GPU; `slot` and `size` are memory slots, [`starts`, `ends`) seconds.
    Whole GPU: profile and profile_id are None; a `share` in thousandths is a part of one. A
    "release" stays until "empty" was reported. With a `notice`, `ends` is its `at`. `resumes` is
    the allocation that was suspended on this node. With `lease` it may run only while the node's
    Lease lasts: it may be begun anew elsewhere. `cores` and `memory_mb` are of the host."""

    id: Name
    booking: Name
    tenant: Name
    owner: str
    profile: str | None
    profile_id: int | None
    slot: int
    size: int
    starts: int
    ends: int
    state: Literal["run", "release"]
    notice: Notice | None = dataclasses.field(default=None, metadata=_ADDED)
    resumes: Name | None = dataclasses.field(default=None, metadata=_ADDED)
    share: int | None = dataclasses.field(default=None, metadata=_ADDED)
    lease: bool = dataclasses.field(default=False, metadata=_ADDED)
    cores: int = dataclasses.field(default=0, metadata=_ADDED)
    memory_mb: int = dataclasses.field(default=0, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGpu:
    uuid: Name
    mode: Mode
    allocations: tuple[DesiredAllocation, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's part of a booking: how many GPUs or slices of it lie there."""

    node: Name
    devices: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A booking that lies on several nodes; `members` in the order of their ranks, the same on
    every node and for as long as the booking runs."""

    tenant: Name
    booking: Name
    members: tuple[Member, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The node's key of a coming version, hidden under the key that signs this document, in hex."""

    version: int
    hidden: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """What is done about programs on devices that nobody gave them, besides telling of them: so
    many seconds after they were first seen their terminals are written to, and they are ended
    (None: never). They are always warned a minute before."""

    warn_after: int
    end_after: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The whole desired state of one node. (epoch, generation) only ever grows. `suspended` are the
    allocations that may still be resumed here, others are forgotten; None says nothing of it.
    Without a `ladder` nothing is done about strangers but telling."""

    kind: ClassVar[str] = "desired"
    node: Name
    epoch: int
    generation: int
    gpus: tuple[DesiredGpu, ...] = ()
    gangs: tuple[Gang, ...] = dataclasses.field(default=(), metadata=_ADDED)
    rotation: Rotation | None = dataclasses.field(default=None, metadata=_ADDED)
    suspended: tuple[Name, ...] | None = dataclasses.field(default=None, metadata=_ADDED)
    ladder: Escalation | None = dataclasses.field(default=None, metadata=_ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The portal heard the node's heartbeat `seq`: until `ttl` seconds after that was sent nothing
    of what runs there with a lease is begun anew elsewhere. Of another epoch it says nothing."""

    kind: ClassVar[str] = "lease"
    node: Name
    epoch: int
    seq: int
    ttl: int
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One legal place of one MIG profile; `max` is how many of the profile fit on one GPU."""

    profile: Label
    profile_id: Small
    start: SlotOffset
    size: Small
    compute: Small
    max: Small


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another GPU of the node, by index: how many NVLinks join the two, directly or through
    NVSwitches, and the nearest that they have in common over PCIe (None: not known)."""

    index: Small
    nvlinks: Small
    path: PciePath | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """`name` is NVML's product name; `device_id` and `subsystem_id` say which board it is, however
    drivers name it. `nvlink_domain` numbers the node's connected components of the NVLink matrix,
    None without links; `placements` is empty where MIG is impossible."""

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
    peers: tuple[Peer, ...] = dataclasses.field(default=(), metadata=_ADDED)
    device_id: PciId = dataclasses.field(default="", metadata=_ADDED)
    subsystem_id: PciId = dataclasses.field(default="", metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """`seq` is 0 while the node is not let in yet: no key signs that one. Bookings' host cores and
    memory are `counted` in plans only, or `enforced` on the node, too; `limits_note` says why not.
    """

    kind: ClassVar[str] = "inventory"
    hostname: Plain
    driver: Plain
    agent: Plain
    boot: Plain
    cores: Count
    memory_mb: Count
    gpus: tuple[InventoryGpu, ...] = ()
    seq: int = dataclasses.field(default=0, metadata=_ADDED)
    limits: HostLimits = dataclasses.field(default="counted", metadata=_ADDED)
    limits_note: Plain = dataclasses.field(default="", metadata=_ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance that is really there. `allocation` is None for one nobody here asked for;
    `uuid` is None while it has no compute instance."""

    profile: str
    profile_id: int
    slot: int
    size: int
    uuid: str | None
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedGpu:
    """`mode` was read back from the driver, `pending` is what a reset would make of it (None: the
    same). `error` says what keeps the GPU from its desired mode, else None; it is `stuck` when that
    has lasted."""

    uuid: Name
    mode: Mode
    instances: tuple[Instance, ...] = ()
    error: str | None = None
    pending: Mode | None = dataclasses.field(default=None, metadata=_ADDED)
    stuck: bool = dataclasses.field(default=False, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAllocation:
    """`devices` are the UUIDs handed over; `since` is when `state` was entered (node's clock), so
    are `noticed`, when the owner's hook was called with the notice, and `saved`, when the owner
    last said that everything is saved. `suspended`: what ran is frozen here, to be resumed."""

    id: Name
    state: AllocationState
    devices: tuple[str, ...]
    error: str | None
    since: int
    noticed: int | None = dataclasses.field(default=None, metadata=_ADDED)
    saved: int | None = dataclasses.field(default=None, metadata=_ADDED)
    suspended: bool = dataclasses.field(default=False, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HardwareError:
    """The driver told of an error at `at` (node's clock). `code` is the Xid, or how many bits of
    memory were wrong; `instance` the UUID of the slice that it is about, None for the GPU. With
    Xid 154 `recovery` is what the driver asks for, where it says that."""

    gpu: Name
    kind: Literal["xid", "ecc"]
    code: int
    instance: str | None
    at: int
    recovery: Recovery | None = dataclasses.field(default=None, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnbookedDevice:
    """Processes on a GPU (`slot` None) or slice that nobody here was given; `users` by name. With
    `booked` it was given to somebody else, who may be there, too."""

    gpu: Name
    slot: int | None
    processes: int
    users: tuple[str, ...] = ()
    booked: bool = dataclasses.field(default=False, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """What was done at `at` (node's clock) about a process of `user` that nobody gave the GPU
    (`slot` None) or slice: its terminals were written to, it was asked to end, it was killed."""

    gpu: Name
    slot: int | None
    pid: int
    step: Literal["warned", "asked", "killed"]
    user: str
    at: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is true now. `observed_generation` is that of the document that was acted on. A GPU
    that does not answer is missing from `gpus` and named in `error`; of those in `hanging` the
    driver has not come back from a call for long. `errors` are the latest that the driver told of,
    `deeds` the latest about strangers, said in each report so that a lost one costs nothing."""

    kind: ClassVar[str] = "report"
    epoch: int
    observed_generation: int
    seq: int
    gpus: tuple[ReportedGpu, ...] = ()
    allocations: tuple[ReportedAllocation, ...] = ()
    error: str | None = None
    errors: tuple[HardwareError, ...] = dataclasses.field(default=(), metadata=_ADDED)
    foreign: tuple[UnbookedDevice, ...] = dataclasses.field(default=(), metadata=_ADDED)
    hanging: tuple[Name, ...] = dataclasses.field(default=(), metadata=_ADDED)
    deeds: tuple[Enforcement, ...] = dataclasses.field(default=(), metadata=_ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """`epoch` and `observed_generation` are of the word that the agent follows; agents before 0.4
    leave the epoch out. `lease` is how many seconds the agent's Lease still lasts; agents before
    `LEASE_REPORTED_SINCE` leave it out."""

    kind: ClassVar[str] = "heartbeat"
    seq: int
    observed_generation: int
    sent_at: int
    epoch: int = dataclasses.field(default=0, metadata=_ADDED)
    lease: int = dataclasses.field(default=0, metadata=_ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One GPU (slot, size None) or one slice. What can't be measured is None, never 0.

    Bandwidth of memory and time of tensor cores in percent, links in KiB a second; `throttle` are
    NVML's bits of why the clock is not higher; `energy_mj` only grows until the driver is loaded
    anew."""

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
    bandwidth: int | None = dataclasses.field(default=None, metadata=_ADDED)
    tensor: int | None = dataclasses.field(default=None, metadata=_ADDED)
    sm_mhz: int | None = dataclasses.field(default=None, metadata=_ADDED)
    throttle: int | None = dataclasses.field(default=None, metadata=_ADDED)
    pcie_rx_kb: int | None = dataclasses.field(default=None, metadata=_ADDED)
    pcie_tx_kb: int | None = dataclasses.field(default=None, metadata=_ADDED)
    nvlink_rx_kb: int | None = dataclasses.field(default=None, metadata=_ADDED)
    nvlink_tx_kb: int | None = dataclasses.field(default=None, metadata=_ADDED)
    energy_mj: int | None = dataclasses.field(default=None, metadata=_ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    kind: ClassVar[str] = "telemetry"
    sent_at: int
    samples: tuple[Sample, ...] = ()
    seq: int = dataclasses.field(default=0, metadata=_ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check of `doctor` saw, and what an operator does about it."""

    name: Line
    state: CheckState
    seen: Line
    do: Line


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What `doctor` found on the node at `at` (node's clock); at most `CHECKS_MAX` checks."""

    kind: ClassVar[str] = "examination"
    at: int
    checks: tuple[CheckResult, ...]
    seq: int
    version: int = VERSION


FromAgent = Inventory | Report | Heartbeat | Telemetry | Examination
Message = Desired | Lease | FromAgent
