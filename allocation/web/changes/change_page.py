"""The page on which a booking is changed: the form, its price and start, and the change."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from allocation.access import (
    access_booking,
    access_booking_to_change,
    access_booking_to_give_back,
    access_series_to_change,
)
from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.kept import change_ask_again
from allocation.services.bookings.change.refusals import revision_moved
from allocation.services.bookings.change.series import Scope, series_patch
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.quotes.changes import ChangeQuote, change_quote
from allocation.services.quotes.moves import Delay
from allocation.services.quotes.series_changes import SeriesQuote, series_change_quote
from allocation.services.record.terms import Terms, terms_of
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.dependencies import OF_ANOTHER
from allocation.web.bookings.earlier_options import percent_words
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.changes.change_form import ChangeForm, is_of_a_field
from allocation.web.changes.series_scope import (
    SCOPES,
    conflict_words,
    made_words,
    outcome_words,
    price_words,
    scope_of,
    series_patch_of,
)
from allocation.web.parts.times import length_words, moment_words
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import refused_page, tenant_page

PROPOSED = ("classes", "starts")
# So many bookings that start later are named.
MOST_DELAYS = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do, in words, and what the button to make it says."""

    what: str
    price: str
    difference: str
    fee: str
    start: str
    place: str
    risk: str
    blocking: str
    approval: str
    button: str
    hook: str = ""
    can_wait: bool = False
    can_ask: bool = True
    start_by: int | None = None
    strength: str = ""
    lock: str = ""
    moves: str = ""
    conflicts: tuple[str, ...] = ()


@costly("preview")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def change_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Shows the form; `act=look` shows what the change would do, `act=change` makes it.

    `shift` and `grow` in the address are seconds by which a bar was dragged on the timeline; with
    `part` only what that would do is answered, for the timeline itself. `classes` and `starts` are
    fields that a link proposes.
    """
    booking, ctx = access_booking_to_give_back(actor, label), page_context(actor, timezone.now())
    form = ChangeForm.of(booking, ctx.zone)
    drag = None if request.method == "POST" else _drag(request.GET)
    proposed = {name: request.GET[name] for name in PROPOSED if name in request.GET}
    if request.method != "POST" and drag is None and not proposed:
        return _answer(request, booking, ctx, form)
    if drag is None:
        form = form.typed(request.POST.dict() if request.method == "POST" else proposed)
    else:
        form = form.dragged(booking, *drag).scoped(request.GET.get("scope", ""))
    is_whole = booking.series is not None and scope_of(dict(form.values)) is not Scope.THIS
    try:
        if is_whole:
            return _series(request, actor, booking, form, ctx)
        if request.POST.get("act") in ("change", "wait"):
            return _change(request, actor, booking, form, ctx)
        quote = change_quote(
            actor=actor,
            booking=booking,
            patch=form.patch(booking),
            revision=_revision(form),
            now=ctx.now,
        )
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            raise
        return _answer(request, access_booking(actor, label), ctx, form, refusal=refusal)
    return _answer(request, booking, ctx, form, preview=preview_of(quote, ctx))


def _drag(query: QueryDict) -> tuple[int, int] | None:
    """Returns by how many seconds start and length were dragged; None without a drag."""
    texts = (query.get("shift", "0"), query.get("grow", "0"))
    if not all(_SECONDS.fullmatch(text) for text in texts):
        return None
    shift, grow = map(int, texts)
    return (shift, grow) if shift or grow else None


@require_POST
@tenant_page
def change_withdraw_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Withdraws the open change and shows the booking."""
    booking = access_booking_to_change(actor, label)
    change_withdraw(actor=actor, booking=booking, now=timezone.now())
    messages.success(request, f"The change is withdrawn. {booking.label} stays as it is.")
    return HttpResponseRedirect(_address(actor, booking))


