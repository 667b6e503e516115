"""Acts on a booking from its page: cancel, release, extend and more, with what is asked before."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from allocation.access import access_booking, access_booking_to_change, access_booking_to_give_back
from allocation.models import Booking
from allocation.queries.bookings.bookings import node_places_of
from allocation.rules.ask import AskDocument
from allocation.services.bookings.change.changes import Patch, booking_extend, booking_patch
from allocation.services.bookings.change.sooner import Sooner
from allocation.services.bookings.change.undo import change_undo
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.checks.lengths import planned_end_of
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.runs.idle_use import booking_still_needed
from allocation.services.runs.late_shares import late_fee
from allocation.services.runs.no_shows import booking_check_in
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from allocation.web.bookings.booking_pages import BOOKING, booking_answer, page_context
from allocation.web.bookings.costs import spent_so_far
from allocation.web.bookings.dependencies import dependents_lost
from allocation.web.bookings.earlier_options import earlier_ask
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.times import length_words, moment_words
from allocation.words.amounts import unit_of
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.confirm import Confirmation, confirm_page
from tenants.platform.text import whole_number
from tenants.web.frame import refused_page, tenant_page

LONGEST_EXTENSION = 90 * 86_400

Act = Callable[[HttpRequest, Actor, Booking, datetime], str]
Ask = Callable[[Booking, PageContext], Confirmation]


def _action(act: Act, ask: Ask | None = None) -> Callable[..., HttpResponse]:
    """Makes a view that runs `act` on a booking at POST and shows the booking again.

    A refusal is shown on the booking's page. With `ask`, a GET shows the confirmation: what is asked
    before is the end of the booking.
    """
    access = access_booking_to_change if ask is None else access_booking_to_give_back

    @require_http_methods(["POST"] if ask is None else ["GET", "HEAD", "POST"])
    @tenant_page
    def view(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
        booking = access(actor, label)
        if ask is not None and request.method != "POST":
            return confirm_page(request, ask(booking, page_context(actor, timezone.now())))
        try:
            said = act(request, actor, booking, timezone.now())
        except Refused as refusal:
            if refusal.kind in ("missing", "denied"):
                return refused_page(request, refusal)
            return booking_answer(request, actor, access_booking(actor, label), refusal)
        messages.success(request, said)
        return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{booking.label}")

    return view


def _cancel(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    done = booking_cancel(actor=actor, booking=booking, now=now)
    back = money_text(done.hold_amount - spent_so_far(done, now), done.currency)
    return f"{done.label} cancelled; {back} returned to the budget."


def _release(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    done = booking_release(actor=actor, booking=booking, now=now)
    back = money_text(done.hold_amount - spent_so_far(done, now), done.currency)
    return f"{done.label} released; {back} returned to the budget."


def _extend(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    seconds = whole_number(request.POST.get("seconds", ""))
    if seconds is None or not 60 <= seconds <= LONGEST_EXTENSION:
        raise invalid("not_a_length", refusal_text("extension_choice"), "seconds")
    until = planned_end_of(booking) + timedelta(seconds=seconds)
    booking_extend(actor=actor, booking=booking, until=until, now=now)
    return f"Extension of {booking.label} requested; you get an answer in a few seconds."


def _sooner(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    patch = Patch(sooner=Sooner(now))
    booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)
    return f"{booking.label} waits for an earlier start. Until then it keeps the one that it has."


def _saved(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    booking_saved(actor=actor, booking=booking, now=now)
    return "Confirmed that your work is saved."


def _more_time(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    more_time_request(actor=actor, booking=booking, now=now)
    return "Extra time requested; you get an answer in a few seconds."


def _check_in(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    booking_check_in(actor=actor, booking=booking, now=now)
    return "Checked in."


def _undo(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    if is_change_open(change_undo(actor=actor, booking=booking, now=now)):
        return f"Asked for what {booking.label} had. Until it is decided it stays as it is."
    return f"The change of {booking.label} is undone."


def _still_needed(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> str:
    booking_still_needed(actor=actor, booking=booking, now=now)
    return f"The {unit_of(booking.ask)}s stay with this booking."


@require_POST
@tenant_page
def booking_earlier_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Asks for the change to an earlier option and shows the booking."""
    booking = access_booking_to_change(actor, label)
    try:
        made = earlier_ask(request, actor, booking, timezone.now())
    except Refused as refusal:
        return booking_answer(request, actor, access_booking(actor, label), refusal)
    messages.success(
        request, f"Asked for the earlier option. Until it is decided {made.label} stays as it is."
    )
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{made.label}")


