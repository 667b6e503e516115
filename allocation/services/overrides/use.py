"""Overrides that a request uses."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.models import Booking, Override
from allocation.words.refusals import refusal_text
from tenants.models import Project, Tier
from tenants.platform.errors import Refused


def in_force(now: datetime) -> Q:
    """Granted dated overrides that apply at this instant."""
    return Q(state=Override.State.GRANTED, is_once=False, starts__lte=now, until__gt=now)


def overrides_in_force(tenant_id: UUID, kind: str, now: datetime) -> QuerySet[Override]:
    """The dated overrides of a kind that a tenant has at this instant."""
    return Override.objects.filter(in_force(now), tenant_id=tenant_id, kind=kind)


def longer_override(
    project: Project,
    tier: Tier,
    person_id: int | None,
    booking: Booking | None,
    seconds: int,
    now: datetime,
) -> Override | None:
    """Returns an override by which a booking of this tier may last so long: a dated one if there is
    one, else one for this booking, else one for a booking of this person."""
    once = Q(booking=booking.id) if booking is not None else Q(booking=None, person=person_id)
    rows = Override.objects.filter(
        in_force(now) & (Q(person=None) | Q(person=person_id))
        | Q(once, state=Override.State.GRANTED, is_once=True),
        tenant_id=project.tenant_id,
        kind=Override.Kind.LENGTH,
        project=project,
        tier=tier,
        amount__gte=seconds - tier.max_duration_seconds,
    )
    return rows.order_by("is_once", "amount", "id").first()


def overrides_take(used: Mapping[UUID, Sequence[Override]]) -> None:
    """Gives overrides for one booking to the new bookings that need them.

    Raises:
        Refused: `override_used`, if another booking was faster.
    """
    for booking_id, rows in used.items():
        for row in rows:
            free = Override.objects.filter(
                id=row.id, booking=None, state=Override.State.GRANTED, is_once=True
            )
            if not free.update(booking=booking_id):
                raise Refused("override_used", refusal_text("override_used"))
