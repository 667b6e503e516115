"""Sooner, if you…: what a waiting booking could be instead, and the change to it in one step."""

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
from tenants.access import Actor
from tenants.platform.errors import Refused

MAX_OPTIONS = 3
CHANGEABLE = (State.QUEUED, State.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Change:
    """What a booking is to become: an option's tier and line, at the prices of `priced_at`.

    It has to start at `starts`, or so soon after that only the click lies between.
    """

    tier: str
    request: str
    starts: datetime
    priced_at: datetime | None = None


def earlier_options(
    *, actor: Actor, booking: Booking, now: datetime
) -> tuple[tuple[QuoteOption, ...], str]:
    """At most three ways to start before the promised time, the earliest first, with the text
    that fixes their prices. None for a fixed window: it says itself when it starts.

    Run inside the tenant's transaction.
    """
    promised = booking.planned_starts
    if booking.state not in CHANGEABLE or booking.starts or promised is None or promised <= now:
        return (), ""
    try:
        quote = quote_make(actor=actor, wish=_wish(booking), now=now, without=booking)
    except Refused:
        # A rule of today says no to the ask as a whole; the promise stands all the same.
        return (), ""
    sooner = [
        option
        for option in quote.options
        if option.starts < promised and (option.kind, option.tier) != ("as_asked", booking.tier_id)
    ]
    sooner.sort(key=lambda option: (option.starts, option.price, option.tier, option.request))
    return tuple(sooner[:MAX_OPTIONS]), quote.lock


def booking_change(*, actor: Actor, booking: Booking, change: Change, now: datetime) -> Booking:
    """Gives the booking up and books the option instead, in one transaction; twice is once.

    The new booking has a new place in line: only what is still free before the promised start may
    be changed to.

    Raises:
        Refused: `not_changeable`, `change_gone`, or any rule of the new booking; nothing is
            written then.
    """
    with transaction.atomic():
        old = (
            Booking.objects.select_for_update(of=("self",))
            .select_related("project", "tier", "owner")
            .get(id=booking.id)
        )
        instead = uuid5(old.id, "instead")
        made = Booking.objects.filter(id=instead).select_related("project", "tier", "owner").first()
        if made is not None:
            return made
        if old.state not in CHANGEABLE:
            raise Refused(
                "not_changeable",
                f"{old.label} is {old.get_state_display().lower()}; only a booking that waits "
                "for its start can be changed.",
            )
        option = _option_check(actor, old, change, now)
        booking_cancel(actor=actor, booking=old, now=now)
        wish = _wish(old, option, change.priced_at)
        new = booking_request(actor=actor, wish=wish, now=now, booking_id=instead)
        for row, sentence in (
            (Booking.objects.get(id=old.id), f"{new.label} was booked instead."),
            (new, f"Booked instead of {old.label}, with a new place in line."),
        ):
            event_add(row, kind="changed", sentence=sentence, now=now, actor_id=actor.user_id)
    return new


def _option_check(actor: Actor, booking: Booking, change: Change, now: datetime) -> QuoteOption:
    options, _ = earlier_options(actor=actor, booking=booking, now=now)
    for option in options:
        is_same = (option.tier, option.request) == (change.tier, change.request)
        if is_same and option.starts <= change.starts + PRICE_LOCK_TIME:
            return option
    rule = BY_CODE["change_gone"]
    promised = booking.planned_starts
    raise Refused(
        "change_gone",
        f"That is no longer free as it was shown, so {booking.label} keeps its promised start.",
        param="request",
        rule=rule.id,
        owner=rule.owner,
        numbers={"promised": promised.isoformat() if promised else ""},
        alternatives=[
            {"tier": option.tier, "request": option.request, "starts": option.starts.isoformat()}
            for option in options
        ],
    )


def _wish(
    booking: Booking, option: QuoteOption | None = None, priced_at: datetime | None = None
) -> BookingRequest:
    """The booking as it was asked for, or as the option has it."""
    return BookingRequest(
        project=booking.project.slug,
        tier=option.tier if option else booking.tier_id,
        ask=option.ask if option else AskDocument.from_json(booking.ask),
        name=booking.name,
        zone=booking.zone,
        request_text=option.request if option else booking.request_text,
        priced_at=priced_at,
    )
