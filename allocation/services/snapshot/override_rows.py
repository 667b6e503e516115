"""Exceptions in a snapshot: overrides of limits and caps, and claims that pause nobody for a while."""

from datetime import datetime

from django.db.models import Q

from allocation.models import Booking
from allocation.models import Override as OverrideRow
from allocation.points import kept_uses
from allocation.rules.ask import classes_asked
from allocation.rules.states import TERMINAL
from allocation.services.snapshot.limits_in_time import GPU_HOUR
from solver import Cooling, Override

KINDS = (*OverrideRow.OF_QUOTA, OverrideRow.Kind.GPU_HOURS)


def overrides_read(now: datetime) -> tuple[Override, ...]:
    """Granted overrides of quota and GPU-hours that still count; row-level security may narrow them
    to one tenant."""
    rows = OverrideRow.objects.filter(
        Q(until__gt=now) | Q(is_once=True, booking__isnull=False),
        state=OverrideRow.State.GRANTED,
        kind__in=KINDS,
    ).exclude(booking__state__in=TERMINAL)
    return tuple(map(override_of, rows.select_related("project").order_by("id")))


def kept_read() -> tuple[Override, ...]:
    """What stays above a limit that was cut; row-level security may narrow it to one tenant."""
    return tuple(
        Override(
            f"kept {booking} {owner} {name}{' guarantee' if is_guarantee else ''}",
            owner,
            name,
            0,
            0,
            booking=str(booking),
            keeps=True,
            guarantee=is_guarantee,
        )
        for booking, owner, name, is_guarantee in kept_uses()
    )


def has_exception(booking: Booking) -> bool:
    """Whether an exception from a limit was granted to a booking."""
    granted = OverrideRow.State.GRANTED
    return booking.has_override and booking.overrides.filter(state=granted).exists()


def override_of(row: OverrideRow) -> Override:
    """The override of a row."""
    is_hours = row.kind == OverrideRow.Kind.GPU_HOURS
    return Override(
        id=str(row.id),
        owner=_owner_of(row),
        gpu_class=row.gpu_class_id or "",
        starts=0 if row.starts is None else int(row.starts.timestamp()),
        ends=0 if row.until is None else int(row.until.timestamp()),
        units=0 if is_hours else int(row.amount),
        unit_seconds=int(row.amount * GPU_HOUR) if is_hours else 0,
        booking=str(row.booking_id) if row.booking_id else "",
    )


def _owner_of(row: OverrideRow) -> str:
    """Whose limit rises: that of the organisation, of a lab, of a project, or of a person there."""
    if row.kind == OverrideRow.Kind.LAB_QUOTA and row.project is not None:
        # A project that has left its lab has no limit of a lab.
        return str(row.project.lab_id)
    scope = str(row.project_id or row.tenant_id)
    return f"{scope} {row.person_id}" if row.kind == OverrideRow.Kind.PERSON_QUOTA else scope


def cooling_read(now: datetime) -> tuple[Cooling, ...]:
    """Persons whose claims on a class pause nobody for a while, each once."""
    rows = Booking.objects.filter(cooling_until__gt=now).order_by("cooling_until")
    until: dict[tuple[str, str, str], int] = {}
    for row in rows.only("tenant", "owner", "ask", "planned_class", "cooling_until"):
        is_one = bool(row.planned_class) and not row.ask.get("groups")
        for name in [row.planned_class] if is_one else classes_asked(row.ask):
            if row.cooling_until is not None:
                key = (str(row.tenant_id), str(row.owner_id), name)
                until[key] = int(row.cooling_until.timestamp())
    return tuple(Cooling(tenant, at, owner, name) for (tenant, owner, name), at in sorted(until.items()))
