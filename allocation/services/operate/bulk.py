"""Acts of operators on chosen bookings of any tenants: a message, a request to release, a pause.

Each booking is done or refused for itself. The preview says what would happen to which booking.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from django.db import transaction

from allocation.models import Booking, Stop
from allocation.queries.fleet.stops import stop_why
from allocation.rules.ask.line.text import duration_text
from allocation.rules.states import ON_HARDWARE, TERMINAL, State
from allocation.services.plans.pauses import operator_pause_begin
from allocation.services.record.history import Event, events_add
from allocation.services.runs.transition import booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from allocation.words.site_refusals import bulk_effect, bulk_refusal
from tenants.audit import audit_entry, audit_write
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.services.input_values import name_read

logger = logging.getLogger(__name__)

Act = Literal["message", "release", "pause"]
ACTS: tuple[Act, ...] = get_args(Act)
MOST_BOOKINGS = 200
LONGEST_TEXT = 200
# A stop keeps a reason of this length.
LONGEST_REASON = 120
LONGEST_PAUSE = timedelta(days=7)
ACTIONS = {
    "message": "booking.message_sent",
    "release": "booking.release_asked",
    "pause": "booking.pause_ordered",
}


@dataclass(frozen=True, slots=True)
class BulkAct:
    """What to do: a message or a reason, which the owners read, and how long a pause lasts."""

    act: Act
    text: str
    length: timedelta | None = None


@dataclass(frozen=True, slots=True)
class BulkLine:
    """One booking: what happens to it, or why nothing does."""

    booking: Booking
    effect: str
    refusal: Refused | None = None


def bulk_preview(*, bookings: Collection[UUID], act: BulkAct, now: datetime) -> list[BulkLine]:
    """Says what the act would do to each booking, by tenant and number; changes nothing.

    Raises:
        Refused: `bad_message`, `bad_length` or `bad_bookings`.
    """
    read = _read(act)
    return [_line(booking, read, now) for booking in _found(bookings)]


def bulk_apply(*, operator: User, bookings: Collection[UUID], act: BulkAct, now: datetime) -> list[BulkLine]:
    """Carries the act out where it is possible; returns a line for each booking.

    What is done is written to the booking's history, and to the logs of its tenant and the
    platform. For a transaction of an operator. Raises as `bulk_preview`.
    """
    read = _read(act)
    with transaction.atomic():
        # In the order in which every writer locks several bookings.
        ids = sorted(booking.id for booking in _found(bookings))
        rows = {each: booking_lock(each, "tenant", "tier", "owner", "project") for each in ids}
        lines = [_done(rows[each], read, operator, now) for each in ids]
        done = [line.booking for line in lines if line.refusal is None]
        _audit(done, read, operator, now)
    if done and read.act == "pause":
        task_request("allocation.cycle")
    logger.warning("%s: %s for %d bookings (%s)", operator.username, act.act, len(done), read.text)
    return sorted(lines, key=lambda line: (line.booking.tenant.slug, line.booking.number))


def _read(act: BulkAct) -> BulkAct:
    longest = LONGEST_REASON if act.act == "pause" else LONGEST_TEXT
    try:
        text = name_read(act.text, longest=longest)
    except Refused as refusal:
        sentence = refusal_text("owner_message", longest=longest)
        raise invalid("bad_message", sentence, "text") from refusal
    if act.act != "pause":
        return BulkAct(act.act, text)
    if act.length is None or not timedelta(minutes=1) <= act.length <= LONGEST_PAUSE:
        raise invalid("bad_length", refusal_text("bad_length"), "length")
    return BulkAct(act.act, text.rstrip("."), act.length)


def _found(bookings: Collection[UUID]) -> list[Booking]:
    wanted = set(bookings)
    if not 0 < len(wanted) <= MOST_BOOKINGS:
        raise invalid(
            "bad_bookings",
            refusal_text("bookings_per_call", most_bookings=MOST_BOOKINGS),
            "bookings",
        )
    rows = Booking.objects.filter(id__in=wanted)
    found = rows.select_related("tenant", "tier", "owner", "project")
    if len(found) < len(wanted):
        sentence = refusal_text("bookings_unknown", count=len(wanted) - len(found))
        raise invalid("bad_bookings", sentence, "bookings")
    return sorted(found, key=lambda each: (each.tenant.slug, each.number))


def _line(booking: Booking, act: BulkAct, now: datetime) -> BulkLine:
    refusal = _refusal(booking, act, now)
    return BulkLine(booking, "" if refusal else _effect(booking, act), refusal)


def _effect(booking: Booking, act: BulkAct) -> str:
    owner = booking.owner.display_name
    if act.act == "message" or act.length is None:
        is_running = booking.state in ON_HARDWARE
        code = "release_running" if is_running else "release_waiting"
        return bulk_effect("message" if act.act == "message" else code, owner=owner)
    return bulk_effect(
        "pause" if booking.starts is None else "pause_window",
        owner=owner,
        grace=_words(booking.tier.grace_seconds),
        length=_words(int(act.length.total_seconds())),
    )


def _words(seconds: int) -> str:
    return duration_text(seconds) if seconds else "0m"


def _refusal(booking: Booking, act: BulkAct, now: datetime) -> Refused | None:
    if booking.state in TERMINAL:
        return _why_not("booking_over", booking)
    if act.act == "message":
        return None
    if booking.state == State.ENDING:
        return _why_not("booking_ending", booking)
    return _why_not_pausable(booking, now) if act.act == "pause" else None


def _why_not_pausable(booking: Booking, now: datetime) -> Refused | None:
    """Why the booking can't be paused now; agrees with `queries.bookings.rung_effects.pausable`."""
    tier = booking.tier
    if booking.state in (State.PAUSING, State.PAUSED):
        return _why_not("paused_already", booking)
    if booking.state != State.ACTIVE or booking.planned_ends is None or booking.ready_at is None:
        return _why_not("not_running", booking)
    if not tier.pausable:
        return _why_not("tier_never_paused", booking)
    if tier.max_pauses is not None and booking.pause_count >= tier.max_pauses:
        return _why_not("paused_enough", booking)
    if booking.planned_ends <= now + timedelta(seconds=tier.grace_seconds):
        return _why_not("ends_before_pause", booking)
    protected = booking.ready_at + timedelta(seconds=tier.protected_seconds)
    return _why_not("protected", booking, protected) if protected > now else None


