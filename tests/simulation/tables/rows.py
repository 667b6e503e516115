"""What the model portal keeps: the tables of the real one, as far as a schedule touches them.

Times are Unix seconds; what the database keeps in whole seconds is whole here too.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import wire
from solver import Gpu, Host, Limit, Model, Order, Place, Reason, Tier
from tests.simulation.requests.tables import ArrayRow, ChangeRow, EntryRow, OfferRow
from tests.simulation.tables.people import BORROWER, SERVICES, Party, Service, UserRequest

LIVE = ("planned", "starting", "active", "releasing")
STARTED_STATES = ("starting", "active", "releasing")
OVER = ("ended", "refused", "expired", "cancelled", "failed")
TRANSITIONAL = ("requested", "starting", "ending", "pausing")
WHOLE = 1000


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a schedule does not change: hardware, quota and people; `uuids` by the GPUs' ids,
    `drivers` by node."""

    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    uuids: dict[str, str]
    drivers: dict[str, str]
    hosts: tuple[Host, ...]
    limits: tuple[Limit, ...]
    tiers: tuple[Tier, ...]
    parties: tuple[Party, ...]
    keys: dict[str, bytes]
    key_version: int
    epoch: int

    @cached_property
    def node_of(self) -> dict[str, str]:
        """The node of each GPU, by the GPU's id."""
        return {gpu.id: gpu.node for gpu in self.gpus}

    @cached_property
    def class_of(self) -> dict[str, str]:
        """The class of each GPU, by the GPU's id."""
        return {gpu.id: gpu.gpu_class for gpu in self.gpus}

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The index of each GPU on its node, by the GPU's id."""
        return {gpu.id: gpu.index for gpu in self.gpus}

    def profile_id(self, gpu: str, profile: str | None) -> int | None:
        """As NVML numbers it; None for a whole GPU."""
        if profile is None:
            return None
        slug = next(g.model for g in self.gpus if g.id == gpu)
        model = next(m for m in self.models if m.slug == slug)
        return next(p.profile_id for p in model.placements if p.profile == profile)


@dataclass(slots=True, kw_only=True)
class Booking:
    """`bought` are the seconds that were requested, with extensions and changes; `requested_from`:
    since when it was asked for to start; `index`: of an element of an `array`."""

    id: str
    number: int
    requested: UserRequest
    duration: int
    not_before: int
    submitted: int
    bought: int
    state: str = "requested"
    outcome: str = ""
    starts: int | None = None
    ends: int | None = None
    strength: str | None = None
    places: tuple[Place, ...] = ()
    reasons: tuple[Reason, ...] = ()
    extension: int | None = None
    extension_requested: int = 0
    extension_waits_until: int | None = None
    extension_is_waiting: bool = False
    ready_at: float | None = None
    notified_at: float | None = None
    saved_at: float | None = None
    released_at: float | None = None
    lost_at: float | None = None
    used_seconds: int = 0
    credited_seconds: int = 0
    pause_count: int = 0
    replaced: int = 0
    revision: int = 1
    ranked_at: int | None = None
    requested_from: int | None = None
    array: str = ""
    index: int = 0

    @property
    def label(self) -> str:
        """Its name on nodes."""
        return f"BK-{self.number}_{self.index}" if self.index else f"BK-{self.number}"

    @property
    def tier(self) -> Service:
        return SERVICES[self.requested.tier]


@dataclass(slots=True, kw_only=True)
class Row:
    """An allocation with its occupancy: None before it was opened, then True until proof. `left`:
    the booking has gone on without it; `broken`: because its hardware failed. `granted`: the
    decision and the position in its queue; `extended`: the end before an extension, and its
    decision."""

    id: str
    booking: str
    place: Place
    starts: int
    ends: int
    granted: tuple[int, int]
    preemptor: bool = False
    extended: tuple[int, int] | None = None
    state: str = "planned"
    devices: tuple[str, ...] = ()
    occupied: bool | None = None
    left: bool = False
    broken: bool = False
    leased: bool = False
    suspended: bool = False
    saved_at: float | None = None

    def collides(self, other: "Row") -> bool:
        """On the same slots, at whatever time; shares on one GPU are counted instead."""
        mine, its = self.place, other.place
        return (
            mine.gpu == its.gpu
            and (mine.share is None or its.share is None)
            and mine.start < its.start + its.size
            and its.start < mine.start + mine.size
        )

    def meets(self, other: "Row") -> bool:
        """At the same time, at whatever place."""
        return self.starts < other.ends and other.starts < self.ends


