"""Idle bookings: the portal measures how long nobody uses the GPUs, and warns the owner.

Time counts as idle only if every node of the booking has reported that each GPU is used less than
the policy says. A gang is in use if one of its GPUs is. The tier says what happens after the
warning: nothing, a pause, or the end. A pause or an end comes only with a decision that gives the
GPUs to a booking which then starts earlier (`plans.idle_bookings`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Q

from allocation.models import Booking, GpuSample
from allocation.queries.fleet.portal_modes import decisions_frozen
from allocation.rules.nodes.no_shows import PresencePolicy
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.runs.no_shows import (
    MAX_STEP,
    booking_of_allocations,
    no_show_limit,
    presence_policy,
)
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_CODE
from tenants.access import Actor
from tenants.failures import each_apart
from tenants.models import Tier
from tenants.outbox import task_request
from tenants.platform.errors import Refused

IDLE_RULE = BY_CODE["idle"]
VETO_TIME = timedelta(minutes=10)
"""How long a warned owner can say that the GPUs are still needed."""
MOST_VETOES = 2
"""How often in a row an owner can say so."""
_NOT_IDLE = {"idle_seconds": 0, "idle_counted_at": None, "idle_veto_until": None}


@dataclass(frozen=True, slots=True)
class _Use:
    """The last readings of an allocation: in use, idle, and without a value."""

    busy: datetime | None = None
    idle: datetime | None = None
    unknown: datetime | None = None


def idle_watch(now: datetime) -> int:
    """Counts the idle time of all running bookings; returns how many owners it warned.

    Requests a turn when the time to answer of one is over. Does nothing while decisions are frozen.
    """
    policy = presence_policy()
    if not policy.idle_after or decisions_frozen(now):
        return 0
    rows = Booking.objects.filter(
        state=State.ACTIVE, ready_at__isnull=False, planned_ends__gt=now
    ).select_related("tier")
    bookings = [each for each in rows.order_by("id") if _is_watched(each, policy)]
    found = _use_of(bookings, policy, now)
    warned = each_apart(
        "idle use", bookings, lambda each: _check(each, found.get(each.id, []), policy, now), now
    )
    if any(_is_due(each, now) for each in bookings):
        task_request("allocation.cycle")
    return warned


def booking_still_needed(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Records that a warned owner still needs the idle GPUs. Their idle time begins anew.

    Raises:
        Refused: `not_idle`, `needed_twice`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        if booking.state != State.ACTIVE or booking.idle_veto_until is None:
            raise Refused("not_idle", refusal_text("not_idle", label=booking.label))
        if booking.idle_vetoes >= MOST_VETOES:
            text = refusal_text("needed_twice", label=booking.label, most=MOST_VETOES)
            raise Refused("needed_twice", text)
        event = Event("still_needed", event_text("still_needed", actor=actor.name), actor.user_id)
        vetoes = booking.idle_vetoes + 1
        booking_change(
            booking,
            event=event,
            now=now,
            **{**_NOT_IDLE, "idle_counted_at": now},
            idle_vetoes=vetoes,
        )
    return booking


def is_idle_warned(booking: Booking) -> bool:
    """Returns whether the owner was warned that the GPUs can be taken."""
    return booking.state == State.ACTIVE and booking.idle_veto_until is not None


def _is_watched(booking: Booking, policy: PresencePolicy) -> bool:
    """A booking that nobody has used yet can be a no-show instead."""
    return booking.checked_in_at is not None or no_show_limit(booking, policy) is None


def _is_due(booking: Booking, now: datetime) -> bool:
    """Returns whether the time to answer has ended within the last check or two."""
    until = booking.idle_veto_until
    return until is not None and until <= now < until + MAX_STEP


def _use_of(bookings: Sequence[Booking], policy: PresencePolicy, now: datetime) -> Mapping[UUID, list[_Use]]:
    """Returns the use of each device by booking, in two statements."""
    rows = booking_of_allocations(bookings)
    samples = GpuSample.objects.filter(allocation_id__in=rows, at__gt=now - MAX_STEP, at__lte=now)
    measured = {
        row: _Use(busy, idle, unknown)
        for row, busy, idle, unknown in samples.values("allocation_id")
        .annotate(
            busy=Max("at", filter=Q(utilisation__gte=policy.idle_below)),
            idle=Max("at", filter=Q(utilisation__lt=policy.idle_below)),
            unknown=Max("at", filter=Q(utilisation=None)),
        )
        .values_list("allocation_id", "busy", "idle", "unknown")
    }
    found: dict[UUID, list[_Use]] = {booking.id: [] for booking in bookings}
    for row, key in rows.items():
        found[key].append(measured.get(row, _Use()))
    return found


def _check(booking: Booking, seen: Sequence[_Use], policy: PresencePolicy, now: datetime) -> bool:
    """Adds to the idle time of one booking; returns True when its owner is warned now."""
    since = max(booking.idle_counted_at or now - MAX_STEP, booking.ready_at or now, now - MAX_STEP)
    is_busy = any(each.busy is not None and each.busy > since for each in seen)
    if is_busy:
        if booking.idle_seconds or booking.idle_vetoes or booking.idle_veto_until is not None:
            _idle_over(booking.id, now)
        return False
    is_idle = bool(seen) and all(
        each.idle is not None and each.idle > since and each.unknown is None for each in seen
    )
    if not is_idle:
        return False
    with transaction.atomic():
        locked = booking_lock(booking.id, "tier")
        if locked.state != State.ACTIVE or locked.version != booking.version:
            return False
        seconds = locked.idle_seconds + int((now - since).total_seconds())
        if locked.idle_veto_until is None and seconds >= policy.idle_after > locked.idle_seconds:
            _warn(locked, seconds, now)
            return True
        # Nothing that a client reads has changed, so the version stays.
        Booking.objects.filter(id=locked.id).update(idle_seconds=seconds, idle_counted_at=now)
    return False


def _idle_over(booking_id: UUID, now: datetime) -> None:
    """Forgets the idle time of a booking whose GPUs are in use again."""
    with transaction.atomic():
        booking = booking_lock(booking_id)
        if booking.state != State.ACTIVE:
            return
        if booking.idle_veto_until is None:
            Booking.objects.filter(id=booking_id).update(**_NOT_IDLE, idle_vetoes=0)
            return
        event = Event("idle_over", event_text("idle_over"))
        booking_change(booking, event=event, now=now, **_NOT_IDLE, idle_vetoes=0)


def _warn(booking: Booking, seconds: int, now: datetime) -> None:
    action = booking.tier.idle_action
    facts: dict[str, object] = {"idle_seconds": seconds, "idle_counted_at": now}
    detail: dict[str, object] = {"rule": IDLE_RULE.id, "idle": seconds}
    if action != Tier.IdleAction.TELL:
        until = now + VETO_TIME
        facts["idle_veto_until"] = until
        detail["until"] = until.isoformat()
    event = Event(
        "idle_warned",
        event_text(
            "idle_warned",
            minutes=seconds // 60,
            action=action,
            left=int(VETO_TIME.total_seconds()) // 60,
            vetoes=MOST_VETOES - booking.idle_vetoes,
        ),
        detail=detail,
    )
    booking_change(booking, event=event, now=now, **facts)
