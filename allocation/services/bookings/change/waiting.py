"""Changes of bookings on the waiting list: what they wait for is replaced at once."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.access import access_wait_entry
from allocation.models import Booking, BookingChange, WaitEntry, WaitMode
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, strength_of
from allocation.rules.states import State
from allocation.rules.waiting import MOST_ENTRIES
from allocation.services.bookings.approval.changes import approval_needed
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.checks.terms import hold_of, stronger_terms, weaker_terms
from allocation.services.bookings.departures import growth_check
from allocation.services.bookings.wait_entries import entry_problem, too_many
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import booking_with
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid


def waiting_change(writer: ChangeWriter, request_text: str) -> Booking:
    """Replaces what a locked booking on the list waits for. If it is more than before, it ranks as
    asked for now. An entry that got no more offers gets them again.

    Raises:
        Refused: `offer_open` while it has an offer, `approval_needed`, `wait_needs_window`,
            `wait_needs_length`, `wait_too_late`, or by the rule that the request breaks.
    """
    booking, now = writer.booking, writer.now
    if booking.state == State.OFFERED:
        raise Refused("offer_open", refusal_text("offer_open", label=booking.label))
    entry = WaitEntry.objects.select_for_update().get(booking=booking)
    is_weaker = strength_of(writer.old, writer.new) is Strength.WEAKER
    facts: dict[str, object] = {} if is_weaker else {"ranked_at": now}
    if is_weaker and entry.mode == WaitMode.AUTO:
        terms = weaker_terms(booking, writer.new, request_text)
    else:
        terms = stronger_terms(booking, writer.new, request_text, now)
    needed = approval_needed(writer.actor, booking, terms, now)
    if needed is not None:
        names = ", ".join(rule["name"] for rule in needed.named)
        sentence = refusal_text("offer_needs_approval", rules=names)
        raise refusal("approval_needed", sentence, "conflict", "request")
    _entry_follow(entry, booking_with(booking, terms), now)
    change = writer.row(terms, Strength.WEAKER if is_weaker else Strength.STRONGER)
    change.restores = {}
    if entry.mode == WaitMode.OFFER:
        # Nothing is held before an offer is accepted.
        facts["hold_amount"] = 0
        writer.store(terms, Strength(change.strength), change, **facts)
    else:
        request = hold_of(booking, terms)
        writer.hold_delta(change, request)
        writer.store(terms, Strength(change.strength), change, **facts)
        writer.exchange(request, change)
    entry.cost, entry.expired_count = terms.hold_amount, 0
    entry.save(update_fields=["windows", "until", "cost", "expired_count"])
    task_request("allocation.cycle")
    return booking


def change_wait_check(actor: Actor, change: BookingChange, until: datetime | None, now: datetime) -> None:
    """Lets a change that is not stored yet wait for room until its last start, or until the end of
    a run is near.

    Raises:
        Refused: `wait_needs_window`, `wait_too_late`, or `too_many_entries`.
    """
    if until is None:
        raise invalid("wait_needs_window", refusal_text("wait_needs_window"), "if_full")
    if until <= now:
        raise invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    waiting = BookingChange.objects.filter(
        tenant_id=actor.tenant_id,
        asked_by=actor.user_id,
        state__in=BookingChange.OPEN,
        keep_trying_until__isnull=False,
    )
    others = waiting.exclude(booking=change.booking).values_list("group", "id")
    # Dates of a series that change together wait as one.
    if len({group or key for group, key in others} - {change.group}) >= MOST_ENTRIES:
        raise too_many()
    change.keep_trying_until = until


def group_wait(group: UUID, now: datetime) -> None:
    """Lets changes that are made all or none wait until one of their bookings begins, as it is or
    as it would be: then all of them are over together.

    Raises:
        Refused: `wait_too_late`.
    """
    rows = BookingChange.objects.filter(group=group, state__in=BookingChange.OPEN)
    waiting = rows.filter(keep_trying_until__isnull=False)
    times = [
        at
        for pair in waiting.values_list("keep_trying_until", "booking__planned_starts")
        for at in pair
        if at is not None
    ]
    if times and min(times) <= now:
        raise invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    waiting.update(keep_trying_until=min(times, default=None))


def entry_wake(*, actor: Actor, entry_id: UUID, now: datetime) -> WaitEntry:
    """Makes an entry get offers again after two that nobody answered. Idempotent.

    Raises:
        Refused: `not_found`, `not_allowed`, or `entry_over`.
    """
    with transaction.atomic():
        found = access_wait_entry(actor, entry_id)
        booking = booking_lock(found.booking_id, "project", "tier", "owner")
        entry = WaitEntry.objects.select_for_update().get(id=found.id)
        if entry.slot is None:
            raise Refused("entry_over", refusal_text("entry_over", label=booking.label))
        if entry.is_dormant:
            growth_check(booking)
            entry.expired_count = 0
            entry.save(update_fields=["expired_count"])
            text = event_text("entry_woken", actor=actor.name)
            booking_change(booking, event=Event("changed", text, actor.user_id), now=now)
            task_request("allocation.cycle")
    return entry


def _entry_follow(entry: WaitEntry, changed: Booking, now: datetime) -> None:
    """Gives an entry the windows of the changed booking: its own, or those that it had."""
    length = timedelta(seconds=changed.duration_seconds)
    windows = tuple(entry.times)
    if AskDocument.from_json(changed.ask).starts is not None and changed.starts is not None:
        windows = ((changed.starts, changed.starts + length),)
    problem = entry_problem(changed, windows, now)
    if problem is not None:
        raise problem
    entry.windows = [[since.isoformat(), until.isoformat()] for since, until in windows]
    entry.until = max(until for _, until in windows) - length