@dataclass(slots=True, kw_only=True)
class Pause:
    """See `allocation.models.Pause`. `handed` and `beneficiary` are its cause's."""

    id: str
    booking: str
    beneficiary: str
    number: int
    may_wait: bool
    own: bool
    ready_at: float
    notified_at: float
    deadline: int
    ends_before: int
    rule: str = ""
    method: wire.PauseMethod = "stop"
    handed: bool = False
    more_asked_at: float | None = None
    more_times_used: int = 0
    acknowledged_at: float | None = None
    emptied_at: float | None = None
    resumed_at: float | None = None
    ended_at: float | None = None
    withdrawn: bool = False
    lost_seconds: int = 0
    credit_seconds: int = 0
    remaining_seconds: int | None = None

    @property
    def is_open(self) -> bool:
        return self.resumed_at is None and self.ended_at is None


@dataclass(slots=True, kw_only=True)
class NodeRow:
    generation: int = 0
    published: int = -1
    observed: int = -1
    seq: int = 0
    heartbeat_seq: int = 0
    heartbeat_at: float | None = None
    telemetry_seq: int = 0
    inventory_seq: int = 0
    skew: int | None = None
    clock_wrong: bool = False
    partitioned: bool = False
    ahead: int | None = None
    unreachable_since: float | None = None
    long_unreachable: bool = False
    reported_lease_seconds: int = 0
    outage_lease_seconds: int = 0
    outage_lease_seq: int = 0

    @property
    def takes_work(self) -> bool:
        """Whether anything new may be placed there."""
        return self.keeps_planned_work and self.unreachable_since is None

    @property
    def keeps_planned_work(self) -> bool:
        """Whether what is planned there stays."""
        trusted = not (self.clock_wrong or self.partitioned or self.long_unreachable)
        return trusted and self.ahead is None


@dataclass(slots=True, kw_only=True)
class GpuRow:
    """`why` it is not well: lost, foreign, hangs or error. `foreign`: somebody has programs there
    without a booking; `hanging`: its driver does not answer."""

    mode: str = "whole"
    health: str = "ok"
    why: str = ""
    needs_operator: bool = False
    drain_by: float | None = None
    foreign: bool = False
    hanging: bool = False


@dataclass(slots=True, kw_only=True)
class MaintenanceRow:
    """Maintenance of a node, or of one of its GPUs. See `allocation.models.Maintenance`."""

    id: str
    node: str
    gpu: int | None
    starts: int
    ends: int
    drain_by: int
    ended_at: float | None = None