@require_POST
@tenant_page
def change_wait_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Asks again for the latest change, which did not fit, so that it waits for room."""
    booking, now = access_booking_to_change(actor, label), timezone.now()
    try:
        change_ask_again(actor=actor, booking=booking, now=now)
    except Refused as refusal:
        return refused_page(request, refusal)
    messages.success(request, f"The change waits for room. Until then {label} stays as it is.")
    return HttpResponseRedirect(_address(actor, booking))


def preview_of(quote: ChangeQuote, ctx: PageContext) -> Preview:
    """Returns what a change would do in words."""
    before, after, option = quote.before, quote.after, quote.option
    currency = after.currency
    at_once = quote.strength is not Strength.STRONGER
    more = money_text(abs(quote.difference), currency)
    sign = "+" if quote.difference > 0 else "−"
    start = "as it is"
    if option is not None:
        start = f"{moment_words(option.starts, ctx.zone, ctx.now)}. {option.sentence}"
    elif quote.until is not None:
        start = f"ends {moment_words(quote.until, ctx.zone, ctx.now)}"
    elif not at_once:
        start = "no start as asked"
    has_start = option is not None or quote.until is not None
    is_full = not at_once and not has_start and bool(after.starts)
    return Preview(
        what=what_words(AskDocument.from_json(after.ask), ctx.labels),
        price=f"{money_text(after.hold_amount, currency)} (now {money_text(before.hold_amount, currency)})",
        difference=f"{sign}{more}" if quote.difference else "no difference",
        fee=fee_words(quote.late_fee, after),
        start=start,
        place=_PLACE[quote.strength],
        risk=f"{percent_words(option.pause_risk)}: {option.pause_basis}"
        if option is not None and option.pause_basis
        else "",
        blocking=quote.blocking,
        approval=f"It needs an approval first, by the rule {', '.join(quote.rules)}." if quote.rules else "",
        hook=_HOOK if quote.asks_hook else "",
        button="Change it" if at_once and not quote.rules else "Ask for the change",
        lock=quote.lock,
        moves=_MOVES_NOBODY if at_once else moves_words(quote.delays),
        can_wait=is_full or (quote.until is not None and bool(quote.blocking)),
        # Expected starts may move for a later end, which its quote does not know.
        can_ask=not is_full,
        start_by=int(option.starts.timestamp()) if option is not None else None,
        strength=option.strength if option is not None else "",
    )


def moves_words(delays: tuple[Delay, ...] | None) -> str:
    """Who starts later for a change: of the own organisation by number, of others by the rule."""
    if delays is None:
        return _MOVES
    if not delays:
        return f"No booking of your organisation starts later. {_MOVES_OTHERS}"
    named = ", ".join(_delay_words(each) for each in delays[:MOST_DELAYS])
    more = len(delays) - MOST_DELAYS
    rest = f" and {more} more of your organisation" if more > 0 else ""
    return f"Starts later for it: {named}{rest}. {_MOVES_OTHERS}"


def _delay_words(delay: Delay) -> str:
    if delay.by is None:
        return f"{delay.label or OF_ANOTHER} (loses its start)"
    return f"{delay.label or OF_ANOTHER} (by {length_words(delay.by.total_seconds())})"


def stays_words(booking: Booking, ctx: PageContext) -> str:
    """What a booking has until its change is decided: `Until then yours stays 10:00–12:00.`"""
    starts, ends = booking.planned_starts, booking.planned_ends
    if starts is None or ends is None:
        return f"Until it is decided {booking.label} stays as it is."
    until = ends.astimezone(ctx.zone)
    is_same_day = starts.astimezone(ctx.zone).date() == until.date()
    last = f"{until:%H:%M}" if is_same_day else moment_words(ends, ctx.zone, ctx.now)
    begins = moment_words(starts, ctx.zone, ctx.now)
    return f"Until it is decided {booking.label} stays {begins} – {last}."


def fee_words(fee: Decimal, terms: Terms) -> str:
    """What giving up GPUs late costs; empty if nothing."""
    if not fee:
        return ""
    notice = length_words(terms.notice_seconds)
    return (
        f"{money_text(fee, terms.currency)}, {terms.late_share} % of the price of GPUs that are "
        f"given up less than {notice} before"
    )


_MOVES_NOBODY = "Nobody else moves."
_MOVES = (
    "Only expected starts behind it in the queue can move. Guaranteed and fixed ones keep their "
    "time, and nobody is paused for it."
)
_MOVES_OTHERS = "Of other organisations only expected starts behind it can move, and nobody is paused for it."
_HOOK = (
    "The policy hook of your organisation decides when you ask: it can give the change another "
    "tier or window, or deny it."
)
# Less than four months.
_SECONDS = re.compile(r"-?[0-9]{1,7}")
_PLACE = {
    Strength.WORD: "Takes effect at once.",
    Strength.WEAKER: "Takes effect at once and keeps its place in the queue.",
    Strength.STRONGER: "Decided in a few seconds at a place in the queue from now on. "
    "Until then, and if it does not fit, the booking keeps what it has.",
}


def _change(
    request: HttpRequest, actor: Actor, booking: Booking, form: ChangeForm, ctx: PageContext
) -> HttpResponse:
    waits = request.POST.get("act") == "wait"
    shown = request.POST.get("quote", "")
    priced = price_lock_read(shown, ctx.now) if shown else None
    patch = replace(form.patch(booking), waits=waits, priced_at=priced)
    made = booking_patch(actor=actor, booking=booking, patch=patch, revision=_revision(form), now=ctx.now)
    if is_change_open(made) and waits:
        said = f"The change waits for room. Until then {made.label} stays as it is."
    elif is_change_open(made):
        said = f"Asked for the change. {stays_words(made, ctx)}"
    else:
        said = f"{made.label} is changed."
    messages.success(request, said)
    return HttpResponseRedirect(_address(actor, booking))


def _series(
    request: HttpRequest, actor: Actor, booking: Booking, form: ChangeForm, ctx: PageContext
) -> HttpResponse:
    """Shows what a change of several dates would do, or makes it."""
    series = access_series_to_change(actor, _reference(booking))
    if booking.revision != _revision(form):
        raise revision_moved(booking)
    patch = series_patch_of(booking, form.patch(booking), dict(form.values))
    facts: dict[str, Any] = {
        "actor": actor,
        "series": series,
        "date": booking,
        "patch": patch,
        "now": ctx.now,
    }
    if request.POST.get("act") != "change":
        quote = series_change_quote(**facts)
        preview = series_preview_of(quote, booking, form.patch(booking), ctx)
        preview = replace(preview, blocking=conflict_words(quote, patch))
        return _answer(request, booking, ctx, form, preview=preview)
    answers = series_patch(**facts, tag=None)
    messages.success(request, made_words(answers))
    address = f"/t/{actor.tenant_slug}/series/{_reference(answers[-1].booking)}"
    return HttpResponseRedirect(address)


def _reference(booking: Booking) -> str:
    return f"sr_{booking.series_id.hex}" if booking.series_id is not None else ""


def series_preview_of(quote: SeriesQuote, booking: Booking, patch: Patch, ctx: PageContext) -> Preview:
    """Returns what a change of several dates would do in words."""
    price, difference = price_words(quote)
    is_asked = "asked" in quote.outcomes
    return Preview(
        what=what_words(patch.ask or AskDocument.from_json(booking.ask), ctx.labels),
        price=price,
        difference=difference,
        fee=fee_words(quote.fee, terms_of(booking)),
        start=outcome_words(quote.outcomes),
        place=_PLACE[Strength.STRONGER if is_asked else Strength.WEAKER],
        risk="",
        blocking="",
        approval=f"It needs an approval first, by the rule {', '.join(quote.rules)}." if quote.rules else "",
        button="Ask for the changes" if is_asked else "Change them",
        moves=_MOVES if is_asked else _MOVES_NOBODY,
        conflicts=tuple(
            f"{moment_words(each.booking.starts or each.booking.not_before, ctx.zone, ctx.now)}, "
            f"{each.booking.label}: {each.sentence}"
            for each in quote.conflicts
        ),
    )


def _revision(form: ChangeForm) -> int:
    text = form.values["revision"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid("revision_moved", refusal_text("form_stale"), "revision")
    return int(text)


def _answer(
    request: HttpRequest,
    booking: Booking,
    ctx: PageContext,
    form: ChangeForm,
    *,
    preview: Preview | None = None,
    refusal: Refused | None = None,
) -> HttpResponse:
    at_field = refusal is not None and is_of_a_field(refusal, form)
    context: dict[str, Any] = {
        "booking": booking,
        "what": what_words(AskDocument.from_json(booking.ask), ctx.labels),
        "price": money_text(booking.hold_amount, booking.currency),
        "fields": form.fields(refusal),
        "revision": form.values["revision"],
        "is_begun": form.is_begun,
        "preview": preview,
        "refusal": None if at_field else refusal,
        "more": refusal if refusal is not None and refusal.more else None,
        "suggestions": _suggestions(refusal, ctx),
        "conflicts": _conflicts(refusal, ctx),
    }
    if "part" in request.GET:
        values = dict(form.values)
        context |= {"starts": values["starts"], "length": values["length"], "refusal": refusal}
        if form.is_of_series:
            context |= {"scopes": SCOPES, "scope": scope_of(values).value}
        return render(request, "allocation/change/drag.html", context)
    status = 200 if refusal is None else 409
    return render(request, "allocation/change.html", context, status=status)


def _conflicts(refusal: Refused | None, ctx: PageContext) -> list[str]:
    """Each date that can't change, of a refusal for several dates."""
    rows: Any = refusal.numbers.get("conflicts", ()) if refusal is not None else ()
    return [
        f"{moment_words(datetime.fromisoformat(each['starts']), ctx.zone, ctx.now)}, {each['number']}: "
        f"{each['sentence']}"
        for each in rows
    ]


