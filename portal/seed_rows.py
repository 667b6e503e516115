"""Writing one demo booking: its row, its money, its places, its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import F

from allocation.models import Allocation, Booking, BookingEvent, Gpu, GpuModel
from allocation.rules.ask import AskDocument
from allocation.services.costs import booking_cost
from allocation.services.snapshot import models_read
from allocation.solver import Model, units_of
from billing.queries import price_of
from billing.rules import cost_of, money_text
from billing.services import hold_place
from portal.seed_calendar import Spot
from tenants.models import Project, Tenant, User


class PlaceTaken(Exception):
    """The database knows of somebody in the place: an exclusion constraint dropped a row."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of job that somebody books again and again; `hours` is from and to."""

    name: str
    owner: str
    project: tuple[str, str]
    tier: str
    gpu_class: str
    count: int
    profile: str | None
    hours: tuple[int, int]

    @property
    def text(self) -> str:
        """What its owner types, without the hours."""
        shape = f"{self.profile} {self.gpu_class}" if self.profile else self.gpu_class
        return f"{self.count} {shape}"


@dataclass(frozen=True, slots=True)
class Site:
    """What every booking refers to, read once."""

    projects: Mapping[tuple[str, str], Project]
    owners: Mapping[str, User]
    models: Mapping[str, Model]

    @classmethod
    def read(cls) -> "Site":
        """Projects by tenant and slug, people by sign-in name, geometry by GPU class."""
        solver_models = {model.slug: model for model in models_read()}
        return cls(
            projects={
                (project.tenant.slug, project.slug): project
                for project in Project.objects.select_related("tenant")
            },
            owners={user.username: user for user in User.objects.all()},
            models={
                gpu_class: solver_models[slug]
                for gpu_class, slug in GpuModel.objects.values_list("gpu_class_id", "slug")
            },
        )


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a booking's history, and the state it was in afterwards."""

    at: datetime
    kind: str
    state: str
    sentence: str


def booking_new(
    *, site: Site, booking_id: UUID, name: str, work: Work, ask: AskDocument, submitted: datetime
) -> Booking:
    """A booking at the prices of `submitted`, neither held for nor saved."""
    project = site.projects[work.project]
    price = price_of(gpu_class=work.gpu_class, tier=work.tier, now=submitted)
    units = ask.count * units_of(site.models[work.gpu_class], work.profile)
    return Booking(
        id=booking_id,
        tenant_id=project.tenant_id,
        project=project,
        owner=site.owners[work.owner],
        name=name,
        tier_id=work.tier,
        ask=ask.to_json(),
        zone="Europe/Berlin",
        duration_seconds=ask.duration,
        submitted=submitted,
        currency=price.currency,
        price_version=price.version,
        price_per_hour=cost_of(per_gpu_hour=price.per_gpu_hour, units=units, seconds=3600),
    )


def booking_hold(booking: Booking, now: datetime) -> None:
    """Holds the booking's price, as booking does. Raises Refused."""
    booking.held = booking_cost(booking, booking.duration_seconds)
    hold_place(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        reference=booking.id,
        amount=booking.held,
        starts=booking.not_before,
        ends=booking.not_before + timedelta(seconds=booking.duration_seconds),
        now=now,
    )


def booking_save(booking: Booking, events: Sequence[Event]) -> None:
    """Inserts the booking under its tenant's next number, with its history."""
    counted = Tenant.objects.filter(id=booking.tenant_id)
    counted.update(bookings_counted=F("bookings_counted") + 1)
    booking.number = counted.values_list("bookings_counted", flat=True).get()
    booking.version = 1 + len(events)
    booking.save(force_insert=True)
    who = booking.owner.get_full_name()
    held = money_text(booking.held, booking.currency)
    asked = Event(booking.submitted, "requested", "requested", f"Requested by {who}; {held} held.")
    BookingEvent.objects.bulk_create(
        BookingEvent(
            tenant_id=booking.tenant_id,
            booking=booking,
            at=event.at,
            kind=event.kind,
            state=event.state,
            sentence=event.sentence,
            actor=booking.owner if event is asked else None,
        )
        for event in (asked, *events)
    )


def allocations_save(
    booking: Booking, spots: Sequence[Spot], period: tuple[datetime, datetime], state: str
) -> None:
    """Gives the places to the booking. Raises PlaceTaken."""
    rows = [
        Allocation(
            id=uuid4(),
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            booking=booking,
            gpu=spot.gpu,
            gpu_number=spot.gpu.number,
            model_id=spot.gpu.model_id,
            mode=Gpu.Mode.SLICED if spot.profile else Gpu.Mode.WHOLE,
            profile=spot.profile,
            start=spot.start,
            size=spot.size,
            units=spot.units,
            period=DateTimeTZRange(*period),
            state=state,
        )
        for spot in spots
    ]
    Allocation.objects.bulk_create(rows, ignore_conflicts=True)
    if Allocation.objects.filter(id__in=[row.id for row in rows]).count() != len(rows):
        raise PlaceTaken(f"a place of {booking.name}")


def nothing_charged(booking: Booking, at: datetime) -> None:
    """The booking was over at `at` and cost nothing."""
    booking.charged, booking.ended_at = Decimal(0), at
