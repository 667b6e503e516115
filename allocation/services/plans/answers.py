"""What each answer of a plan changes: waits, refusals, extensions, and all others in order.

Rebound bookings get other GPUs for the same time. All of them leave the calendar before the first
one enters it again, so two may swap their GPUs.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from uuid import UUID

from allocation.models import Allocation, Booking, Decision, Gpu, MovedStart
from allocation.rules.states import State
from allocation.services.bookings.checks.tiers import TierUse
from allocation.services.plans.announced_starts import (
    UNPLANNED,
    Announcement,
    PlannedAnew,
    starts_announce,
)
from allocation.services.plans.assignments import (
    Fleet,
    PlanStale,
    allocations_write,
    assignments_write,
    plan_facts,
    preemptors_of,
)
from allocation.services.plans.changes import (
    alternatives_data,
    changes_write,
    extension_write,
)
from allocation.services.plans.pauses import pause_begin, pause_withdraw
from allocation.services.plans.plan_diff import has_planned_start
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event, changes_announce
from allocation.services.record.open_pauses import pause_end, pauses_end
from allocation.services.record.places import place_data, place_of_row
from allocation.services.runs.pause_settle import paused_booking_end
from allocation.services.runs.transition import (
    Change,
    booking_change,
    bookings_change,
)
from allocation.services.snapshot.compaction_orders import order_answer
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.rules import money_text, rest_in_cents
from billing.services import holds_release
from solver import (
    Move,
    OrderAnswer,
    Place,
    Plan,
    Refuse,
    Waiting,
)


def moved_rows_supersede(booking: Booking, move: Move) -> bool:
    """Takes a locked booking's rows off the calendar; returns False if they are not as planned."""
    rows = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    window = (instant(move.starts), instant(move.ends))
    there = {
        place_of_row(row)
        for row in rows
        if row.state == Allocation.State.PLANNED and (row.period.lower, row.period.upper) == window
    }
    if booking.state != State.SCHEDULED or there != set(move.source) or len(rows) != len(there):
        return False
    rows.update(state=Allocation.State.SUPERSEDED)
    return True


def move_record(
    booking: Booking, move: Move, gpus: Mapping[str, Gpu], decision: Decision, now: datetime
) -> None:
    """Records the new GPUs in the booking and its history."""
    # GPUs that the booking keeps are not mentioned.
    stays = set(move.source) & set(move.places)
    was, becomes = (
        _where((place for place in places if place not in stays), gpus)
        for places in (move.source, move.places)
    )
    text = event_text("rebound" if was != becomes else "rebound_slots", source=was, target=becomes)
    event = Event(
        "moved",
        text,
        detail={"decision": decision.id, "rule": move.reasons[0].rule},
    )
    reasons = [reason_data(reason) for reason in move.reasons]
    booking_change(booking, event=event, now=now, decision=decision, reasons=reasons)


def _where(places: Iterable[Place], gpus: Mapping[str, Gpu]) -> str:
    by_node: dict[str, set[int]] = {}
    for place in places:
        gpu = gpus[place.gpu]
        by_node.setdefault(gpu.node.name, set()).add(gpu.index)
    named = [
        f"GPU {', '.join(map(str, sorted(indexes)))} of {node}" for node, indexes in sorted(by_node.items())
    ]
    return " and ".join(named) if len(named) < 3 else f"{len(named)} nodes"


def plan_write(
    plan: Plan, bookings: Mapping[str, Booking], fleet: Fleet, decision: Decision, now: datetime
) -> None:
    """Writes all of a plan for its locked bookings, in the caller's transaction.

    Raises:
        PlanStale, IntegrityError: something in it is not as the plan has it.
    """
    # Victims are shortened first, so that their GPUs are free for the beneficiaries.
    for pause in plan.pauses:
        victim, beneficiary = bookings[pause.booking], bookings[pause.beneficiary]
        pause_begin(victim, beneficiary, instant(pause.at), pause.reasons, decision, now)
    # What a change gives up leaves the calendar before others enter it.
    changes_write(plan, bookings, decision, now)
    _move_all(plan.moves, bookings, fleet, decision, now)
    # What was planned there since has left, so that a run without notice keeps its place.
    for withdrawn in plan.withdrawn:
        _withdraw(bookings[withdrawn], now)
    preemptors = preemptors_of(plan, bookings)
    assignments_write(bookings, plan.assigns, fleet, decision, now, preemptors)
    _waits_write(plan.waits, bookings, decision, now)
    _refusals_write(plan.refusals, bookings, decision, now)
    for extend in plan.extensions:
        extension_write(bookings[extend.booking], extend, decision, now)
    _orders_answer(plan.orders, decision, now)


