"""The page of the waiting list: what the reader waits for, and places that are offered to them.

A form asks for an offer of a place in one of several windows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST

from allocation.access import access_booking_to_change
from allocation.features.waiting_list.entries import OfferAskTerms, entry_wake, offer_ask
from allocation.features.waiting_list.groups import ExcludeTerms, entries_exclude
from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.features.waiting_list.offers import offer_accept, offer_cost, offer_decline
from allocation.features.waiting_list.queries import changes_waiting, entries_visible, own_offers
from allocation.models import BookingChange, WaitMode
from allocation.points import BookingCard
from allocation.rules.ask import AskDocument
from allocation.rules.changes import MOST_WAITING
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.requests import BookingRequest
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.changes import wish_lines
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import id_text_read
from tenants.web.form_page import Act, form_page
from tenants.web.frame import refused_page, tenant_page

MOST_SHOWN = 200


def home_card(actor: Actor, now: datetime) -> BookingCard:
    """Returns the reader's open offers for the start page, where they also appear while it is open."""
    return BookingCard("waiting_list/home.html", {"offers": _offers(actor, now)})


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    """The open offers, the list, and changes that wait for room."""
    ctx = page_context(actor, now)
    rows = entries_visible(actor).select_related("booking").order_by("until", "id")
    entries = list(rows[:MOST_SHOWN])
    groups = _groups(entries)
    return {
        "offers": _offers(actor, now),
        "entries": [_row(entry, groups, ctx) for entry in entries],
        "own": sum(entry.owner_id == actor.user_id for entry in entries),
        "actor_id": actor.user_id,
        "changes": [_change_row(each, ctx) for each in changes_waiting(actor)[:MOST_SHOWN]],
    }


@require_POST
@tenant_page
def booking_wait(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Books a refused window again, so that it waits for room, or for an offer of it."""
    old = access_booking_to_change(actor, label)
    is_offered = request.POST.get("how") == "offer"
    wanted = BookingRequest(
        project=old.project.slug,
        tier=old.tier_id,
        ask=AskDocument.from_json(old.ask),
        name=old.name,
        zone=old.zone,
        request_text=old.request_text,
        campaign=old.campaign.slug if old.campaign else "",
        labels=old.labels,
        external_ref=old.external_ref,
        waitlist=WaitMode.OFFER if is_offered else WaitMode.AUTO,
    )
    if old.state != State.REFUSED:
        sentence = refusal_text("not_refused", label=old.label)
        return refused_page(request, Refused("not_refused", sentence))
    try:
        made = booking_request(actor=actor, request=wanted, now=timezone.now(), booking_id=uuid4())
    except Refused as refusal:
        return refused_page(request, refusal)
    said = "is offered to you" if is_offered else "is booked"
    messages.success(request, f"{made.label} waits for the window and {said} if room frees.")
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{made.label}")


def _exclude(*, actor: Actor, terms: ExcludeTerms, now: datetime) -> list[WaitEntry]:
    """Those that are ticked, whose ids a form has as texts."""
    chosen = terms.entries[: MOST_WAITING + 1]
    ids = [id_text_read(str(each), "entry", "entry") for each in chosen]
    return entries_exclude(actor=actor, terms=replace(terms, entries=ids), now=now)


def _excluded(rows: Sequence[WaitEntry]) -> str:
    if len(rows) == 1:
        return "It is booked whatever happens to the others."
    return f"The first of these {len(rows)} that gets a place cancels the others."


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(id__in=actor.roles).order_by("name")
    return list(rows.values_list("slug", "name"))


def _offers(actor: Actor, now: datetime) -> list[dict[str, Any]]:
    """The reader's open offers, the most urgent first."""
    offers = [offer for offer in own_offers(actor) if offer.until > now]
    ctx = page_context(actor, now) if offers else None
    return [_offer(offer, ctx) for offer in offers if ctx is not None]


def _offer(offer: WaitOffer, ctx: PageContext) -> dict[str, Any]:
    booking, left = offer.booking, int((offer.until - ctx.now).total_seconds())
    return {
        "offer": offer,
        "now": ctx.now,
        "what": what_words(AskDocument.from_json(booking.ask), ctx.labels),
        "cost": money_text(offer_cost(booking, offer.starts), booking.currency),
        "left": left,
        "left_text": f"{left // 60}:{left % 60:02}",
        "whole": max(1, int((offer.until - offer.made_at).total_seconds())),
    }


def _row(entry: WaitEntry, groups: Mapping[UUID, Sequence[str]], ctx: PageContext) -> dict[str, Any]:
    group = groups.get(entry.any_of, ()) if entry.any_of else ()
    return {
        "entry": entry,
        "what": what_words(AskDocument.from_json(entry.booking.ask), ctx.labels),
        "how": _how(entry, ctx),
        "cost": money_text(entry.cost, entry.booking.currency),
        "only_one": f"Only one of {', '.join(group)}" if len(group) > 1 else "",
    }


def _groups(entries: Sequence[WaitEntry]) -> dict[UUID, list[str]]:
    """The numbers of the bookings of each group."""
    found: dict[UUID, list[str]] = defaultdict(list)
    for entry in entries:
        if entry.any_of is not None:
            found[entry.any_of].append(entry.booking.label)
    return found


def _change_row(change: BookingChange, ctx: PageContext) -> dict[str, Any]:
    return {
        "change": change,
        "differences": wish_lines(change, ctx.zone, ctx.now),
        "cost": money_text(change.delta_held, change.booking.currency),
    }


def _how(entry: WaitEntry, ctx: PageContext) -> str:
    if entry.mode == WaitMode.AUTO:
        return "Booked when there is room; its money is held"
    if entry.is_dormant:
        return "No more offers: two had no answer"
    if entry.quiet_until is not None and entry.quiet_until > ctx.now:
        return f"Offers again from {moment_words(entry.quiet_until, ctx.zone, ctx.now)}"
    return "Offered when there is room; nothing is held"


urlpatterns = [
    form_page(
        "offers",
        "waitlist",
        "waiting_list/page.html",
        _shown,
        Act("accept", offer_accept, "Accepted: {row.booking.label} is scheduled.", key="offer"),
        Act(
            "decline",
            offer_decline,
            "Declined. The place of {row.booking.label} goes to the next entry.",
            key="offer",
        ),
        Act("wake", entry_wake, "{row.booking.label} gets offers again.", key="entry"),
        Act("exclude", _exclude, _excluded, terms=ExcludeTerms, choices={"entries": lambda _: ()}),
        Act(
            "ask",
            offer_ask,
            "{row.label} is offered to you when one of its windows has room. Nothing is held.",
            terms=OfferAskTerms,
            choices={"project": _projects},
        ),
    ),
    path("t/<slug:tenant>/bookings/<str:label>/wait", booking_wait, name="booking-wait"),
]
