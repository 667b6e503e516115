"""Writes the answers to changes: the exchange in one transaction, or that the booking keeps what it
has."""

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, BookingChange, Decision
from allocation.reasons.reason import reason
from allocation.rules.states import EXTENDABLE, PLANNED_TIMES, TERMINAL, State
from allocation.services.bookings.change_rows import change_close, terms_apply
from allocation.services.bookings.terms import hold_of
from allocation.services.plans.apply_assignments import PlanStale
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.end import nodes_bump
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    planned_rows_supersede,
)
from allocation.services.snapshot.snapshot import instant
from allocation.solver import Alternative, ChangeAnswer, Extend, Plan, Reason
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.services import hold_exchange

_OPEN = BookingChange.State.ASKED


def changes_write(
    plan: Plan, bookings: Mapping[str, Booking], decision: Decision, now: datetime
) -> None:
    """Writes the answers to changes of locked bookings, before what they get is written.

    Raises:
        PlanStale: a change was withdrawn or replaced meanwhile.
    """
    for answer in plan.changes:
        booking = bookings[answer.booking]
        change = _asked(booking, answer)
        if answer.granted:
            _grant(booking, change, decision, now)
        else:
            _keep(booking, change, answer.reasons, now, decision, answer.alternatives)


def extension_write(booking: Booking, extend: Extend, decision: Decision, now: datetime) -> None:
    """Writes the answer to a change of a running booking's end.

    Raises:
        PlanStale: the change was withdrawn or replaced meanwhile.
    """
    until = instant(extend.until)
    change = BookingChange.objects.select_for_update().filter(booking=booking, state=_OPEN).first()
    if booking.extension_until != until or booking.planned_ends is None or change is None:
        raise PlanStale("an extension was withdrawn")
    if extend.reasons:
        _keep(booking, change, extend.reasons, now, decision)
        return
    live = Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE, abandoned=False)
    for row in live.order_by("id"):
        # Until its old end the row keeps its grant; the added time has a new one.
        row.extended_from, row.extended_cycle = row.period.upper, decision.id
        row.period = DateTimeTZRange(row.period.lower, until)
        row.save(update_fields=["period", "extended_from", "extended_cycle"])
    nodes_bump(row.gpu_id for row in live)
    _exchange(booking, change, decision, now, planned_ends=until, extension_until=None)


def changes_sweep(now: datetime) -> None:
    """Closes open changes of bookings that are over, or began before the change was decided."""
    rows = BookingChange.objects.filter(state__in=BookingChange.OPEN)
    for change_id, booking_id in rows.order_by("booking_id").values_list("id", "booking_id"):
        with transaction.atomic():
            booking = booking_lock(booking_id)
            rows = BookingChange.objects.select_for_update()
            change = rows.filter(id=change_id, state__in=BookingChange.OPEN).first()
            if change is not None:
                _sweep(booking, change, now)


def _sweep(booking: Booking, change: BookingChange, now: datetime) -> None:
    state = State(booking.state)
    if change.until is not None:
        is_alive = state in EXTENDABLE and booking.extension_until == change.until
    else:
        is_alive = state in (State.QUEUED, State.SCHEDULED)
    if is_alive:
        return
    if state in TERMINAL or state == State.ENDING:
        change_close(change, BookingChange.State.WITHDRAWN, now)
        return
    _keep(booking, change, (reason("change_begun"),), now)


def _asked(booking: Booking, answer: ChangeAnswer) -> BookingChange:
    change = BookingChange.objects.select_for_update().filter(id=answer.change, state=_OPEN).first()
    if change is None or change.base_revision != booking.revision:
        raise PlanStale("a change was withdrawn or replaced")
    return change


def _grant(booking: Booking, change: BookingChange, decision: Decision, now: datetime) -> None:
    """Takes what the booking had off the calendar and out of its plan."""
    planned_rows_supersede(booking)
    empty = dict.fromkeys((*PLANNED_TIMES, "first_planned_start", "first_planned_at"))
    facts: dict[str, object] = {
        **empty,
        "planned_places": [],
        "alternatives": [],
        "ranked_at": change.asked_at,
    }
    if booking.state == State.SCHEDULED:
        facts["state"] = State.QUEUED
    _exchange(booking, change, decision, now, **facts)


def _exchange(
    booking: Booking, change: BookingChange, decision: Decision, now: datetime, **facts: object
) -> None:
    """Writes the new terms and exchanges the money."""
    terms = Terms.from_json(change.target)
    request = hold_of(booking, terms)
    change.state, change.decided_at, change.decision = BookingChange.State.CHANGED, now, decision
    change.save(update_fields=["state", "decided_at", "decision"])
    detail = {
        "change": change.id.hex, "decision": decision.id, "differences": change.differences,
    }  # fmt: skip
    text = event_text("change_made", what=differences_text(change.differences))
    event = Event("changed", text, detail=detail)
    terms_apply(booking, terms, event, now, **facts)
    hold_exchange(
        tenant_id=booking.tenant_id, project_id=booking.project_id, request=request,
        delta=change.id, now=now,
    )  # fmt: skip


def _keep(
    booking: Booking,
    change: BookingChange,
    reasons: tuple[Reason, ...],
    now: datetime,
    decision: Decision | None = None,
    alternatives: tuple[Alternative, ...] = (),
) -> None:
    """Leaves the booking as it is and says why."""
    why = [reason_data(each) for each in reasons]
    change_close(
        change,
        BookingChange.State.KEPT,
        now,
        decision=decision,
        reasons=why,
        alternatives=alternatives_data(alternatives),
    )
    detail = {"change": change.id.hex, "decision": decision.id if decision else None}
    because = why[1] if len(why) > 1 else ""
    text = event_text("change_kept", because=why[0], why=because)
    event = Event("change_kept", text, detail=detail)
    booking_change(booking, event=event, now=now, extension_until=None)


def alternatives_data(alternatives: tuple[Alternative, ...]) -> list[dict[str, object]]:
    """Windows that would work, as JSON."""
    return [
        {
            "gpu_class": item.gpu_class,
            "profile": item.profile,
            "count": item.count,
            "share": item.share,
            "starts": instant(item.starts).isoformat(),
            "ends": instant(item.ends).isoformat(),
            **({"pin": list(item.pin)} if item.pin else {}),
        }
        for item in alternatives
    ]