def _orders_answer(orders: Sequence[OrderAnswer], decision: Decision, now: datetime) -> None:
    if not all(order_answer(each, decision, now) for each in orders):
        raise PlanStale("an order was answered already")


def _withdraw(booking: Booking, now: datetime) -> None:
    if not pause_withdraw(booking, now):
        raise PlanStale("a pause can't be withdrawn any more")


def _move_all(
    moves: Sequence[Move],
    bookings: Mapping[str, Booking],
    fleet: Fleet,
    decision: Decision,
    now: datetime,
) -> None:
    """Takes all moved bookings off the calendar before any enters it again: two may swap."""
    for move in moves:
        if not moved_rows_supersede(bookings[move.booking], move):
            raise PlanStale("a booking to be moved has other GPUs by now")
    allocations_write(bookings, moves, fleet, decision)
    for move in moves:
        move_record(bookings[move.booking], move, fleet.gpus, decision, now)


def _waits_write(
    waits: Sequence[Waiting], bookings: Mapping[str, Booking], decision: Decision, now: datetime
) -> None:
    """Writes all waits of a plan in as few statements as one."""
    changes, unsaid, receipts = list[Change](), list[Booking](), list[MovedStart]()
    for wait, announcement in zip(waits, _announcements(waits, bookings, decision, now), strict=True):
        booking = bookings[wait.booking]
        is_moved = booking.planned_starts != instant(wait.starts)
        change = _wait_change(booking, wait, decision, announcement, is_moved=is_moved)
        changes.append(change)
        if change.event is None and is_moved:
            unsaid.append(booking)
        if announcement.receipt is not None:
            receipts.append(announcement.receipt)
    bookings_change(changes, now=now)
    changes_announce(unsaid, now)
    MovedStart.objects.bulk_create(receipts)


def _wait_change(
    booking: Booking,
    wait: Waiting,
    decision: Decision,
    announcement: Announcement,
    *,
    is_moved: bool,
) -> Change:
    """Returns the change of a booking that waits, with its event if there is news."""
    has_start = has_planned_start(wait)
    facts = {
        **plan_facts(booking, wait, decision),
        "planned_places": [place_data(place) for place in wait.places],
        **({} if wait.as_before else {"reasons": [reason_data(each) for each in wait.reasons]}),
        **announcement.facts,
    }
    if booking.state == State.REQUESTED:
        event = _wait_event("queued", wait, decision, has_start=has_start)
        return Change(booking, event, State.QUEUED, facts)
    kind = _first_or_last(booking, has_start=has_start, is_moved=is_moved)
    news = _wait_event(kind, wait, decision, has_start=has_start) if kind else announcement.event
    return Change(booking, news, None, facts)


def _announcements(
    waits: Sequence[Waiting], bookings: Mapping[str, Booking], decision: Decision, now: datetime
) -> list[Announcement]:
    """Returns what is announced about each wait, in order."""
    detail = {"decision": decision.id}
    planned = [each for each in waits if has_planned_start(each)]
    plans = [
        (
            bookings[each.booking],
            PlannedAnew(instant(each.starts), each.strength, each.delayed_by, each.places, detail),
        )
        for each in planned
    ]
    announced = starts_announce(plans, decision, now)
    found = {each.booking: news for each, news in zip(planned, announced, strict=True)}
    return [found.get(each.booking) or Announcement({**UNPLANNED}) for each in waits]


def _first_or_last(booking: Booking, *, has_start: bool, is_moved: bool) -> str:
    """Returns the kind of the event if a first start is planned, or none any more; else nothing."""
    if has_start:
        is_first = booking.announced_until is None and booking.planned_starts is not None
        return "moved" if is_first and is_moved else ""
    had_start = bool(booking.planned_places) and not booking.is_unplanned
    return "delayed" if had_start else ""