def release_question(booking: Booking, ctx: PageContext) -> Confirmation:
    """Returns the confirmation before a running booking is released."""
    fee = late_fee(booking, None, ctx.now)
    rest = booking.hold_amount - spent_so_far(booking, ctx.now) - fee
    back = money_text(rest, booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    return Confirmation(
        title=f"Release {_title(booking)} now?",
        lost=(
            *_whose(booking),
            f"{what}{_where(booking)} is stopped and cleared. Unsaved work is lost.",
            *_left(booking, ctx),
            *_fee(booking, fee),
            f"{back} is returned to {booking.project.name}; "
            f"{money_text(spent_so_far(booking, ctx.now), booking.currency)} stays charged.",
            f"This can't be undone: others can get the {unit_of(booking.ask)}s immediately.",
        ),
        button=f"Release and get {back} back",
        back=f"{ctx.base}bookings/{booking.label}",
        keep="Keep running",
    )


def cancel_question(booking: Booking, ctx: PageContext) -> Confirmation:
    """Returns the confirmation before a waiting or paused booking is cancelled."""
    fee = late_fee(booking, None, ctx.now)
    rest = booking.hold_amount - spent_so_far(booking, ctx.now) - fee
    back = money_text(rest, booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    start = booking.planned_starts
    place = (
        f"Others can get its start {moment_words(start, ctx.zone, ctx.now)}."
        if start is not None and start > ctx.now
        else "It loses its place in the queue."
    )
    return Confirmation(
        title=f"Cancel {_title(booking)}?",
        lost=(
            *_whose(booking),
            f"{what} is cancelled. {place}",
            *dependents_lost(booking),
            *_fee(booking, fee),
            f"{back} is returned to the budget of {booking.project.name}.",
            "This can't be undone: a new booking is planned anew at current prices.",
        ),
        button=f"Cancel and return {back}",
        back=f"{ctx.base}bookings/{booking.label}",
    )


def _fee(booking: Booking, fee: Decimal) -> Iterator[str]:
    if fee:
        amount, notice = money_text(fee, booking.currency), length_words(booking.notice_seconds)
        yield (
            f"{amount} is charged: {booking.late_share} % of the price of {unit_of(booking.ask)}s that are "
            f"given up less than {notice} before."
        )


def _title(booking: Booking) -> str:
    return f"{booking.name} ({booking.label})" if booking.name else booking.label


def _whose(booking: Booking) -> Iterator[str]:
    owner = booking.owner.display_name
    yield f"This booking belongs to {owner} in {booking.project.name}."


def _where(booking: Booking) -> str:
    names = [place.name for place in node_places_of(booking)]
    return f" on {', '.join(names)}" if names else ""


def _left(booking: Booking, ctx: PageContext) -> Iterator[str]:
    if booking.planned_ends is not None and booking.planned_ends > ctx.now:
        left = length_words((booking.planned_ends - ctx.now).total_seconds())
        until = moment_words(booking.planned_ends, ctx.zone, ctx.now)
        yield f"{left} of its time, until {until}, is given up."


urlpatterns = [
    path(f"{BOOKING}/cancel", _action(_cancel, cancel_question), name="booking-cancel"),
    path(f"{BOOKING}/release", _action(_release, release_question), name="booking-release"),
    path(f"{BOOKING}/extend", _action(_extend), name="booking-extend"),
    path(f"{BOOKING}/undo", _action(_undo), name="booking-undo"),
    path(f"{BOOKING}/sooner", _action(_sooner), name="booking-sooner"),
    path(f"{BOOKING}/saved", _action(_saved), name="booking-saved"),
    path(f"{BOOKING}/more-time", _action(_more_time), name="booking-more-time"),
    path(f"{BOOKING}/earlier", booking_earlier_page, name="booking-earlier"),
    path(f"{BOOKING}/check-in", _action(_check_in), name="booking-check-in"),
    path(f"{BOOKING}/still-needed", _action(_still_needed), name="booking-still-needed"),
]