@dataclass(slots=True, kw_only=True)
class Tables:
    """Everything that a backup would hold. `proof_needed` is False only in the negative control
    that starts a booking before its place is proven empty."""

    epoch: int
    node_of: dict[str, str]
    drivers: dict[str, str]
    counted: dict[str, int] = field(default_factory=dict)
    bookings: dict[str, Booking] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    gpus: dict[str, GpuRow] = field(default_factory=dict)
    maintenance: dict[str, MaintenanceRow] = field(default_factory=dict)
    # Errors of hardware that were heard of: each is acted on once.
    errors: set[tuple[object, ...]] = field(default_factory=set)
    # When nodes contradicted the portal, by GPU.
    conflicts: dict[str, list[float]] = field(default_factory=dict)
    # Orders of operators to move running work that wait for an answer, and how many were obeyed.
    orders: dict[str, Order] = field(default_factory=dict)
    moved: int = 0
    # By booking: its open change, its entry of the waiting list, its open offer; and what the
    # calendar has more of than it asks for.
    changes: dict[str, ChangeRow] = field(default_factory=dict)
    entries: dict[str, EntryRow] = field(default_factory=dict)
    offers: dict[str, OfferRow] = field(default_factory=dict)
    cuts: set[str] = field(default_factory=set)
    arrays: dict[str, ArrayRow] = field(default_factory=dict)
    # What became of changes, offers and windows that waited.
    outcomes: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    # Until when a planned outage lasts; since and until when decisions are frozen (None: no end).
    outage_until: float | None = None
    frozen_since: float | None = None
    frozen_until: float | None = None
    # Until when nobody is paused for a tenant's person on a class, whose claim was cancelled after
    # others had notice for it.
    cooling: dict[tuple[str, str, str], float] = field(default_factory=dict)
    proof_needed: bool = True

    def is_frozen(self, now: float) -> bool:
        """See decisions_frozen."""
        is_over = self.frozen_until is not None and self.frozen_until <= now
        return self.frozen_since is not None and not is_over

    def copy(self) -> "Tables":
        """As a backup would hold it."""
        tables: dict[str, Any] = {
            name: {key: replace(row) for key, row in getattr(self, name).items()}
            for name in (
                *("bookings", "rows", "pauses", "nodes", "gpus", "maintenance"),
                *("changes", "entries", "offers", "arrays"),
            )
        }
        return Tables(
            epoch=self.epoch,
            node_of=self.node_of,
            drivers=self.drivers,
            counted=dict(self.counted),
            errors=set(self.errors),
            cuts=set(self.cuts),
            outcomes=Counter(self.outcomes),
            conflicts={gpu: list(times) for gpu, times in self.conflicts.items()},
            orders=dict(self.orders),
            moved=self.moved,
            cooling=dict(self.cooling),
            decisions=self.decisions,
            outage_until=self.outage_until,
            frozen_since=self.frozen_since,
            frozen_until=self.frozen_until,
            proof_needed=self.proof_needed,
            **tables,
        )

    def of(self, booking: Booking, *states: str) -> list[Row]:
        """The rows of a booking in some states, by id."""
        found = (r for r in self.rows.values() if r.booking == booking.id and r.state in states)
        return sorted(found, key=lambda row: row.id)

    def here(self, booking: Booking) -> list[Row]:
        """What is live of a booking and was not left behind, by id."""
        return [row for row in self.of(booking, *LIVE) if not row.left]

    def is_awaited(self, booking: Booking) -> bool:
        """See is_awaited."""
        if booking.state == "queued":
            return booking.requested.starts is None and booking.strength == "firm"
        return booking.state == "scheduled" and any(r.preemptor for r in self.here(booking))

    def pause_of(self, booking: Booking) -> Pause | None:
        """The pause that is neither resumed nor over."""
        mine = (p for p in self.pauses.values() if p.booking == booking.id and p.is_open)
        return next(mine, None)

    def is_own(self, booking: Booking, claim: Booking) -> bool:
        """See own_of: all but one of the people are of one tenant, and nobody is of two."""
        return (booking.requested.who == BORROWER) == (claim.requested.who == BORROWER)

    def is_silent(self, row: Row) -> bool:
        """Whether its node does not answer."""
        return self.nodes[self.node_of[row.place.gpu]].unreachable_since is not None

    def supersede(self, booking: Booking) -> bool:
        """Its plan is void; False when there was none."""
        planned = self.of(booking, "planned")
        for row in planned:
            row.state = "superseded"
        return bool(planned)

    def bump(self, rows: Iterable[Row]) -> None:
        """The assignment of their nodes has changed."""
        for node in {self.node_of[row.place.gpu] for row in rows}:
            self.nodes[node].generation += 1


def shares_fit(row: Row, others: Iterable[Row]) -> bool:
    """Whether a share fits with other shares that are there all the time."""
    if row.place.share is None:
        return True
    there = sum(o.place.share or 0 for o in others if o.place.gpu == row.place.gpu)
    return there + row.place.share <= WHOLE