def _wait_event(kind: str, wait: Waiting, decision: Decision, *, has_start: bool) -> Event:
    because = reason_data(wait.delayed_by) if wait.delayed_by else ""
    starts = {"starts": instant(wait.starts).isoformat()} if has_start else {}
    return Event(
        kind,
        event_text("queued" if has_start else "queued_unplanned", because=because),
        detail={"decision": decision.id, **starts},
    )


def _refusals_write(
    refusals: Sequence[Refuse], bookings: Mapping[str, Booking], decision: Decision, now: datetime
) -> None:
    """Writes all refusals of a plan; those of bookings that never ran take as few statements as
    one."""
    changes, never_ran = list[Change](), list[Booking]()
    for refuse in refusals:
        booking = bookings[refuse.booking]
        if booking.state == State.PAUSED:
            _refuse_paused(booking, refuse, decision, now)
        elif booking.waitlist and booking.state == State.REQUESTED:
            changes.append(_wait_for_window(booking, refuse, decision, now))
        elif booking.used_seconds or booking.settled:
            charged = waiting_settle(booking, now)
            pause_end(booking, now)
            changes.append(_refused(booking, refuse, decision, now, charged))
        else:
            never_ran.append(booking)
            changes.append(_refused(booking, refuse, decision, now, Decimal(0)))
    if never_ran:
        pauses_end(never_ran, now)
    for tenant_id, mine in groupby(sorted(never_ran, key=_tenant_of), key=_tenant_of):
        holds_release(tenant_id=tenant_id, references=[booking.id for booking in mine], now=now)
    bookings_change(changes, now=now)


def _tenant_of(booking: Booking) -> UUID:
    return booking.tenant_id


def _refuse_paused(booking: Booking, refuse: Refuse, decision: Decision, now: datetime) -> None:
    reasons = [reason_data(reason) for reason in refuse.reasons]
    booking_change(booking, now=now, decision=decision, reasons=reasons)
    because = reasons[0] if reasons else event_text("no_resume")
    paused_booking_end(booking, "not_resumed", because, now)


def _refused(booking: Booking, refuse: Refuse, decision: Decision, now: datetime, charged: Decimal) -> Change:
    """Returns the change of a booking that can't be placed, or not any more."""
    reasons = [reason_data(reason) for reason in refuse.reasons]
    to = _refused_as(booking)
    text = event_text(
        "refused",
        because=reasons[0] if reasons else event_text("unplaceable"),
        freed=money_text(rest_in_cents(booking.hold_amount, charged), booking.currency),
    )
    facts = {
        "outcome": str(to),
        "decision": decision,
        "reasons": reasons,
        "alternatives": _offered(booking, refuse, now),
        "charged": charged,
        "ended_at": now,
    }
    return Change(booking, Event(str(to), text, detail={"decision": decision.id}), to, facts)


def _offered(booking: Booking, refuse: Refuse, now: datetime) -> list[dict[str, object]]:
    """What the refusal offers, without windows that are shorter than the tier allows."""
    shortest = min((each.ends - each.starts for each in refuse.alternatives), default=0)
    if shortest < booking.duration_seconds:
        use = TierUse.of(booking.project, booking.tier, booking.owner_id, booking, now)
        shortest = min(use.limits.shortest.value or 0, booking.duration_seconds)
    return alternatives_data(
        tuple(each for each in refuse.alternatives if each.ends - each.starts >= shortest)
    )


def _wait_for_window(booking: Booking, refuse: Refuse, decision: Decision, now: datetime) -> Change:
    """Puts a booking that can't have its window on the waiting list. Its money stays held."""
    reasons = [reason_data(reason) for reason in refuse.reasons]
    text = event_text("waitlisted", because=reasons[0] if reasons else event_text("unplaceable"))
    facts = {
        "decision": decision,
        "reasons": reasons,
        "alternatives": _offered(booking, refuse, now),
    }
    event = Event("waitlisted", text, detail={"decision": decision.id})
    return Change(booking, event, State.WAITLISTED, facts)


def _refused_as(booking: Booking) -> State:
    """Returns the end state of a refused booking."""
    if booking.hardware_lost_at is not None:
        return State.FAILED
    if booking.replacement_count:
        # It ran, and is charged for that.
        return State.EXPIRED
    is_window = booking.state == State.REQUESTED or booking.starts is not None
    return State.REFUSED if is_window else State.EXPIRED
