"""Bookings as pages show them: the reader's own, and one booking with its details."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Case, QuerySet, When

from allocation.models import Allocation, Booking, BookingEvent, Gpu, MovedStart, Node
from allocation.queries.bookings.booking_list import GROUPS
from allocation.queries.bookings.money.projects import quota_of
from allocation.queries.bookings.timelines.rows import SLOTS
from allocation.queries.bookings.timelines.timeline import bookings_visible
from allocation.queries.fleet.fleet import host_limits_text
from allocation.rules.states import OPEN, State
from billing.queries import BudgetFigures, budgets_figures
from billing.rules import UNITS_PER_GPU, Period
from tenants.access import Actor
from tenants.models import Project


@dataclass(frozen=True, slots=True)
class Slots:
    """The eight memory slots of one GPU. `own` are the booking's."""

    index: int
    whole: bool
    profile: str | None
    own: frozenset[int]

    @property
    def cells(self) -> list[tuple[int, bool]]:
        """(Slot, whether it belongs to the booking) for each slot."""
        return [(slot, slot in self.own) for slot in range(SLOTS)]


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The booking's place on one node: the indices of all GPUs of the node, and the booking's
    slots. `limits`: whether the node enforces host cores and memory. `engine` gives its devices; `job`
    is the one of that engine's which holds them, and `host` the node's name there. In a pool `chosen` is the
    host on which that job runs."""

    name: str
    rack: str
    limits: str
    indices: tuple[int, ...]
    gpus: tuple[Slots, ...]
    allocation: UUID | None
    job: int | None = None
    engine: str = Node.Engine.DEVICE
    host: str = ""
    chosen: str = ""

    @property
    def own(self) -> frozenset[int]:
        """Indices of the GPUs that the booking uses."""
        return frozenset(gpu.index for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class QuotaAt:
    """GPUs of a class that a project uses at an instant, and the effective limit (or None)."""

    label: str
    used: float
    limit: float | None


def own_bookings_next(actor: Actor, *, count: int) -> list[Booking]:
    """The reader's own running and scheduled bookings: paused ones first, then by start."""
    rows = _own(actor).filter(state__in=(*GROUPS["running"], State.PAUSED, State.SCHEDULED))
    paused_first = Case(When(state__in=(State.PAUSING, State.PAUSED), then=0), default=1)
    return list(rows.order_by(paused_first, "planned_starts", "id")[:count])


def own_bookings_waiting(actor: Actor, *, count: int) -> list[Booking]:
    """The reader's own waiting bookings, by planned start."""
    states = GROUPS["waiting"]
    return list(_own(actor).filter(state__in=states).order_by("planned_starts", "id")[:count])


def own_bookings_between(actor: Actor, starts: datetime, ends: datetime, *, count: int) -> list[Booking]:
    """The reader's own open bookings that run, or are planned to run, in the window, by start."""
    rows = _own(actor).filter(state__in=OPEN, planned_starts__lt=ends, planned_ends__gt=starts)
    return list(rows.order_by("planned_starts", "id")[:count])


def own_bookings_failed(actor: Actor, *, since: datetime) -> list[Booking]:
    """The reader's own bookings that were refused or failed since `since`."""
    states = (State.REFUSED, State.REJECTED, State.EXPIRED, State.FAILED)
    return list(_own(actor).filter(state__in=states, ended_at__gte=since).order_by("-ended_at")[:3])


def _own(actor: Actor) -> QuerySet[Booking]:
    return bookings_visible(actor).filter(owner_id=actor.user_id).select_related("project", "tier")


def budgets_in_force(actor: Actor, projects: Sequence[Project], now: datetime) -> list[BudgetFigures]:
    """The current budgets of these projects, in the order of the projects."""
    today = now.date()
    effects = budgets_figures(
        tenant_id=actor.tenant_id,
        project_ids=[project.id for project in projects],
        period=Period(today, today + timedelta(days=1)),
    )
    order: dict[UUID | None, int] = {project.id: place for place, project in enumerate(projects)}
    return sorted(effects, key=lambda effect: order[effect.project_id])


