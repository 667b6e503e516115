"""The waiting list in turns: entries whose windows have passed leave it, and what the solver may offer."""

from collections import defaultdict
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.features.waiting_list.rules import MOST_EXPIRED, is_night, night_ends
from allocation.models import Booking, WaitMode
from allocation.rules.states import State
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_lock, booking_move
from allocation.services.snapshot.snapshot import requests_of
from allocation.words.events import event_text
from billing.rules import money_text, rest_in_cents
from solver.model.inputs import Entry


def entries_due(now: datetime) -> QuerySet[WaitEntry]:
    """Returns the entries for which the time has come: their last possible start has passed, or
    their owner's night."""
    return WaitEntry.objects.filter(
        Q(until__lte=now) | Q(quiet_until__lte=now),
        slot__isnull=False,
        booking__state=State.WAITLISTED,
    )


def entries_expire(now: datetime) -> int:
    """Ends the bookings whose windows have passed, and releases their money. Returns how many."""
    due = entries_due(now).filter(until__lte=now).order_by("booking_id")
    return sum(_expire(booking_id, now) for booking_id in list(due.values_list("booking_id", flat=True)))


def nights_due(now: datetime) -> QuerySet[WaitEntry]:
    """Returns the entries of which it is not known whether it is night where their owner is."""
    return WaitEntry.objects.filter(
        Q(quiet_until=None) | Q(quiet_until__lte=now), slot__isnull=False, mode=WaitMode.OFFER
    )


def nights_note(now: datetime) -> int:
    """Notes until when an entry gets no offer, because it is night where its owner is. No booking ends."""
    for entry, was, zone in nights_due(now).values_list("id", "quiet_until", "booking__zone"):
        until = night_ends(now, zone) if is_night(now, zone) else None
        if until != was:
            WaitEntry.objects.filter(id=entry).update(quiet_until=until)
    return 0


def _expire(booking_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project")
        if booking.state != State.WAITLISTED:
            return 0
        _missed(booking, now)
    return 1


def _missed(booking: Booking, now: datetime) -> None:
    charged = waiting_settle(booking, now)
    freed = money_text(rest_in_cents(booking.hold_amount, charged), booking.currency)
    booking_move(
        booking,
        State.EXPIRED,
        event=Event("expired", event_text("wait_missed", freed=freed)),
        now=now,
        outcome="missed",
        charged=charged,
        ended_at=now,
    )


def entries_open(now: datetime) -> QuerySet[WaitEntry]:
    """Returns all entries that have not left the list, also those that get no offer now."""
    return WaitEntry.objects.filter(slot__isnull=False)


def entries_to_offer(now: datetime) -> tuple[Entry, ...]:
    """Returns every entry that waits for an offer, except in its owner's night or after two offers that
    had no answer."""
    found = WaitEntry.objects.filter(
        Q(quiet_until=None) | Q(quiet_until__lte=now),
        slot__isnull=False,
        mode=WaitMode.OFFER,
        expired_count__lt=MOST_EXPIRED,
        booking__state=State.WAITLISTED,
        booking__is_drained=False,
    ).select_related("booking__tier", "booking__series")
    rows = list(found.order_by("booking_id"))
    barred = _barred() if rows else {}
    return tuple(
        Entry(
            request.booking,
            request,
            tuple((_seconds(since), _seconds(until)) for since, until in row.times),
            row.expired_count,
            tuple(sorted(barred.get((row.tenant_id, row.owner_id), ()))),
        )
        for row, request in zip(rows, requests_of((row.booking for row in rows), now), strict=True)
    )


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _barred() -> dict[tuple[UUID, int], set[str]]:
    """By person, the classes in which they have an open offer."""
    found: dict[tuple[UUID, int], set[str]] = defaultdict(set)
    rows = WaitOffer.objects.filter(state=WaitOffer.State.OPEN)
    for tenant, owner, name in rows.values_list("tenant_id", "owner_id", "gpu_class"):
        found[tenant, owner].add(name)
    return found
