"""Writes the answers to changes: the exchange in one transaction, or that the booking keeps what it
has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Approval, Booking, BookingChange, Decision
from allocation.rules.ask.words.document import time_text
from allocation.rules.states import EXTENDABLE, PLANNED_TIMES, TERMINAL, State
from allocation.services.bookings.change.series_cuts import series_facts
from allocation.services.bookings.change_rows import (
    WAITED_FOR,
    Kept,
    change_close,
    change_keep,
    change_wait,
    late_fee_of,
    rank_of,
    restores_of,
    terms_apply,
)
from allocation.services.bookings.checks.terms import hold_of
from allocation.services.plans.assignments import PlanStale
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.end import generations_raise
from allocation.services.runs.late_shares import (
    granted_as,
    late_fee,
    late_fee_refund,
    late_fee_take,
)
from allocation.services.runs.transition import (
    booking_lock,
    planned_rows_supersede,
)
from allocation.services.snapshot.snapshot import instant
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from billing.services import hold_exchange
from solver import Alternative, Assign, ChangeAnswer, Extend, Plan, Waiting
from solver.model.codec import plain_of
from solver.reasons.reason import reason

_OPEN = BookingChange.State.ASKED


def changes_write(plan: Plan, bookings: Mapping[str, Booking], decision: Decision, now: datetime) -> None:
    """Writes the answers to changes of locked bookings, before what they get is written.

    Raises:
        PlanStale: a change was withdrawn or replaced meanwhile.
    """
    assigned = {each.booking: each for each in plan.assigns}
    given: dict[str, Assign | Waiting] = {**{each.booking: each for each in plan.waits}, **assigned}
    asked = {each.change: _asked(bookings[each.booking], each) for each in plan.changes}
    waiting = _waiting(plan.changes, asked, now)
    for answer in plan.changes:
        booking, change = bookings[answer.booking], asked[answer.change]
        if answer.granted:
            change.restores = restores_of(booking)
            if change.is_sooner:
                _take_start(booking, change, instant(given[answer.booking].starts))
            _late_share(booking, change, assigned.get(answer.booking), now)
            _grant(booking, change, decision, now)
        else:
            others = alternatives_data(answer.alternatives)
            kept = Kept(answer.reasons, decision, others)
            (change_wait if change.id in waiting else change_keep)(booking, change, kept, now)


def _waiting(answers: Sequence[ChangeAnswer], asked: Mapping[str, BookingChange], now: datetime) -> set[UUID]:
    """The changes that do not fit and stay open until there is room; of those that are made all or
    none, all or none."""
    refused = [(asked[each.change], each.reasons[0].code) for each in answers if not each.granted]
    over = {change.whole_group or change.id for change, why in refused if not _waits(change, why, now)}
    return {change.id for change, _ in refused if (change.whole_group or change.id) not in over}


def _waits(change: BookingChange, why: str, now: datetime) -> bool:
    """Whether waiting can help a change that does not fit, or another date of its series."""
    until = change.keep_trying_until
    is_full = why in WAITED_FOR or (why == "series_conflict" and change.group is not None)
    return until is not None and now < until and is_full


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
        until_then = change.keep_trying_until
        waits = until_then is not None and now < until_then and extend.reasons[0].code != "not_live"
        kept = Kept(extend.reasons, decision)
        (change_wait if waits else change_keep)(booking, change, kept, now)
        return
    change.restores = restores_of(booking)
    live = Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE, abandoned=False)
    for row in live.order_by("id"):
        # Until its old end the row keeps its grant; the added time has a new one.
        row.extended_from, row.extended_cycle = row.period.upper, decision.id
        row.period = DateTimeTZRange(row.period.lower, until)
        row.save(update_fields=["period", "extended_from", "extended_cycle"])
    generations_raise(row.gpu_id for row in live)
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
    _end_later(booking, change)
    if change.until is not None:
        is_approved = change.state == _OPEN
        is_awaited = booking.extension_until == change.until or not is_approved
        is_alive = state in EXTENDABLE and is_awaited
    else:
        is_alive = state in (State.REQUESTED, State.QUEUED, State.SCHEDULED)
    if is_alive and not (change.is_waiting and _is_too_late(change, now)):
        return
    if is_alive:
        change_keep(booking, change, Kept((reason("change_no_room"),)), now)
        return
    if state in TERMINAL or state == State.ENDING:
        change_close(change, BookingChange.State.WITHDRAWN, now)
        return
    change_keep(booking, change, Kept((reason("change_begun"),)), now)


def _is_too_late(change: BookingChange, now: datetime) -> bool:
    return change.keep_trying_until is not None and change.keep_trying_until <= now


def _end_later(booking: Booking, change: BookingChange) -> None:
    """Makes a longer length that waits for its approval a later end when the booking begins."""
    before, after = change.differences.get("duration", (0, 0))
    is_begun, ends = booking.state in (State.STARTING, State.ACTIVE), booking.planned_ends
    is_open = change.until is None and change.state == BookingChange.State.AWAITING_APPROVAL
    if is_open and is_begun and ends is not None and change.is_only_end and after > before:
        change.until = ends + timedelta(seconds=after - before)
        change.save(update_fields=["until"])


def _asked(booking: Booking, answer: ChangeAnswer) -> BookingChange:
    change = BookingChange.objects.select_for_update().filter(id=answer.change, state=_OPEN).first()
    if change is None or change.base_revision != booking.revision:
        raise PlanStale("a change was withdrawn or replaced")
    return change


def _take_start(booking: Booking, change: BookingChange, starts: datetime) -> None:
    """Makes the earlier start that was found the one of the fixed window."""
    terms, text = Terms.from_json(change.target), time_text(starts)
    ask = {**terms.ask, "starts": text, "not_before": None, "deadline": None}
    terms = replace(terms, ask=ask, starts=starts, not_before=starts, deadline=None)
    change.target = terms.to_json()
    change.differences = {"starts": [booking.ask["starts"], text]}
    change.save(update_fields=["target", "differences"])


def _late_share(booking: Booking, change: BookingChange, given: Assign | None, now: datetime) -> None:
    """Charges what the booking gives up late, at most as much as was held for it."""
    kept, ask = None, change.target["ask"]
    same = all(booking.ask.get(name) == ask.get(name) for name in ("profile", "share"))
    if given is not None and same and given.gpu_class == booking.planned_class:
        starts, ends = instant(given.starts), instant(given.ends)
        kept = granted_as(booking, starts, ends, len(given.places))
    fee = min(change.late_fee, late_fee(booking, kept, now))
    late_fee_take(booking, fee, now)
    if fee:
        held = Decimal(change.target["hold_amount"]) + fee
        change.target = {**change.target, "hold_amount": str(held)}
        change.save(update_fields=["target"])


def _grant(booking: Booking, change: BookingChange, decision: Decision, now: datetime) -> None:
    """Takes what the booking had off the calendar and out of its plan."""
    planned_rows_supersede(booking)
    empty = dict.fromkeys((*PLANNED_TIMES, "first_planned_start", "first_planned_at"))
    facts: dict[str, object] = {
        **empty,
        "planned_places": [],
        "alternatives": [],
        "ranked_at": rank_of(change),
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
    if change.undoes is not None:
        late_fee_refund(booking, late_fee_of(change.undoes, booking), now)
    change.state, change.decided_at, change.decision = BookingChange.State.CHANGED, now, decision
    change.reasons, change.alternatives = [], []
    fields = ["state", "decided_at", "decision", "restores", "reasons", "alternatives"]
    change.save(update_fields=fields)
    detail = {
        "change": change.id.hex,
        "decision": decision.id,
        "differences": change.differences,
    }
    facts |= _approved(change) | series_facts(booking, change)
    kind = "undone_then" if change.undoes_id else "change_made"
    text = event_text(kind, what=differences_text(change.differences))
    event = Event("changed", text, detail=detail)
    terms_apply(booking, terms, event, now, **facts)
    hold_exchange(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        request=request,
        delta=change.id,
        now=now,
    )


def _approved(change: BookingChange) -> dict[str, object]:
    """The hash under which a change was approved, or what it restores was, if there is one."""
    if change.undoes is not None:
        return {"approved_hash": change.undoes.restores["approved_hash"]}
    rows = change.approvals.filter(state=Approval.State.APPROVED)
    digest = rows.values_list("digest", flat=True).first()
    return {"approved_hash": digest} if digest else {}


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
            **(plain_of(item.where) if item.where is not None else {}),
            **({"groups": _groups_of(item)} if item.groups else {}),
            **({"together": item.level, "required": item.level != "any"} if item.level else {}),
        }
        for item in alternatives
    ]


def _groups_of(item: Alternative) -> list[dict[str, object]]:
    """All groups of a mixed alternative."""
    first: dict[str, object] = {"gpu_class": item.gpu_class, "profile": item.profile, "count": item.count}
    others: list[dict[str, object]] = [
        {"gpu_class": each.classes[0], "profile": each.profile, "count": each.count} for each in item.groups
    ]
    return [first, *others]