def _suggestions(refusal: Refused | None, ctx: PageContext) -> list[str]:
    """What would work, of a refusal that says so."""
    found = []
    for each in refusal.alternatives if refusal is not None else ():
        if "name" in each:
            found.append(f"The tier {each['name']}.")
        if "count" in each:
            found.append(
                f"{each['count']} of {each['gpu_class']}."
                if each.get("gpu_class")
                else f"A number of {each['count']}."
            )
        if "duration" in each:
            found.append(f"A length of {length_words(int(each['duration']))}.")
        for name, words in (("starts", "A start at"), ("deadline", "An end by")):
            if name in each:
                at = datetime.fromisoformat(str(each[name]))
                found.append(f"{words} {moment_words(at, ctx.zone, ctx.now)}.")
        if "until" in each:
            until = datetime.fromisoformat(str(each["until"]))
            found.append(f"An end by {moment_words(until, ctx.zone, ctx.now)}.")
    return found


def _address(actor: Actor, booking: Booking) -> str:
    return f"/t/{actor.tenant_slug}/bookings/{booking.label}"


_BOOKING = "t/<slug:tenant>/bookings/<str:label>/change"
urlpatterns = [
    path(_BOOKING, change_page, name="booking-change"),
    path(f"{_BOOKING}/wait", change_wait_page, name="booking-change-wait"),
    path(f"{_BOOKING}/withdraw", change_withdraw_page, name="booking-change-withdraw"),
]
