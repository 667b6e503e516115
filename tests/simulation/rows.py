"""What the model portal keeps: the tables of the real one, as far as a schedule touches them.

Times are Unix seconds; what the database keeps in whole seconds is whole here too.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from allocation.solver import Ask, Gpu, Host, Limit, Model, Place, Tier

LIVE = ("planned", "starting", "active", "releasing")
TOLD = ("starting", "active", "releasing")
OVER = ("ended", "refused", "expired", "cancelled", "failed")
TRANSITIONAL = ("requested", "starting", "ending", "pausing")


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a schedule does not change: hardware, quota and people; `uuids` by the GPUs' ids."""

    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    uuids: dict[str, str]
    hosts: tuple[Host, ...]
    limits: tuple[Limit, ...]
    tiers: tuple[Tier, ...]
    tenant: str
    project: str
    tier: str
    priority: int
    slug: str
    owner: str
    owner_id: str
    keys: dict[str, bytes]
    key_version: int
    epoch: int

    @cached_property
    def node_of(self) -> dict[str, str]:
        """The node of each GPU, by the GPU's id."""
        return {gpu.id: gpu.node for gpu in self.gpus}

    def profile_id(self, gpu: str, profile: str | None) -> int | None:
        """As NVML numbers it; None for a whole GPU."""
        if profile is None:
            return None
        slug = next(g.model for g in self.gpus if g.id == gpu)
        model = next(m for m in self.models if m.slug == slug)
        return next(p.profile_id for p in model.placements if p.profile == profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody asks for, in whole seconds; `starts` makes the window fixed."""

    count: int
    profile: str | None
    together: str
    required: bool
    duration: int
    starts: int | None = None

    def ask(self) -> Ask:
        """As the solver reads it."""
        together = self.together
        return Ask(self.count, ("h100",), self.profile, together, self.required)  # type: ignore[arg-type]  # one of its words


@dataclass(slots=True, kw_only=True)
class Booking:
    id: str
    number: int
    wish: Wish
    duration: int
    not_before: int
    submitted: int
    state: str = "requested"
    outcome: str = ""
    starts: int | None = None
    ends: int | None = None
    places: tuple[Place, ...] = ()
    extension: int | None = None
    ready_at: float | None = None
    released_at: float | None = None
    lost_its_hardware: bool = False


@dataclass(slots=True, kw_only=True)
class Row:
    """An allocation with its occupancy: None before it was opened, then True until proof. `left`:
    the booking has gone on without it."""

    id: str
    booking: str
    place: Place
    starts: int
    ends: int
    state: str = "planned"
    devices: tuple[str, ...] = ()
    occupied: bool | None = None
    left: bool = False

    def collides(self, other: "Row") -> bool:
        """On the same slots, at whatever time."""
        mine, its = self.place, other.place
        return (
            mine.gpu == its.gpu
            and mine.start < its.start + its.size
            and its.start < mine.start + mine.size
        )


@dataclass(slots=True, kw_only=True)
class NodeRow:
    generation: int = 0
    published: int = -1
    observed: int = -1
    seq: int = 0
    heartbeat_seq: int = 0
    telemetry_seq: int = 0
    inventory_seq: int = 0
    skew: int | None = None
    clock_wrong: bool = False
    ahead: int | None = None

    @property
    def takes_work(self) -> bool:
        """Whether anything new may be placed there."""
        return not self.clock_wrong and self.ahead is None


@dataclass(slots=True, kw_only=True)
class GpuRow:
    mode: str = "whole"
    health: str = "ok"
    drain_by: float | None = None


@dataclass(slots=True, kw_only=True)
class Tables:
    """Everything that a backup would hold. `proof_needed` is False only in the negative control
    that starts a booking before its place is proven empty."""

    epoch: int
    node_of: dict[str, str]
    counted: int = 0
    bookings: dict[str, Booking] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    gpus: dict[str, GpuRow] = field(default_factory=dict)
    proof_needed: bool = True

    def copy(self) -> "Tables":
        """As a backup would hold it."""
        same = {name: getattr(self, name) for name in ("node_of", "epoch", "counted")}
        tables: dict[str, Any] = {
            name: {key: replace(row) for key, row in getattr(self, name).items()}
            for name in ("bookings", "rows", "nodes", "gpus")
        }
        return Tables(**same, **tables, proof_needed=self.proof_needed)

    def of(self, booking: Booking, *states: str) -> list[Row]:
        """The rows of a booking in some states, by id."""
        found = (r for r in self.rows.values() if r.booking == booking.id and r.state in states)
        return sorted(found, key=lambda row: row.id)