def node_places_of(booking: Booking) -> list[NodePlace]:
    """Where the booking runs, ran, or is planned to run. Empty if it never had a place."""
    rows = list(
        Allocation.objects.filter(booking=booking, abandoned=False)
        .exclude(state=Allocation.State.SUPERSEDED)
        .order_by("start")
    )
    live = [row for row in rows if row.state in Allocation.LIVE]
    # A paused booking is shown where it will resume, not where it ran.
    rows = live or ([] if booking.state == State.PAUSED else rows)
    slots: dict[UUID, list[Slots]] = {}
    gpus = {gpu.id: gpu for gpu in _gpus_of(booking, rows)}
    for row in rows:
        gpu = gpus[row.gpu_id]
        own = frozenset(range(row.start, row.start + row.size))
        place = Slots(gpu.index, row.mode != Gpu.Mode.SLICED, row.profile, own)
        slots.setdefault(gpu.id, []).append(place)
    if not rows:
        for planned in booking.planned_places:
            gpu = gpus[UUID(planned["gpu"])]
            own = frozenset(range(planned["start"], planned["start"] + planned["size"]))
            place = Slots(gpu.index, planned["profile"] is None, planned["profile"], own)
            slots.setdefault(gpu.id, []).append(place)
    first = {gpus[row.gpu_id].node_id: row for row in reversed(rows)}
    return _by_node([gpus[key] for key in slots], slots, first)


def allocation_ids_of(booking: Booking) -> list[UUID]:
    """The ids of all allocations of a booking, past ones included."""
    return list(Allocation.objects.filter(booking=booking).values_list("id", flat=True))


def _gpus_of(booking: Booking, rows: Sequence[Allocation]) -> QuerySet[Gpu]:
    wanted = [row.gpu_id for row in rows] or [UUID(place["gpu"]) for place in booking.planned_places]
    return Gpu.objects.filter(id__in=wanted).select_related("node__rack")


def _by_node(
    gpus: Sequence[Gpu], slots: dict[UUID, list[Slots]], first: dict[UUID, Allocation]
) -> list[NodePlace]:
    nodes = {gpu.node_id: gpu.node for gpu in gpus}
    indices: dict[UUID, list[int]] = {}
    for node_id, index in (
        Gpu.objects.filter(node_id__in=nodes).order_by("index").values_list("node_id", "index")
    ):
        indices.setdefault(node_id, []).append(index)
    places = [
        NodePlace(
            name=node.name,
            rack=node.rack.name,
            limits=host_limits_text(node),
            indices=tuple(indices[node.id]),
            gpus=tuple(
                sorted(
                    (s for gpu in gpus if gpu.node_id == node.id for s in slots[gpu.id]),
                    key=lambda each: (each.index, min(each.own)),
                )
            ),
            allocation=first[node.id].id if node.id in first else None,
            job=first[node.id].job if node.id in first else None,
            engine=node.engine,
            host=node.host_name or node.name,
            chosen=first[node.id].host if node.id in first else "",
        )
        for node in nodes.values()
    ]
    return sorted(places, key=lambda place: place.name)


def history_of(booking: Booking) -> list[BookingEvent]:
    """The events of a booking, newest first."""
    return list(
        BookingEvent.objects.filter(tenant_id=booking.tenant_id, booking=booking)
        .select_related("actor")
        .order_by("-id")
    )


def moved_starts_of(booking: Booking) -> list[MovedStart]:
    """The receipts of a booking's moved starts, newest first."""
    rows = MovedStart.objects.filter(tenant_id=booking.tenant_id, booking=booking)
    return list(rows.select_related("claimant").order_by("-id"))


def quota_at(*, project: Project, gpu_class: str, at: datetime) -> QuotaAt | None:
    """The project's use of a class at `at`. None if no quota has the class."""
    for line in quota_of(project=project, now=at, with_planned=True):
        if line.gpu_class == gpu_class:
            limit = None if line.limit is None else line.limit / UNITS_PER_GPU
            return QuotaAt(line.label, line.used / UNITS_PER_GPU, limit)
    return None
