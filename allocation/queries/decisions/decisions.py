"""What a decision changed, for its readers.

A web process may not read decisions: their documents name bookings of all tenants. The functions
`portal_decision` and `portal_replays` give it what is of no tenant.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import BigIntegerField, F, Func, QuerySet

from allocation.models import Booking, BookingEvent, MovedStart
from tenants.access import Actor
from tenants.models import Tenant

LINES = 100
"""Bookings that a page shows of one decision."""


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """What belongs to no tenant: when, by which policy and code, and the digests of its input and
    output. `archived_in` is the file with its documents if they have left the database."""

    id: int
    at: datetime
    policy: int
    software: str
    solve_ms: int
    snapshot_sha256: str
    plan_sha256: str
    archived_in: str

    @property
    def commit(self) -> str:
        """The commit of the code that made it."""
        return self.software.partition(",")[0].removeprefix("commit ")

    @property
    def libraries(self) -> str:
        """The versions of the libraries of the solver."""
        return self.software.partition(", ")[2]


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """A replay. `outcome` is empty while it waits or runs; `is_nightly`: no person asked for it."""

    id: UUID
    decision: int
    asked_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    note: str
    comparison: str
    snapshot_sha256: str
    plan_sha256: str
    software: str
    took_ms: int
    is_nightly: bool

    @property
    def state(self) -> str:
        """`waiting`, `running`, or the outcome."""
        return self.outcome or ("running" if self.started_at else "waiting")

    @property
    def is_open(self) -> bool:
        """Whether it has no outcome yet."""
        return not self.outcome


@dataclass(frozen=True, slots=True)
class ChangedBooking:
    """A booking of a decision: its events, and the receipt if its start moved. Without events it
    keeps its plan."""

    booking: Booking
    events: tuple[BookingEvent, ...]
    moved: MovedStart | None


@dataclass(frozen=True, slots=True)
class ChangedBookings:
    """The first `LINES` bookings by number, and how many there are."""

    lines: tuple[ChangedBooking, ...]
    total: int


class DecisionOf(Func):
    """The decision that an event names; the index `event_of_decision` has the same expression."""

    template = "((%(expressions)s ->> 'decision')::bigint)"
    output_field = BigIntegerField()


def decision_facts(number: int) -> DecisionFacts | None:
    """Returns the facts of a decision; None if there is none of this number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_decision(%s)", [number])
        row = cursor.fetchone()
    return DecisionFacts(*row) if row else None


def replay_latest(number: int) -> ReplayFacts | None:
    """Returns the newest replay of a decision; None if nobody has asked for one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_replays(%s)", [number])
        row = cursor.fetchone()
    return ReplayFacts(*row) if row else None


def decision_events(actor: Actor | None) -> QuerySet[BookingEvent]:
    """Events that a decision caused, with its number as `decided`: those of bookings that the
    actor may see, or of all tenants for an operator (None)."""
    found = BookingEvent.objects.annotate(decided=DecisionOf(F("detail")))
    found = found.filter(decided__isnull=False)
    if actor is None:
        return found.filter(tenant_id__in=list(Tenant.objects.values_list("id", flat=True)))
    found = found.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        found = found.filter(booking__project_id__in=list(actor.roles))
    return found


def changed_bookings(number: int, actor: Actor | None, most: int = LINES) -> ChangedBookings:
    """Returns the bookings that the decision changed or planned last, by their numbers."""
    events = _of_decisions(actor, number)
    ids = set(events.values_list("booking_id", flat=True))
    ids |= set(_planned(number, actor).values_list("id", flat=True))
    rows = list(_bookings(ids).order_by("tenant_id", "number", "array_index")[:most])
    shown = {row.id for row in rows}
    by_booking: dict[UUID, list[BookingEvent]] = {}
    for event in events.filter(booking_id__in=shown).order_by("id"):
        by_booking.setdefault(event.booking_id, []).append(event)
    tenants = {row.tenant_id for row in rows}
    moved = MovedStart.objects.filter(tenant_id__in=tenants, booking_id__in=shown, decision=number)
    receipts = {row.booking_id: row for row in moved.select_related("claimant")}
    lines = (ChangedBooking(row, tuple(by_booking.get(row.id, ())), receipts.get(row.id)) for row in rows)
    return ChangedBookings(tuple(lines), len(ids))


def decisions_latest(
    actor: Actor, *, most: int, before: int | None, bookings: Collection[UUID] = ()
) -> list[tuple[int, int]]:
    """Returns (decision, number of the reader's bookings in it), the newest first."""
    events = _of_decisions(actor, before, "decided__lt") if before else decision_events(actor)
    if bookings:
        events = events.filter(booking_id__in=bookings)
    # Few events have the same decision, so a bounded number of events has enough decisions.
    decided_by = DecisionOf(F("detail"))
    rows = events.order_by(decided_by.desc()).values_list(decided_by, "booking_id")
    found: dict[int, set[UUID]] = {}
    for decided, booking in rows.iterator(chunk_size=500):
        if decided not in found and len(found) == most:
            break
        found.setdefault(decided, set()).add(booking)
    return [(decided, len(changed)) for decided, changed in found.items()]


def decision_changes(actor: Actor, numbers: Collection[int]) -> dict[int, list[BookingEvent]]:
    """Returns the newest event of each booking that the decisions changed, by decision, the bookings by
    their numbers."""
    events = _of_decisions(actor, numbers, "decided__in").select_related("booking")
    newest = {(event.detail["decision"], event.booking_id): event for event in events.order_by("id")}
    found: dict[int, list[BookingEvent]] = {}
    for (number, _), event in sorted(newest.items(), key=lambda each: each[1].booking.number):
        found.setdefault(number, []).append(event)
    return found


def _of_decisions(
    actor: Actor | None, number: int | Collection[int], lookup: str = "decided"
) -> QuerySet[BookingEvent]:
    return decision_events(actor).filter(**{lookup: number})


def _planned(number: int, actor: Actor | None) -> QuerySet[Booking]:
    """The bookings that no later decision has planned, whether their plan has changed or not."""
    found = Booking.objects.filter(decision=number)
    if actor is None:
        return found
    found = found.filter(tenant_id=actor.tenant_id)
    return found if actor.is_tenant_admin else found.filter(project_id__in=list(actor.roles))


def _bookings(ids: Collection[UUID]) -> QuerySet[Booking]:
    return Booking.objects.filter(id__in=ids).select_related("project", "owner", "tier", "tenant")
