"""Entries of the waiting list that exclude each other: the first that gets a place ends the others.

The database lets only one entry of a group be met. The next turn withdraws the others, before its
snapshot.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from rest_framework import serializers

from allocation.features.waiting_list.models import WaitEntry
from allocation.features.waiting_list.offers import offer_withdraw
from allocation.features.waiting_list.queries import access_wait_entry
from allocation.models import Booking
from allocation.rules.changes import MOST_WAITING
from allocation.rules.states import ON_WAITLIST, State
from allocation.services.bookings.approval.decisions import approval_withdraw
from allocation.services.bookings.withdrawals import booking_withdraw
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import EventText, event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid
from tenants.platform.terms import term, terms

_WAITS = (State.REQUESTED, State.AWAITING_APPROVAL, *ON_WAITLIST)


@terms
class ExcludeTerms:
    """Entries of which only one is wanted."""

    entries: Sequence[UUID] = term(
        "Entries",
        default=(),
        body=serializers.ListField(
            child=serializers.UUIDField(),
            min_length=1,
            max_length=MOST_WAITING,
            help_text="Ids of open entries of one person. One alone excludes none any more.",
        ),
    )


def entries_exclude(*, actor: Actor, terms: ExcludeTerms, now: datetime) -> list[WaitEntry]:
    """Makes open entries of one person exclude each other, in place of what they excluded before.
    One alone excludes nothing any more. Idempotent.

    Raises:
        Refused: `no_entries`, `not_found`, `not_allowed`, `entry_over`, `entries_of_one`, `entry_twice`.
    """
    entry_ids = terms.entries
    if not entry_ids:
        raise invalid("no_entries", refusal_text("no_entries"), "entries")
    if len(set(entry_ids)) != len(entry_ids):
        raise invalid("entry_twice", refusal_text("entry_twice"), "entries")
    with transaction.atomic():
        found = [access_wait_entry(actor, each) for each in entry_ids]
        if len({entry.owner_id for entry in found}) != 1:
            raise invalid("entries_of_one", refusal_text("entries_of_one"), "entries")
        bookings = {
            booking_id: booking_lock(booking_id, "project", "tier", "owner")
            for booking_id in sorted(entry.booking_id for entry in found)
        }
        rows = WaitEntry.objects.select_for_update().filter(id__in=entry_ids).order_by("id")
        entries = list(rows)
        lost = set(rivals_due(now).values_list("id", flat=True))
        for entry in entries:
            if entry.slot is None or entry.id in lost:
                label = bookings[entry.booking_id].label
                raise Refused("entry_over", refusal_text("entry_over", label=label))
        if _is_so(entries):
            return entries
        group = uuid4() if len(entries) > 1 else None
        for entry in entries:
            text = _excluded(actor, bookings[entry.booking_id], bookings.values(), is_one=group is None)
            entry.any_of = group
            entry.save(update_fields=["any_of"])
            event = Event("changed", text, actor.user_id)
            booking_change(bookings[entry.booking_id], event=event, now=now)
    return entries


def bookings_exclude(actor: Actor, bookings: Sequence[Booking], now: datetime) -> None:
    """Makes the entries of bookings that were just made exclude each other.

    Raises:
        Refused: `any_of_waits`, one of them does not wait; or as `entries_exclude`.
    """
    ids = [booking.id for booking in bookings]
    entries = list(WaitEntry.objects.filter(booking__in=ids).values_list("id", flat=True))
    if len(entries) < max(2, len(ids)):
        raise invalid("any_of_waits", refusal_text("any_of_waits"), "any_of")
    entries_exclude(actor=actor, terms=ExcludeTerms(entries=entries), now=now)
    for booking in bookings:
        booking.refresh_from_db(fields=["version"])


def rivals_due(now: datetime) -> QuerySet[WaitEntry]:
    """Returns the open entries of groups of which one has a place by now."""
    met = WaitEntry.objects.filter(any_of=OuterRef("any_of"), is_met=True)
    return WaitEntry.objects.filter(Exists(met), slot__isnull=False, any_of__isnull=False)


def rivals_withdraw(now: datetime) -> int:
    """Cancels the bookings whose group has a place, with all of their money. Returns how many. For
    the turn of the solver, before its snapshot."""
    due = rivals_due(now).order_by("booking_id").values_list("booking_id", "any_of")
    return sum(_withdraw(booking_id, group, now) for booking_id, group in list(due))


def _excluded(actor: Actor, booking: Booking, all_: Collection[Booking], *, is_one: bool) -> EventText:
    """What the history of one of the bookings says. All who read it may see the numbers in it."""
    if is_one:
        return event_text("entry_alone", actor=actor.name)
    near = [each.label for each in all_ if each.project_id == booking.project_id]
    code = "entries_exclude" if len(near) == len(all_) else "entries_exclude_elsewhere"
    return event_text(code, actor=actor.name, labels=", ".join(near))


def _withdraw(booking_id: UUID, group: UUID | None, now: datetime) -> int:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project", "owner")
        if booking.state not in _WAITS:
            return 0
        offer_withdraw(booking, now)
        if booking.state == State.AWAITING_APPROVAL:
            approval_withdraw(booking, now)
        met = WaitEntry.objects.select_related("booking").get(any_of=group, is_met=True)
        if met.booking.project_id == booking.project_id:
            text = event_text("rival_met", label=met.booking.label)
        else:
            text = event_text("rival_met_elsewhere")
        booking_withdraw(booking, text, now, outcome="other_met")
    return 1


def _is_so(entries: Sequence[WaitEntry]) -> bool:
    """Whether these entries, and no others, exclude each other already."""
    first, *others = {entry.any_of for entry in entries}
    if others or first is None:
        return not others and len(entries) == 1
    return WaitEntry.objects.filter(any_of=first, slot__isnull=False).count() == len(entries) > 1
