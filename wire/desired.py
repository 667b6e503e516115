"""What the portal sends to a node: its desired state and its lease."""

import dataclasses
from typing import ClassVar, Literal

from wire.data import DataName
from wire.fields import ADDED, VERSION, Mode, Name, PauseMethod
from wire.notebooks import DesiredNotebook
from wire.scripts import DesiredScript


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice of a pause. The portal sent it at `told`; the devices are due at `at` (Unix s)."""

    id: Name
    told: int
    at: int
    method: PauseMethod


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredAllocation:
    """One allocation on one GPU, for [`starts`, `ends`) in Unix seconds.

    `slot` and `size` are memory slots. For a whole GPU `profile` and `profile_id` are None; `share`
    is a part of a whole GPU in thousandths. A "release" stays in the document until the agent
    reports "empty". Under a `notice`, `ends` is its `at`. `resumes` is the allocation that was
    suspended on this node. With `lease` it may run only while the node's Lease is valid, because
    the portal may restart it elsewhere. `cores` and `memory_mb` are resources of the host. `project`
    is written for nodes of engines: projects have namespaces there, or accounts. `data` are data sets
    that the booking names; only nodes that have listed theirs get it. `more_cores`: so many free cores of
    the host may be lent to it while nobody else needs them.
    """

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
    notice: Notice | None = dataclasses.field(default=None, metadata=ADDED)
    resumes: Name | None = dataclasses.field(default=None, metadata=ADDED)
    share: int | None = dataclasses.field(default=None, metadata=ADDED)
    lease: bool = dataclasses.field(default=False, metadata=ADDED)
    cores: int = dataclasses.field(default=0, metadata=ADDED)
    memory_mb: int = dataclasses.field(default=0, metadata=ADDED)
    project: Name | None = dataclasses.field(default=None, metadata=ADDED)
    data: tuple[DataName, ...] = dataclasses.field(default=(), metadata=ADDED)
    more_cores: int = dataclasses.field(default=0, metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSlice:
    """A slice that no allocation has yet, at these memory slots."""

    profile_id: int
    slot: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGpu:
    """`prepared` are slices to make ahead of the allocations that are expected for them. The agent makes
    them when the GPU has nothing else to do, and whatever an allocation needs goes first."""

    uuid: Name
    mode: Mode
    allocations: tuple[DesiredAllocation, ...] = ()
    prepared: tuple[DesiredSlice, ...] = dataclasses.field(default=(), metadata=ADDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node of a booking, with the number of its GPUs or slices there."""

    node: Name
    devices: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A booking on several nodes. `members` are in the order of their ranks, which is the same on
    every node for the whole run."""

    tenant: Name
    booking: Name
    members: tuple[Member, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The node's next key, wrapped with the key that signs this document, in hex."""

    version: int
    hidden: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """The enforcement against unbooked processes, besides reporting them: seconds from the first
    sight until the terminals of their user get a warning, and until they are ended (None: never).
    The warning comes at least a minute before."""

    warn_after: int
    end_after: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The whole desired state of one node. (epoch, generation) only grows.

    `suspended` are the allocations that may still be resumed here; the agent discards all others
    (None: it discards nothing). Without a `ladder` unbooked processes are only reported. Only nodes
    that have sent `Notebooks` get `notebooks`, and only nodes of Slurm `scripts`.
    """

    kind: ClassVar[str] = "desired"
    node: Name
    epoch: int
    generation: int
    gpus: tuple[DesiredGpu, ...] = ()
    gangs: tuple[Gang, ...] = dataclasses.field(default=(), metadata=ADDED)
    rotation: Rotation | None = dataclasses.field(default=None, metadata=ADDED)
    suspended: tuple[Name, ...] | None = dataclasses.field(default=None, metadata=ADDED)
    ladder: Escalation | None = dataclasses.field(default=None, metadata=ADDED)
    notebooks: tuple[DesiredNotebook, ...] = dataclasses.field(default=(), metadata=ADDED)
    scripts: tuple[DesiredScript, ...] = dataclasses.field(default=(), metadata=ADDED)
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The answer to the node's heartbeat `seq`: for `ttl` seconds after that heartbeat was sent the
    portal restarts no leased work of the node elsewhere. It is valid for its epoch only."""

    kind: ClassVar[str] = "lease"
    node: Name
    epoch: int
    seq: int
    ttl: int
    version: int = VERSION
