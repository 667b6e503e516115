"""What a counter-offer would make of a request: of a booking, a series, an array or a change.

What an array or a change would become is tried out and undone, so an offer that would be refused
is refused to the approver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid4

from django.db import transaction

from allocation.models import Approval, Booking, BookingArray, CounterOffer
from allocation.points.arrays import arrays
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, Target, strength_of
from allocation.services.bookings.approval.changes import dates_approval_replace
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.change_rows import change_open
from allocation.services.bookings.checks.terms import stronger_terms, target_of, weaker_terms
from allocation.services.bookings.requests import ArrayRequest, BookingRequest
from allocation.services.record.terms import Terms, terms_of
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an approver would approve: a request, and a tier (None: as asked)."""

    ask: AskDocument
    tier: str | None
    text: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Offered:
    """The terms by booking, what all of them cost, and what differs from what was asked."""

    terms: Mapping[UUID, Terms]
    cost: Decimal
    differences: Mapping[str, tuple[object, object]]


def offered_terms(
    asker: Actor,
    approval: Approval,
    bookings: Sequence[Booking],
    proposal: Proposal,
    now: datetime,
) -> Offered:
    """Returns what the locked bookings of a request would become.

    Raises:
        Refused: `counter_single`, `counter_same`, or any rule of a request.
    """
    (booking,) = (each for each in bookings if each.id == approval.booking_id)
    change = approval.change
    if change is not None and approval.series_id is not None:
        raise Refused("counter_single", refusal_text("counter_single"))
    if change is not None:
        asked = Terms.from_json(change.target)
        old = Target(AskDocument.from_json(asked.ask), asked.tier, asked.name)
    else:
        old = target_of(booking)
    new = _target(booking, proposal)
    if strength_of(old, new) is Strength.WORD:
        raise invalid("counter_same", refusal_text("counter_same"), "request")
    if change is not None:
        terms = _tried_change(asker, booking, proposal, now)
        found, cost = {booking.id: terms}, terms.hold_amount
    elif booking.array is not None:
        terms = _tried_array(asker, booking.array, proposal, now)
        found, cost = {booking.id: terms}, terms.hold_amount * booking.array.count
    else:
        found = {each.id: _terms(each, _target(each, proposal), proposal, now) for each in bookings}
        cost = sum((each.hold_amount for each in found.values()), Decimal(0))
    return Offered(found, cost, old.differences(new))


def offer_take(
    actor: Actor,
    approval: Approval,
    bookings: Sequence[Booking],
    counter: CounterOffer,
    now: datetime,
) -> Booking:
    """Changes what was asked for into what was offered, at no higher price; returns the booking of
    the request.

    Raises:
        Refused: `counter_changed`, or any rule of a request.
    """
    (booking,) = (each for each in bookings if each.id == approval.booking_id)
    terms = {UUID(key): Terms.from_json(each) for key, each in counter.all_terms.items()}
    mine = terms[booking.id]
    if approval.change_id is not None:
        change_withdraw(actor=actor, booking=booking, now=now)
        made = _patched(actor, booking, mine, counter, now)
        change = change_open(made)
        _same_check(mine, terms_of(made) if change is None else Terms.from_json(change.target))
        return made
    if booking.array is not None:
        made = _array_anew(actor, booking.array, _request_of(booking.array, mine, counter), now)
        _same_check(mine, terms_of(made))
        return made
    group = uuid4() if len(bookings) > 1 else None
    changed = {}
    for each in bookings:
        changed[each.id] = _patched(actor, each, terms[each.id], counter, now, group)
        _same_check(terms[each.id], terms_of(changed[each.id]))
    if group is not None:
        dates_approval_replace(actor, changed.values(), now)
    return changed[booking.id]


def _target(booking: Booking, proposal: Proposal) -> Target:
    """Each date of a series keeps its start."""
    ask = proposal.ask
    if booking.series_id is not None:
        ask = replace(ask, starts=booking.starts, not_before=None, deadline=None)
    return Target(ask, proposal.tier or booking.tier_id, booking.name)


def _terms(booking: Booking, new: Target, proposal: Proposal, now: datetime) -> Terms:
    if strength_of(target_of(booking), new) is Strength.WEAKER:
        terms = weaker_terms(booking, new, proposal.text)
        if terms.hold_amount <= booking.hold_amount:
            return terms
    return stronger_terms(booking, new, proposal.text, now)


def _patched(
    actor: Actor,
    booking: Booking,
    terms: Terms,
    counter: CounterOffer,
    now: datetime,
    group: UUID | None = None,
) -> Booking:
    ask = AskDocument.from_json(terms.ask)
    patch = Patch(ask=ask, tier=terms.tier, request_text=counter.request_text, group=group)
    return booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)


def _tried_change(asker: Actor, booking: Booking, proposal: Proposal, now: datetime) -> Terms:
    """The terms of another change in place of the one that waits."""
    with transaction.atomic():
        change_withdraw(actor=asker, booking=booking, now=now)
        patch = Patch(ask=proposal.ask, tier=proposal.tier, request_text=proposal.text)
        made = booking_patch(actor=asker, booking=booking, patch=patch, revision=None, now=now)
        change = change_open(made)
        terms = terms_of(made) if change is None else Terms.from_json(change.target)
        transaction.set_rollback(True)
    return terms


def _tried_array(asker: Actor, array: BookingArray, proposal: Proposal, now: datetime) -> Terms:
    """The terms of one run of another array in place of the one that waits."""
    old = Terms.from_json(array.terms)
    new = replace(
        old,
        ask=proposal.ask.to_json(),
        tier=proposal.tier or old.tier,
        request_text=proposal.text[:400],
    )
    with transaction.atomic():
        made = _array_anew(asker, array, _request_of(array, new, None), now)
        terms = terms_of(made)
        transaction.set_rollback(True)
    return terms


def _array_anew(actor: Actor, array: BookingArray, request: BookingRequest, now: datetime) -> Booking:
    """The same runs of another request. The array is cancelled first, so that its money is free."""
    arrays().cancel(actor=actor, array=array, now=now)
    runs = ArrayRequest(array.count, array.parallel, array.holds_all, array.stop_after_failures)
    made: Booking = arrays().request(actor=actor, request=request, array=runs, now=now, key=uuid4())
    return made


def _request_of(array: BookingArray, terms: Terms, counter: CounterOffer | None) -> BookingRequest:
    return BookingRequest(
        project=array.project.slug,
        tier=terms.tier,
        ask=AskDocument.from_json(terms.ask),
        name=terms.name,
        zone=array.zone,
        request_text=terms.request_text if counter is None else counter.request_text,
        campaign=array.campaign.slug if array.campaign else "",
        labels=array.labels,
        external_ref=array.external_ref,
    )


def _same_check(offered: Terms, made: Terms) -> None:
    """Raises Refused `counter_changed` unless it is what was offered, at no higher price."""
    is_same = (made.ask, made.tier) == (offered.ask, offered.tier)
    if not is_same or made.hold_amount > offered.hold_amount:
        raise Refused("counter_changed", refusal_text("counter_changed"), param="hash")
