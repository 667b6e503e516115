"""Drains: bookings that the ladder of a budget keeps from starting.

Each turn compares the mark of every booking that waits or is scheduled with the rungs that act now,
so a drain ends by itself.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Booking
from allocation.reasons.reason import reason
from allocation.rules.states import PLANNED_TIMES, State
from allocation.services.record.history import Event
from allocation.services.runs.interrupt import place_withdraw
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.models import Guardrail
from billing.queries import budget_name
from billing.services.guardrails import restraining_rungs
from tenants.outbox import task_request

# Bookings that one turn changes, so that none takes long.
MOST = 500
NOT_STARTED = (State.REQUESTED, State.QUEUED, State.SCHEDULED, State.WAITLISTED)


def drains_due(now: datetime) -> QuerySet[Booking]:
    """Returns the bookings whose mark is wrong, and marked ones that still have a planned start."""
    return _due(_draining(now))


def drains_apply(now: datetime) -> int:
    """Marks what may not start now, and what may again; returns how many. For the turn."""
    rungs = _draining(now)
    ids = list(_due(rungs).order_by("id").values_list("id", flat=True)[:MOST])
    return sum(_apply(booking, rungs, now) for booking in ids)


def _draining(now: datetime) -> list[Guardrail]:
    return [rung for rung in restraining_rungs(now) if rung.action == Guardrail.Action.DRAIN]


def _due(rungs: Sequence[Guardrail]) -> QuerySet[Booking]:
    drained = Q(pk__in=[])
    for rung in rungs:
        drained |= _scope(rung)
    # A mark on what has started since, or is over, has no effect.
    rows = Booking.objects.filter(state__in=NOT_STARTED)
    planned = Q(state=State.REQUESTED) | Q(state=State.SCHEDULED, starts=None)
    planned |= Q(state=State.QUEUED, planned_starts__isnull=False)
    return rows.filter(drained & (Q(is_drained=False) | planned) | Q(is_drained=True) & ~drained)


def _scope(rung: Guardrail) -> Q:
    """The bookings that the rung's budget counts."""
    budget = rung.budget
    found = Q(tenant=budget.tenant_id)
    if budget.project_id is not None:
        found &= Q(project=budget.project_id)
    if budget.campaign_id is not None:
        found &= Q(campaign=budget.campaign_id)
    if budget.person_id is not None:
        found &= Q(owner=budget.person_id)
    return found


def _apply(booking_id: UUID, rungs: Sequence[Guardrail], now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(booking_id)
        if not _due(rungs).filter(id=booking.id).exists():
            return False
        acting = (
            rung for rung in rungs if Booking.objects.filter(_scope(rung), id=booking.id).exists()
        )
        rung = next(acting, None)
        if rung is None:
            event = Event("drained_no_more", event_text("drained_no_more"))
            booking_change(booking, event=event, now=now, is_drained=False)
        else:
            _keep(booking, rung, now)
        task_request("allocation.cycle")
    return True


def _keep(booking: Booking, rung: Guardrail, now: datetime) -> None:
    """Marks the booking and gives up its planned start; a fixed window keeps its GPUs."""
    facts: dict[str, int | str | None] = {
        "owner": budget_name(rung.budget),
        "percent": rung.percent,
    }
    event = Event("drained", event_text("drained", **facts))
    if not booking.is_drained:
        booking_change(booking, event=event, now=now, is_drained=True)
    if booking.state == State.SCHEDULED and booking.starts is None:
        place_withdraw(booking, event, now)
    if booking.state not in (State.REQUESTED, State.QUEUED):
        return
    why = reason_data(reason("budget_drained", **facts))
    waits: dict[str, object] = {
        "reasons": [why],
        "planned_places": [],
        **dict.fromkeys(PLANNED_TIMES),
    }
    if booking.state == State.REQUESTED:
        booking_move(booking, State.QUEUED, event=event, now=now, **waits)
    else:
        booking_change(booking, event=None, now=now, **waits)