def _why_not(code: str, booking: Booking, frees_at: datetime | None = None) -> Refused:
    tier = booking.tier
    facts = {"tier": tier.name, "count": booking.pause_count}
    times = {"grace": tier.grace_seconds, "protected": tier.protected_seconds}
    facts |= {name: _words(seconds) for name, seconds in times.items()}
    return Refused(code, bulk_refusal(code, **facts), owner="operator", frees_at=frees_at)


def _done(booking: Booking, act: BulkAct, operator: User, now: datetime) -> BulkLine:
    """Does it to a locked booking."""
    line = _line(booking, act, now)
    if line.refusal is not None:
        return line
    if act.act == "pause":
        return line if _pause(booking, act, operator, now) else _lost(booking)
    if act.act == "message":
        event = Event("message", event_text("operator_message", message=act.text), operator.id)
    else:
        event = Event("release_asked", event_text("release_asked", message=act.text), operator.id)
    events_add([event.row(booking, now)])
    return line


def _pause(booking: Booking, act: BulkAct, operator: User, now: datetime) -> bool:
    """Gives notice, with a stop that keeps the booking from resuming; False without a device."""
    if act.length is None:
        raise ValueError("a pause has a length")
    stop = Stop(
        scope=Stop.Scope.BOOKING,
        tenant=booking.tenant,
        booking=booking,
        since=now,
        until=now + timedelta(seconds=booking.tier.grace_seconds) + act.length,
        reason=act.text,
        begun_by=operator,
    )
    if operator_pause_begin(booking, stop_why(stop), now) is None:
        return False
    # One that is over by its time still counts as open.
    Stop.objects.filter(booking=booking, ended_at=None).update(ended_at=now)
    stop.save(force_insert=True)
    return True


def _lost(booking: Booking) -> BulkLine:
    return BulkLine(booking, "", _why_not("not_running", booking))


def _audit(done: Sequence[Booking], act: BulkAct, operator: User, now: datetime) -> None:
    seconds = int(act.length.total_seconds()) if act.length else None
    audit_write(
        audit_entry(
            tenant_id=tenant_id,
            actor_id=operator.id,
            action=ACTIONS[act.act],
            target=("booking", booking.id),
            now=now,
            detail={
                "label": booking.label,
                "before": None,
                "after": {"message": act.text, **({"seconds": seconds} if seconds else {})},
            },
        )
        for booking in done
        for tenant_id in (None, booking.tenant_id)
    )
