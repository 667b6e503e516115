"""Pages of bookings: the list, one booking, and what its owner does with it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from allocation.access import access_booking, access_booking_to_change, may_change
from allocation.models import Booking
from allocation.queries.bookings.bookings import history_of, node_places_of
from allocation.queries.bookings.pauses import pauses_of
from allocation.queries.fleet.catalogue import ask_units
from allocation.queries.fleet.portal_modes import freeze_reason
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.bookings import (
    booking_cancel,
    booking_check_in,
    booking_extend,
    booking_release,
    planned_end_of,
)
from allocation.services.quotes.extensions import later_ends
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from allocation.web.bookings.cards import place_cards, titles_of, where_words
from allocation.web.bookings.confirmations import cancel_question, release_question
from allocation.web.bookings.earlier_options import booking_replace, outlook_of
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pauses import pause_context
from allocation.web.bookings.summary import (
    ExtendChoice,
    booking_summary,
    commands_of,
    spent_so_far,
    state_words,
    what_words,
)
from allocation.web.parts.times import moment_words
from allocation.web.parts.use_chart import use_card
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import GpuClass
from tenants.platform.confirm import Confirmation, confirm_page
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import refused_page, tenant_page, zone_of

LONGEST_EXTENSION = 90 * 86_400

Act = Callable[[HttpRequest, Actor, Booking, datetime], str]
Ask = Callable[[Booking, PageContext], Confirmation]


def page_context(actor: Actor, now: datetime) -> PageContext:
    """What all pages of bookings need to put things into words."""
    return PageContext(
        now=now,
        zone=zone_of(actor.time_zone),
        base=f"/t/{actor.tenant_slug}/",
        labels=dict(GpuClass.objects.values_list("slug", "label")),
    )


def booking_row(booking: Booking, scene: PageContext) -> dict[str, Any]:
    """One booking as a line of a list."""
    return {
        "booking": booking,
        "href": f"{scene.base}bookings/{booking.label}",
        "title": booking.name or booking.label,
        "what": what_words(AskDocument.from_json(booking.ask), scene.labels),
        "when": state_words(booking, scene.zone, scene.now),
        "cost": money_text(
            spent_so_far(booking, scene.now) if booking.charged is not None else booking.held,
            booking.currency,
        ),
        "is_final": booking.charged is not None,
    }


@require_safe
@tenant_page
def booking_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """One booking: state, why it waits, place, use, cost, history, actions.

    `part=body` is the page without its frame, `part=use` how hard it works, `use=` since when.
    """
    booking = access_booking(actor, label)
    if request.GET.get("part") == "use":
        use = _use(request, booking, page_context(actor, timezone.now()))
        return render(request, "allocation/use.html", {"booking": booking, "use": use})
    return _booking_answer(request, actor, booking)


def _booking_answer(
    request: HttpRequest, actor: Actor, booking: Booking, refusal: Refused | None = None
) -> HttpResponse:
    scene = page_context(actor, timezone.now())
    scene = replace(
        scene,
        units=_units(booking),
        pauses=tuple(pauses_of(booking)),
        frozen=freeze_reason(booking, scene.now),
    )
    places = node_places_of(booking)
    may = may_change(actor, booking)
    if may:
        later = later_ends(actor=actor, booking=booking, now=scene.now)
        scene = replace(scene, ends=later.ends, no_later=later.limit)
    summary = booking_summary(booking, scene, may_change=may)
    context = {
        "booking": booking,
        "title": booking.name or booking.label,
        "summary": summary,
        "places": place_cards(places, booking.ask),
        "where": where_words(places),
        "titles": titles_of(State(booking.state)),
        "commands": commands_of(booking, places),
        "events": history_of(booking),
        "refusal": refusal,
        "possible": _possible(booking, refusal, scene),
        "is_own": booking.owner_id == actor.user_id,
        "use": _use(request, booking, scene),
        **pause_context(booking, scene, may_change=may),
        "outlook": outlook_of(actor, booking, scene.labels, scene.zone, scene.now),
        "may_change": may,
    }
    name = "booking_body" if request.GET.get("part") == "body" else "booking"
    return render(
        request, f"allocation/{name}.html", context, status=200 if refusal is None else 409
    )


def _use(request: HttpRequest, booking: Booking, scene: PageContext) -> dict[str, Any] | None:
    base = f"{scene.base}bookings/{booking.label}"
    span = request.GET.get("use", "")
    return use_card(booking, span=span, now=scene.now, zone=scene.zone, base=base)


def _possible(booking: Booking, refusal: Refused | None, scene: PageContext) -> ExtendChoice | None:
    """The longest extension that a refused one would have worked as."""
    untils = [each["until"] for each in refusal.alternatives if "until" in each] if refusal else []
    if not untils or booking.planned_ends is None:
        return None
    until = datetime.fromisoformat(untils[0])
    seconds = int((until - booking.planned_ends).total_seconds())
    words = f"Extend until {moment_words(until, scene.zone, scene.now)} instead"
    return ExtendChoice(seconds, words) if seconds > 0 else None


def _action(act: Act, ask: Ask | None = None) -> Callable[..., HttpResponse]:
    """A POST that does one thing to a booking and shows it again; a refusal stays on its page.

    With `ask`, a GET is the question before it.
    """

    @require_http_methods(["POST"] if ask is None else ["GET", "HEAD", "POST"])
    @tenant_page
    def view(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
        booking = access_booking_to_change(actor, label)
        if ask is not None and request.method != "POST":
            return confirm_page(request, ask(booking, page_context(actor, timezone.now())))
        try:
            said = act(request, actor, booking, timezone.now())
        except Refused as refusal:
            if refusal.kind in ("missing", "denied"):
                return refused_page(request, refusal)
            return _booking_answer(request, actor, access_booking(actor, label), refusal)
        messages.success(request, said)
        return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{booking.label}")

    return view


def _cancel(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    done = booking_cancel(actor=actor, booking=booking, now=now)
    back = money_text(done.held - spent_so_far(done, now), done.currency)
    return f"{done.label} is cancelled; {back} is free again."


def _release(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    done = booking_release(actor=actor, booking=booking, now=now)
    back = money_text(done.held - spent_so_far(done, now), done.currency)
    return f"{done.label} is being cleared; {back} comes back to the budget."


def _extend(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    text = request.POST.get("seconds", "")
    if not (text.isascii() and text.isdigit() and 60 <= int(text[:9]) <= LONGEST_EXTENSION):
        raise invalid("not_a_length", "Say how much longer, from the list.", "seconds")
    until = planned_end_of(booking) + timedelta(seconds=int(text))
    booking_extend(actor=actor, booking=booking, until=until, now=now)
    return f"Asked to extend {booking.label}; the answer comes in a few seconds."


def _saved(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    booking_saved(actor=actor, booking=booking, now=now)
    return "Noted: everything is saved."


def _more_time(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    more_time_request(actor=actor, booking=booking, now=now)
    return "Asked for more time; the answer comes in a few seconds."


def _check_in(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    booking_check_in(actor=actor, booking=booking, now=now)
    return "You are checked in."


@require_POST
@tenant_page
def booking_change_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Gives the booking up for what starts sooner, and shows the new one."""
    booking = access_booking_to_change(actor, label)
    try:
        made = booking_replace(request, actor, booking, timezone.now())
    except Refused as refusal:
        return _booking_answer(request, actor, access_booking(actor, label), refusal)
    messages.success(request, f"Booked as {made} instead of {booking.label}.")
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{made}")


BOOKING = "t/<slug:tenant>/bookings/<str:label>"
urlpatterns = [
    path(BOOKING, booking_page, name="booking"),
    path(f"{BOOKING}/cancel", _action(_cancel, cancel_question), name="booking-cancel"),
    path(f"{BOOKING}/release", _action(_release, release_question), name="booking-release"),
    path(f"{BOOKING}/extend", _action(_extend), name="booking-extend"),
    path(f"{BOOKING}/saved", _action(_saved), name="booking-saved"),
    path(f"{BOOKING}/more-time", _action(_more_time), name="booking-more-time"),
    path(f"{BOOKING}/change", booking_change_page, name="booking-change"),
    path(f"{BOOKING}/check-in", _action(_check_in), name="booking-check-in"),
]


def _units(booking: Booking) -> int:
    """What it takes of its class, for what of it is borrowed."""
    if not booking.borrowed_units:
        return 0
    return ask_units(AskDocument.from_json(booking.ask)).get(booking.planned_class, 0)
