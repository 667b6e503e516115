"""The parts of one node's agent."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import wire
from agent.data.folder import DataFolder
from agent.data.staging import Stager
from agent.owner.booking_files import BookingFiles
from agent.owner.mps_units import MpsUnits
from agent.owner.notebooks import Notebooks
from agent.owner.shares import NodeContext
from agent.owner.slices import Slices
from agent.plan.targets import GpuTarget
from agent.ports.gpu import GpuPort, WatchPort
from agent.ports.group_use import GroupUse, LinkUse
from agent.ports.handover import Handover
from agent.ports.programs import Programs, account_same
from agent.ports.suspender import Suspender
from agent.report.metrics import MetricsBoard
from agent.state.documents import Keys
from agent.state.store import Store


class Jobs(Protocol):
    """The jobs by which another scheduler holds the devices of bookings, by allocation."""

    @property
    def is_waiting(self) -> bool:
        """Whether a job may start at any moment."""

    def follow(self, targets: Iterable[GpuTarget], *, known: bool) -> list[str]:
        """Takes in what is to run, before each turn; returns problems. `known`: by a document."""

    def together(self, allocations: Iterable[str]) -> Collection[str]:
        """Returns these allocations and the others of their jobs."""

    def numbers(self) -> Mapping[str, int]:
        """Returns the job of each allocation."""

    def hosts(self) -> Mapping[str, str]:
        """Returns where the job of each allocation runs, if the scheduler has chosen it."""

    def ended(self) -> Mapping[str, str]:
        """Returns the allocations whose job ended by itself, and how."""

    def scripts(self) -> Mapping[str, wire.ReportedScript]:
        """Returns the scripts that jobs run or have run, each by one of its allocations."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts of one node's agent.

    `inventory` reads the hardware again. `place` is the node's place among its peers, for programs.
    Without `programs` no program is warned or suspended. `pause_signal` is the signal that
    announces a pause. `one_account`: a shared GPU serves one account at a time. Without a `watch`
    no errors of the driver are reported. `board` holds the metrics for Prometheus. `alive` is
    called at least every 5 s by the main loop. `account_of` returns the local account of a member
    of the portal. Unless `may_end` returns true, no unbooked program is ended, whatever the portal
    orders. `mps` manages the MPS daemons of shared GPUs through systemd. `slices` restrict
    programs to the devices of their booking. With `jobs` another scheduler gives the devices on
    the portal's behalf. `available_mb` returns the memory that a booking's own
    limit leaves for a pause, in MiB; `group_use` what its programs have
    used of the host, `links_use` what RDMA adapters have carried. Without `notebooks` the node
    offers none. `data` has the data sets of its cache folder, into which the `stager` fetches
    missing ones. Free host cores may be lent to bookings, but for `cores_kept`; None: none are.
    """

    keys: Keys
    port: GpuPort
    store: Store
    handover: Handover
    bookings: BookingFiles
    inventory: Callable[[], wire.Inventory]
    watch: WatchPort | None = None
    board: MetricsBoard | None = None
    place: NodeContext | None = None
    programs: Programs | None = None
    suspender: Suspender | None = None
    pause_signal: int | None = None
    one_account: bool = True
    alive: Callable[[], None] = lambda: None
    account_of: Callable[[str], str | None] = account_same
    may_end: Callable[[], bool] = lambda: True
    mps: MpsUnits | None = None
    slices: Slices | None = None
    jobs: Jobs | None = None
    notebooks: Notebooks | None = None
    data: DataFolder | None = None
    stager: Stager | None = None
    cores_kept: int | None = None
    available_mb: Callable[[str], int | None] = lambda booking: None
    group_use: Callable[[str], GroupUse | None] = lambda booking: None
    links_use: Callable[[], LinkUse | None] = lambda: None
