"""Changes of bookings that need an approval: whether, by which people, and how it is asked for."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from allocation.models import Approval, Booking, BookingChange
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.approvals import steps_merged
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval.facts import booking_as_asked
from allocation.services.bookings.approval.open_counters import counters_replace
from allocation.services.bookings.approval.requests import (
    Needed,
    approval_of,
    askable_check,
    asked_event,
    dates_of,
    decide_by,
    digest_now,
    rules_in_force,
    rules_met,
)
from allocation.services.record.terms import Terms, booking_with, terms_of
from allocation.services.runs.transition import booking_change
from tenants.access import Actor

_OPEN = Approval.State.OPEN


def approval_needed(actor: Actor, booking: Booking, terms: Terms, now: datetime) -> Needed | None:
    """Returns the approval that the booking as a whole needs with these terms, if any.

    A request that waits for its approval needs one also if it meets no rule any more.
    """
    changed = booking_with(booking, terms)
    units = {changed.id: ask_units(AskDocument.from_json(terms.ask))}
    rules = rules_met(rules_in_force(actor, changed.project_id), [changed], units, now)
    if booking.state != State.AWAITING_APPROVAL:
        return Needed.of(rules) if rules else None
    (present,) = (each for each in _together(booking) if each.booking_id == booking.id)
    if booking.series_id is None:
        return Needed.of(rules) if rules else Needed(tuple(present.rules), present.step_list)
    found = Needed.of(rules)
    named = {each["id"]: each for each in (*present.rules, *found.named)}
    return Needed(tuple(named.values()), steps_merged([present.step_list, found.steps]))


def group_approval_request(actor: Actor, group: UUID, now: datetime) -> None:
    """Asks once for the approval of changes that are made all or none, if together they need one.

    Raises:
        Refused: `too_many_approvals`, `no_approver` or `approval_too_late`.
    """
    rows = BookingChange.objects.select_for_update(of=("self",)).select_related("booking__series")
    changes = list(rows.filter(group=group, state=BookingChange.State.ASKED).order_by("booking_id"))
    if not changes:
        return
    changed = [booking_as_asked(each.booking, each) for each in changes]
    units = {row.id: ask_units(AskDocument.from_json(row.ask)) for row in changed}
    rules = rules_met(rules_in_force(actor, changed[0].project_id), changed, units, now)
    if not rules:
        return
    needed = Needed.of(rules)
    askable_check(actor, changed[0].project_id, needed)
    latest = min(row.not_before for row in changed)
    for change, row in zip(changes, changed, strict=True):
        change.state = BookingChange.State.AWAITING_APPROVAL
        change.save(update_fields=["state"])
        approval = approval_of(actor, row, needed, now, change=change)
        approval.series_id, approval.latest = row.series_id, latest
        approval.decide_by = decide_by(approval.present_step, latest, now)
        approval.save(force_insert=True)
        booking_change(change.booking, event=asked_event(actor, needed), now=now)


def change_approval_request(
    actor: Actor, booking: Booking, change: BookingChange, needed: Needed, now: datetime
) -> None:
    """Asks for the approval of a stored change; the booking keeps what it has meanwhile.

    Raises:
        Refused: `too_many_approvals`, `no_approver` or `approval_too_late`.
    """
    askable_check(actor, booking.project_id, needed)
    changed = booking_with(booking, Terms.from_json(change.target))
    approval_of(actor, changed, needed, now, change=change).save(force_insert=True)
    booking_change(booking, event=asked_event(actor, needed), now=now)


def approval_keep(booking: Booking, now: datetime) -> None:
    """Keeps the request for the approval of a booking that asks for less by now.

    The request is an upper bound: its approval covers a smaller request, too.
    """
    approvals = _together(booking)
    bookings = _bookings_of(approvals)
    for each in approvals:
        digest = digest_now(each, bookings)
        if digest != each.digest:
            each.covers, each.digest = [*each.covers, each.digest], digest
            each.save(update_fields=["digest", "covers"])
    counters_replace((each.id for each in approvals), now)


def approval_replace(actor: Actor, booking: Booking, needed: Needed, now: datetime) -> None:
    """Asks anew for the approval of a booking whose request has changed while it waits for one; all
    dates of a series are asked for together.

    The time for which its place is kept does not begin again.

    Raises:
        Refused: `no_approver` or `approval_too_late`.
    """
    approvals = _together(booking)
    bookings = _bookings_of(approvals)
    counters_replace((each.id for each in approvals), now)
    for approval in approvals:
        approval.state, approval.decided = Approval.State.WITHDRAWN, now
        approval.save(update_fields=["state", "decided"])
    askable_check(actor, booking.project_id, needed)
    # A series that was cut in two is decided in two parts.
    for series in {each.series_id for each in bookings}:
        rows = [each for each in bookings if each.series_id == series]
        dates = dates_of(rows)
        Approval.objects.bulk_create([approval_of(actor, each, needed, now, dates=dates) for each in rows])
    booking_change(booking, event=asked_event(actor, needed), now=now)


def dates_approval_replace(actor: Actor, dates: Iterable[Booking], now: datetime) -> None:
    """Asks anew, once, for the approval of a series of which several dates ask for more by now."""
    waiting = [each for each in dates if each.state == State.AWAITING_APPROVAL]
    if not waiting:
        return
    booking = waiting[0]
    approvals = _together(booking)
    bookings = _bookings_of(approvals)
    if all(digest_now(each, bookings) == each.digest for each in approvals):
        return
    needed = approval_needed(actor, booking, terms_of(booking), now)
    if needed is not None:
        approval_replace(actor, booking, needed, now)


def dates_lock(booking: Booking) -> None:
    """Locks all dates of a series that waits for its approval, in one order, before one changes."""
    if booking.state != State.AWAITING_APPROVAL or booking.series_id is None:
        return
    asked = Approval.objects.filter(booking=booking, state=_OPEN, change=None)
    series = asked.exclude(series=None).values_list("series", flat=True).first()
    if series is not None:
        dates = Approval.objects.filter(series=series, state=_OPEN, change=None).values("booking")
        rows = Booking.objects.select_for_update().filter(id__in=dates).order_by("id")
        list(rows.values_list("id"))


def _together(booking: Booking) -> list[Approval]:
    """The open requests that are decided together with that of a waiting booking, locked."""
    rows = Approval.objects.select_for_update(of=("self",)).filter(change=None, state=_OPEN)
    present = rows.get(booking=booking)
    if present.series_id is None:
        return [present]
    dates = rows.filter(series=present.series_id, asked=present.asked)
    return list(dates.order_by("booking_id"))


def _bookings_of(approvals: Iterable[Approval]) -> Sequence[Booking]:
    rows = Booking.objects.filter(id__in=[each.booking_id for each in approvals])
    return list(rows.select_related("tier", "project").order_by("id"))
