"""Options that start earlier than a waiting booking, and the change to one of them."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.price_lock import PRICE_LOCK_TIME
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quote_options import QuoteOption
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.refusals import refusal
from allocation.services.runs.transition import booking_lock
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused

MAX_OPTIONS = 3
CHANGEABLE = (State.QUEUED, State.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Change:
    """The option that a booking changes to: its tier and request text.

    It must still start at `starts`, or within the time of the price lock after it. `priced_at`:
    when the options were shown, whose prices count.
    """

    tier: str
    request: str
    starts: datetime
    priced_at: datetime | None = None


def earlier_options(*, actor: Actor, booking: Booking, now: datetime) -> tuple[tuple[QuoteOption, ...], str]:
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


def earlier_take(*, actor: Actor, booking: Booking, change: Change, now: datetime) -> Booking:
    """Asks for the change of a booking to one of its earlier options. It keeps what it has until
    that is granted, and if it is not.

    Raises:
        Refused: `not_changeable`, `change_gone`, or as `booking_patch`; nothing is written then.
    """
    with transaction.atomic():
        old = booking_lock(booking.id, "project", "tier", "owner")
        if old.state not in CHANGEABLE:
            state = old.get_state_display().lower()
            sentence = refusal_text("not_changeable", label=old.label, state=state)
            raise Refused("not_changeable", sentence)
        option = _option_check(actor, old, change, now)
        accept = Accept(start_by=option.starts + PRICE_LOCK_TIME, strength=option.strength)
        patch = Patch(
            ask=option.ask,
            tier=option.tier,
            request_text=option.request,
            accept=accept,
            priced_at=change.priced_at,
        )
        return booking_patch(actor=actor, booking=old, patch=patch, revision=None, now=now)


def _option_check(actor: Actor, booking: Booking, change: Change, now: datetime) -> QuoteOption:
    options, _ = earlier_options(actor=actor, booking=booking, now=now)
    for option in options:
        is_same = (option.tier, option.request) == (change.tier, change.request)
        if is_same and option.starts <= change.starts + PRICE_LOCK_TIME:
            return option
    planned = booking.planned_starts
    raise refusal(
        "change_gone",
        refusal_text("change_gone", label=booking.label),
        "conflict",
        "request",
        numbers={"promised": planned.isoformat() if planned else ""},
        alternatives=[
            {"tier": option.tier, "request": option.request, "starts": option.starts.isoformat()}
            for option in options
        ],
    )


def _request(booking: Booking) -> BookingRequest:
    """Returns the booking as it was requested."""
    return BookingRequest(
        project=booking.project.slug,
        tier=booking.tier_id,
        ask=AskDocument.from_json(booking.ask),
        name=booking.name,
        zone=booking.zone,
        request_text=booking.request_text,
        campaign=booking.campaign.slug if booking.campaign else "",
        labels=booking.labels,
        external_ref=booking.external_ref,
    )
