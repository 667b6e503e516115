"""No-shows: unused bookings are detected by readings of nodes, warned about twice, then ended.

A booking is used when a process is seen on one of its devices, or its owner checks in or saves.
Time counts as unused only if every node of the booking has reported that nothing runs.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Min, Q

from allocation.models import Allocation, Booking, GpuSample, PolicyVersion
from allocation.queries.fleet.portal_modes import decisions_frozen
from allocation.rules.charging import no_show_after, no_show_fee
from allocation.rules.nodes.no_shows import PresencePolicy, presence_policy_of, warnings_expected
from allocation.rules.states import State
from allocation.services.record.counters import counter_add
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_CODE
from tenants.access import Actor
from tenants.failures import each_apart
from tenants.outbox import task_request
from tenants.platform.errors import Refused

logger = logging.getLogger(__name__)

NO_SHOW = BY_CODE["no_show"]
# The most that one check adds: a late check proves nothing about the time before it.
MAX_STEP = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _Presence:
    """What nodes measured of one allocation since the last check."""

    first_process: datetime | None
    is_reported: bool


@dataclass(frozen=True, slots=True)
class _Absence:
    """How long a booking has been unused, counted until a time."""

    seconds: int
    until: datetime

    def facts(self) -> dict[str, Any]:
        """Returns it as fields of the booking."""
        return {"absent_seconds": self.seconds, "absent_until": self.until}


def presence_policy() -> PresencePolicy:
    """Returns the live policy's no-show rules; the defaults before there is a policy."""
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE)
    return presence_policy_of(live.values_list("document", flat=True).first() or {})


def presence_watch(now: datetime) -> int:
    """Checks all running bookings that were not used yet; returns how many it ended.

    Ends none while decisions are frozen.
    """
    if decisions_frozen(now):
        return 0
    policy = presence_policy()
    rows = Booking.objects.filter(
        state=State.ACTIVE, checked_in_at=None, ready_at__isnull=False, planned_ends__gt=now
    )
    bookings = list(rows.order_by("id"))
    found = _presence_of(bookings, now)
    ended = each_apart(
        "presence", bookings, lambda each: _check(each.id, found.get(each.id, []), policy, now), now
    )
    if ended:
        task_request("allocation.cycle")
    return ended


