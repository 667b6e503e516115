"""Options that start earlier than a waiting booking, and the exchange for one of them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid5

from django.db import transaction

from allocation.models import Booking
from allocation.reasons.catalogue import BY_CODE
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.bookings import BookingRequest, booking_cancel, booking_request
from allocation.services.bookings.price_lock import PRICE_LOCK_TIME
from allocation.services.quotes.quote_options import QuoteOption
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.history import event_add
from allocation.services.record.refusals import refusal
from allocation.services.runs.transition import booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused

MAX_OPTIONS = 3
CHANGEABLE = (State.QUEUED, State.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Change:
    """The option that replaces a booking: its tier and request text, at the prices of `priced_at`.

    It must still start at `starts`, or within the time of the price lock after it.
    """

    tier: str
    request: str
    starts: datetime
    priced_at: datetime | None = None


def earlier_options(
    *, actor: Actor, booking: Booking, now: datetime
) -> tuple[tuple[QuoteOption, ...], str]:
    """Returns up to three options before the planned start, the earliest first, and the price lock.

    A fixed window has none. Run inside the tenant's transaction.
    """
    planned = booking.planned_starts
    if booking.state not in CHANGEABLE or booking.starts or planned is None or planned <= now:
        return (), ""
    try:
        quote = quote_make(actor=actor, request=_request(booking), now=now, without=booking)
    except Refused:
        # Admission refuses the request now; the booking keeps its planned start.
        return (), ""
    found = [
        option
        for option in quote.options
        if option.starts < planned and (option.kind, option.tier) != ("as_asked", booking.tier_id)
    ]
    found.sort(key=lambda option: (option.starts, option.price, option.tier, option.request))
    return tuple(found[:MAX_OPTIONS]), quote.lock


def booking_exchange(*, actor: Actor, booking: Booking, change: Change, now: datetime) -> Booking:
    """Cancels the booking and books the option instead, in one transaction. Idempotent.

    The new booking has a new place in the queue, so the option must still be free before the
    planned start.

    Raises:
        Refused: `not_changeable`, `change_gone`, or any rule of the new booking; nothing is
            written then.
    """
    with transaction.atomic():
        old = booking_lock(booking.id, "project", "tier", "owner")
        instead = uuid5(old.id, "instead")
        made = Booking.objects.filter(id=instead).select_related("project", "tier", "owner").first()
        if made is not None:
            return made
        if old.state not in CHANGEABLE:
            state = old.get_state_display().lower()
            sentence = refusal_text("not_changeable", label=old.label, state=state)
            raise Refused("not_changeable", sentence)
        option = _option_check(actor, old, change, now)
        booking_cancel(actor=actor, booking=old, now=now)
        request = _request(old, option, change.priced_at)
        new = booking_request(actor=actor, request=request, now=now, booking_id=instead)
        if new.state == State.AWAITING_APPROVAL:
            # The old booking would be given up for one that may never be approved.
            sentence = refusal_text("option_needs_approval", label=old.label)
            raise refusal("approval_needed", sentence, "conflict", "request")
        for row, text in (
            (Booking.objects.get(id=old.id), event_text("changed_to", label=new.label)),
            (new, event_text("changed_from", label=old.label)),
        ):
            event_add(row, kind="changed", sentence=text, now=now, actor_id=actor.user_id)
    return new


def _option_check(actor: Actor, booking: Booking, change: Change, now: datetime) -> QuoteOption:
    options, _ = earlier_options(actor=actor, booking=booking, now=now)
    for option in options:
        is_same = (option.tier, option.request) == (change.tier, change.request)
        if is_same and option.starts <= change.starts + PRICE_LOCK_TIME:
            return option
    rule = BY_CODE["change_gone"]
    planned = booking.planned_starts
    raise Refused(
        "change_gone",
        refusal_text("change_gone", label=booking.label),
        param="request",
        rule=rule.id,
        owner=rule.owner,
        numbers={"promised": planned.isoformat() if planned else ""},
        alternatives=[
            {"tier": option.tier, "request": option.request, "starts": option.starts.isoformat()}
            for option in options
        ],
    )


def _request(
    booking: Booking, option: QuoteOption | None = None, priced_at: datetime | None = None
) -> BookingRequest:
    """Returns the booking as it was requested, or as the option has it."""
    return BookingRequest(
        project=booking.project.slug,
        tier=option.tier if option else booking.tier_id,
        ask=option.ask if option else AskDocument.from_json(booking.ask),
        name=booking.name,
        zone=booking.zone,
        request_text=option.request if option else booking.request_text,
        priced_at=priced_at,
        campaign=booking.campaign.slug if booking.campaign else "",
        labels=booking.labels,
        external_ref=booking.external_ref,
    )
