"""Overrides that a request uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs beyond a limit of its tier.

    `is_beyond`: also beyond the operator's bound, so only an operator's exception helps.
    """

    project: Project
    tier: Tier
    person_id: int | None
    booking: Booking | None
    amount: int
    is_beyond: bool
    gpu_class: str | None = None


def override_for(kind: str, need: Need, now: datetime) -> Override | None:
    """Returns an override that gives so much: a dated one if there is one, else one for this
    booking, else one for a booking of this person."""
    person, booking = need.person_id, need.booking
    once = Q(booking=booking.id) if booking is not None else Q(booking=None, person=person)
    rows = Override.objects.filter(
        in_force(now) & (Q(person=None) | Q(person=person))
        | Q(once, state=Override.State.GRANTED, is_once=True),
        tenant_id=need.project.tenant_id,
        kind=kind,
        project=need.project,
        tier=need.tier,
        gpu_class=need.gpu_class,
        amount__gte=need.amount,
    )
    if need.is_beyond:
        rows = rows.filter(decider=Override.Decider.OPERATOR)
    return rows.order_by("is_once", "amount", "id").first()


@dataclass(frozen=True, slots=True)
class MoreOfPerson:
    """Open bookings, or their GPUs, that exceptions add, by who gave them."""

    by_admins: int = 0
    by_operators: int = 0


def more_of_person(kind: str, project: Project, tier: Tier, person_id: int, now: datetime) -> MoreOfPerson:
    """Returns how many open bookings, or GPUs, a person may have beyond a limit of a tier."""
    rows = overrides_in_force(project.tenant_id, kind, now).filter(
        Q(person=None) | Q(person=person_id),
        Q(tier=None) | Q(tier=tier),
        project=project,
    )
    found = list(rows)
    by_operators = [row for row in found if row.decider == Override.Decider.OPERATOR]
    total = sum(int(row.amount) for row in found)
    operators = sum(int(row.amount) for row in by_operators)
    return MoreOfPerson(total - operators, operators)


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