def booking_check_in(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Records that the owner uses the booking. Idempotent.

    A booking that was paused because its GPUs were idle asks for a place to resume from now on.

    Raises:
        Refused: `not_active`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        is_back = booking.awaits_check_in and booking.state in (State.PAUSING, State.PAUSED)
        if booking.state != State.ACTIVE and not is_back:
            raise Refused("not_active", refusal_text("not_active", label=booking.label))
        if booking.checked_in_at is None or is_back:
            event = Event("checked_in", event_text("checked_in", actor=actor.name), actor.user_id)
            facts = {"checked_in_at": booking.checked_in_at or now, "awaits_check_in": False}
            booking_change(booking, event=event, now=now, **facts)
            if is_back:
                task_request("allocation.cycle")
    return booking


def no_show_limit(booking: Booking, policy: PresencePolicy) -> int | None:
    """Returns the seconds after which the running booking is a no-show; None: never. A value of its
    tier replaces that of the policy."""
    own = booking.tier.no_show_after_seconds
    after = policy.no_show_after if own is None else own
    if not after or booking.ready_at is None or booking.planned_ends is None:
        return None
    length = int((booking.planned_ends - booking.ready_at).total_seconds())
    return no_show_after(length, after)


def no_show_share(booking: Booking, policy: PresencePolicy) -> int:
    """Returns the percent of its remaining price that a no-show costs."""
    own = booking.tier.no_show_share
    return policy.no_show_share if own is None else own


def booking_of_allocations(bookings: Sequence[Booking]) -> dict[UUID, UUID]:
    """Returns the booking of each allocation on which one of the bookings runs."""
    rows = Allocation.objects.filter(booking__in=bookings, state=Allocation.State.ACTIVE, abandoned=False)
    return dict(rows.values_list("id", "booking_id"))


def _presence_of(bookings: Sequence[Booking], now: datetime) -> dict[UUID, list[_Presence]]:
    """Returns the presence on each device by booking, in two statements."""
    since = {each.id: each.absent_until or each.ready_at for each in bookings}
    rows = booking_of_allocations(bookings)
    first = min((each.ready_at for each in bookings if each.ready_at), default=now)
    measured = _measured(list(rows), first, now)
    found: dict[UUID, list[_Presence]] = {booking.id: [] for booking in bookings}
    for row, key in rows.items():
        process, clear, unknown = measured.get(row, (None, None, None))
        begin = since[key] or now
        is_reported = clear is not None and clear > begin and (unknown or begin) <= begin
        found[key].append(_Presence(process, is_reported))
    return found


def _measured(
    rows: Sequence[UUID], since: datetime, now: datetime
) -> Mapping[UUID, tuple[datetime | None, ...]]:
    """Returns by allocation the first process, and the last readings without one and unknown."""
    samples = GpuSample.objects.filter(allocation_id__in=rows, at__gt=since, at__lte=now)
    found = samples.values("allocation_id").annotate(
        first=Min("at", filter=Q(processes__gt=0)),
        last=Max("at", filter=Q(processes=0)),
        unknown=Max("at", filter=Q(processes=None)),
    )
    return {
        identifier: (first, last, unknown)
        for identifier, first, last, unknown in found.values_list("allocation_id", "first", "last", "unknown")
        if identifier is not None
    }


def _check(booking_id: UUID, seen: Sequence[_Presence], policy: PresencePolicy, now: datetime) -> bool:
    """Adds to the unused time of one booking; returns True when it was ended."""
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier")
        limit = no_show_limit(booking, policy)
        if booking.state != State.ACTIVE or booking.checked_in_at is not None:
            return False
        first = min((each.first_process for each in seen if each.first_process), default=None)
        if first is not None or booking.saved_at is not None:
            _presence_note(booking, min(now, first or now), now)
            return False
        absence = _absence(booking, seen, now)
        if limit is not None and absence.seconds >= limit:
            _end(booking, policy, absence, limit, now)
            return True
        if limit is None or not _warn(booking, absence, limit, now):
            # Nothing that a client reads has changed, so the version stays.
            Booking.objects.filter(id=booking.id).update(**absence.facts())
        return False


def _absence(booking: Booking, seen: Sequence[_Presence], now: datetime) -> _Absence:
    """Adds the time since the last check if every node has reported."""
    since = booking.absent_until or booking.ready_at or now
    more = 0
    if seen and all(each.is_reported for each in seen):
        more = max(0, int(min(now - since, MAX_STEP).total_seconds()))
    return _Absence(booking.absent_seconds + more, max(since, now))


def _presence_note(booking: Booking, at: datetime, now: datetime) -> None:
    event = Event("checked_in", event_text("process_seen"))
    booking_change(booking, event=event, now=now, checked_in_at=at)


def _warn(booking: Booking, absence: _Absence, limit: int, now: datetime) -> bool:
    """Returns True when the owner is warned now."""
    due = warnings_expected(absence.seconds, limit)
    if due <= booking.absence_warnings:
        return False
    absent, left = absence.seconds // 60, -(-(limit - absence.seconds) // 60)
    ends = now + timedelta(seconds=limit - absence.seconds)
    event = Event(
        "no_show_warned",
        event_text("no_show_warned", absent=absent, left=left),
        detail={"rule": NO_SHOW.id, "until": ends.isoformat()},
    )
    booking_change(booking, event=event, now=now, absence_warnings=due, **absence.facts())
    return True


def _end(booking: Booking, policy: PresencePolicy, absence: _Absence, limit: int, now: datetime) -> None:
    rest = int((booking.planned_ends - now).total_seconds()) if booking.planned_ends else 0
    has_run = booking.pause_count or booking.replacement_count or booking.used_seconds or booking.settled
    share = no_show_share(booking, policy)
    fee = 0 if has_run else no_show_fee(rest, share)
    text = event_text("no_show", minutes=limit // 60, share=share if fee else 0)
    event = Event(
        "no_show",
        text,
        detail={"rule": NO_SHOW.id, "absent": absence.seconds, "fee": fee},
    )
    booking_move(
        booking,
        State.ENDING,
        event=event,
        now=now,
        outcome="no_show",
        released_at=now,
        fee_seconds=fee,
        **absence.facts(),
    )
    counter_add("no_shows")
    logger.info("%s of tenant %s is a no-show", booking.label, booking.tenant_id)
