"""Books what the panel offers: a booking, all dates of a series, or the runs of an array."""

from datetime import datetime
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest

from allocation.models import Booking, Series, WaitMode
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import MAX_TEXT_LENGTH, parse_ask
from allocation.services.arrays.arrays import ArrayRequest, array_request
from allocation.services.bookings.bookings import booking_request
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, series_request
from allocation.web.bookings.request_panel.array_form import ArraySaid, array_said
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import invalid
from tenants.platform.labels import labels_read, reference_check
from tenants.web.frame import zone_of


def option_book(request: HttpRequest, actor: Actor, now: datetime) -> Booking | Series:
    """Books the chosen option, or all dates of a series. Sending the same form twice books once.

    Raises:
        Refused, AskError.
    """
    tier, _, text = request.POST.get("option", "").partition(" ")
    if not text:
        raise invalid("no_option", refusal_text("no_option"), "option")
    identifier = _identifier(request, actor)
    first = Q(id=identifier) | Q(array=identifier, array_index=1)
    made = Booking.objects.filter(first, tenant_id=actor.tenant_id).first()
    if made is not None:
        return made
    zone = zone_of(actor.time_zone)
    parsed = parse_ask(text[:MAX_TEXT_LENGTH], catalogue=ask_catalogue(), now=now, zone=zone)
    shown = request.POST.get("quote", "")
    terms = BookingRequest(
        project=request.POST.get("project", ""),
        tier=tier,
        ask=parsed.document(first=True, many=True),
        name=request.POST.get("name", "").strip()[:80],
        zone=actor.time_zone,
        request_text=text,
        priced_at=price_lock_read(shown, now) if shown else None,
        campaign=request.POST.get("campaign", ""),
        labels=labels_read(request.POST.get("labels", "")),
        external_ref=reference_check(request.POST.get("external_ref", "").strip()),
        waitlist=_wait_mode(request.POST.getlist("if_full")),
    )
    array = array_said(parsed)
    if array is not None:
        return _book_array(actor, terms, array, now, identifier)
    if parsed.repeat is None:
        return booking_request(actor=actor, request=terms, now=now, booking_id=identifier)
    repeat = Repeat(parsed.repeat, request.POST.get("partial") == "1")
    return series_request(actor=actor, request=terms, repeat=repeat, now=now, series_id=identifier)


def _wait_mode(chosen: list[str]) -> str:
    """What a full window does: the button says more than the form."""
    if "offer" in chosen:
        return WaitMode.OFFER
    return WaitMode.AUTO if "wait" in chosen else ""


def _book_array(
    actor: Actor, terms: BookingRequest, array: ArraySaid, now: datetime, key: UUID
) -> Booking:
    """Books an array, all or nothing of it. Returns its first element."""
    wanted = ArrayRequest(array.count, array.parallel)
    with transaction.atomic():
        return array_request(actor=actor, request=terms, array=wanted, now=now, key=key)


def _identifier(request: HttpRequest, actor: Actor) -> UUID:
    """Derives the booking's id from the form's key, the tenant and the user."""
    try:
        key = UUID(hex=request.POST.get("key", ""))
    except ValueError:
        raise invalid("no_key", refusal_text("no_key"), "key") from None
    return uuid5(key, f"{actor.tenant_id}:{actor.user_id}")


def made_words(actor: Actor, booking: Booking | Series) -> dict[str, str]:
    """Returns the texts and the address of a new booking or series."""
    base = f"/t/{actor.tenant_slug}"
    if isinstance(booking, Series):
        return {
            "label": "a series",
            "href": f"{base}/series/sr_{booking.id.hex}",
            "heading": "Requested all dates:",
            "link": "view the series",
            "text": "Placing all dates; this takes a few seconds.",
            "message": "Requested all dates. The result of each date is shown below.",
        }
    if booking.array is not None:
        label = booking.array.label
        return {
            "label": label,
            "href": f"{base}/arrays/{label}",
            "heading": f"Booked {booking.array.count:,} runs as",
            "link": label,
            "text": "Placing the first; this takes a few seconds.",
            "message": f"Booked {booking.array.count:,} runs as {label}.",
        }
    return {
        "label": booking.label,
        "href": f"{base}/bookings/{booking.label}",
        "heading": "Booked as",
        "link": booking.label,
        "text": "Placing it; this takes a few seconds.",
        "message": f"Booked as {booking.label}. You can undo this below.",
    }
