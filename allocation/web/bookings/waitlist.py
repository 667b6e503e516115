"""The waiting list: what the reader waits for, and places that are offered to them.

A form asks for an offer of a place in one of several windows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from allocation.access import access_booking_to_change
from allocation.models import Booking, BookingChange, WaitEntry, WaitMode, WaitOffer
from allocation.queries.bookings.timelines.waiting import (
    changes_waiting,
    entries_visible,
    own_offers,
)
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.rules.waiting import MOST_ENTRIES
from allocation.services.bookings.change.waiting import entry_wake
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.request_text import project_named, request_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.wait_entries import Windows
from allocation.services.bookings.waiting.groups import entries_exclude
from allocation.services.bookings.waiting.offers import offer_accept, offer_cost, offer_decline
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.changes import wish_lines
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.web.frame import refused_page, tenant_page, zone_of

WINDOWS = (1, 2, 3)
_TIER = "standard"


@dataclass(frozen=True, slots=True)
class WindowFields:
    """One window as it was typed."""

    number: int
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class OfferForm:
    """The form with what was typed."""

    text: str
    project: str
    projects: tuple[tuple[str, str], ...]
    windows: tuple[WindowFields, ...]

    @classmethod
    def of(cls, actor: Actor, typed: Mapping[str, str]) -> "OfferForm":
        """The form of the actor's projects."""
        rows = Project.objects.filter(id__in=actor.roles).order_by("name")
        windows = tuple(
            WindowFields(n, typed.get(f"since_{n}", ""), typed.get(f"until_{n}", "")) for n in WINDOWS
        )
        projects = tuple(rows.values_list("slug", "name"))
        return cls(typed.get("request", ""), typed.get("project", ""), projects, windows)


def offer_ask(actor: Actor, form: QueryDict) -> str:
    """Puts a booking on the list that is offered in one of the windows. Returns what to say.

    Raises:
        Refused: the request or a window can't be read, or as `booking_request`.
    """
    now, text = timezone.now(), form.get("request", "").strip()
    project = form.get("project", "")
    named = project_named(actor, project)
    ask, tier = request_read(text, project=named, zone=actor.time_zone, now=now)
    wanted = BookingRequest(
        project=project,
        tier=tier or _TIER,
        ask=ask,
        zone=actor.time_zone,
        request_text=text,
        waitlist=WaitMode.OFFER,
        windows=_windows(actor, form),
    )
    made = booking_request(actor=actor, request=wanted, now=now, booking_id=uuid4())
    return f"{made.label} is offered to you when one of its windows has room. Nothing is held."


def _windows(actor: Actor, form: QueryDict) -> Windows:
    found = []
    for number in WINDOWS:
        since, until = (form.get(f"{name}_{number}", "").strip() for name in ("since", "until"))
        if not since and not until:
            continue
        begins, ends = (
            _time(actor, text, f"{name}_{number}") for name, text in (("since", since), ("until", until))
        )
        if ends <= begins:
            raise invalid("bad_windows", refusal_text("window_backward"), f"until_{number}")
        found.append((begins, ends))
    if not found:
        raise invalid("bad_windows", refusal_text("window_missing"), "since_1")
    return tuple(found)


def _time(actor: Actor, text: str, param: str) -> datetime:
    try:
        zone = zone_of(actor.time_zone)
        return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid("not_a_time", refusal_text("time_example"), param) from None


MOST_WINDOWS = 3
MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class OfferCard:
    """An open offer, counting down."""

    id: str
    href: str
    title: str
    what: str
    when: str
    cost: str
    until: str
    left: int
    whole: int

    @property
    def left_text(self) -> str:
        """The time left in minutes and seconds."""
        return f"{self.left // 60}:{self.left % 60:02}"


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A line of the list."""

    entry: WaitEntry
    href: str
    title: str
    what: str
    windows: tuple[str, ...]
    more: int
    how: str
    cost: str
    until: str
    only_one: str = ""


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change that waits for room."""

    booking: Booking
    differences: tuple[str, ...]
    cost: str
    until: str


def offer_cards(actor: Actor, ctx: PageContext) -> list[OfferCard]:
    """Returns the reader's open offers, the most urgent first."""
    return [_card(offer, ctx) for offer in own_offers(actor) if offer.until > ctx.now]


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def offers_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the waiting list and the open offers, and answers an offer."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {**_acts(actor), "ask": partial(offer_ask, actor)})
        if refusal is None:
            return redirect("waitlist", tenant=actor.tenant_slug)
    ctx = page_context(actor, timezone.now())
    rows = entries_visible(actor).select_related("booking").order_by("until", "id")
    entries = list(rows[:MOST_SHOWN])
    groups = _groups(entries)
    context = {
        "offers": offer_cards(actor, ctx),
        "entries": [_row(entry, groups, ctx) for entry in entries],
        "own": sum(entry.owner_id == actor.user_id for entry in entries),
        "actor_id": actor.user_id,
        "changes": [_change_row(each, ctx) for each in changes_waiting(actor)[:MOST_SHOWN]],
        "refusal": refusal,
        "ask": OfferForm.of(actor, request.POST if refusal is not None else {}),
    }
    status = 409 if refusal is not None else 200
    return render(request, "allocation/waitlist/page.html", context, status=status)


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


def _acts(actor: Actor) -> dict[str, FormAction]:
    return {
        "accept": lambda form: _accept(actor, form),
        "decline": lambda form: _decline(actor, form),
        "wake": lambda form: _wake(actor, form),
        "exclude": lambda form: _exclude(actor, form),
    }


def _accept(actor: Actor, form: QueryDict) -> str:
    offer = offer_accept(actor=actor, offer_id=id_read(form, "offer", "offer"), now=timezone.now())
    return f"Accepted: {offer.booking.label} is scheduled."


def _decline(actor: Actor, form: QueryDict) -> str:
    offer = offer_decline(actor=actor, offer_id=id_read(form, "offer", "offer"), now=timezone.now())
    return f"Declined. The place of {offer.booking.label} goes to the next entry."


def _wake(actor: Actor, form: QueryDict) -> str:
    entry = entry_wake(actor=actor, entry_id=id_read(form, "entry", "entry"), now=timezone.now())
    return f"{entry.booking.label} gets offers again."


def _exclude(actor: Actor, form: QueryDict) -> str:
    chosen = form.getlist("entries")[: MOST_ENTRIES + 1]
    if not chosen:
        raise invalid("no_entries", refusal_text("no_entries"), "entries")
    ids = [id_read(QueryDict(urlencode({"entry": each})), "entry", "entry") for each in chosen]
    rows = entries_exclude(actor=actor, entry_ids=ids, now=timezone.now())
    if len(rows) == 1:
        return "It is booked whatever happens to the others."
    return f"The first of these {len(rows)} that gets a place cancels the others."


def _card(offer: WaitOffer, ctx: PageContext) -> OfferCard:
    booking = offer.booking
    left = int((offer.until - ctx.now).total_seconds())
    return OfferCard(
        id=str(offer.id),
        href=f"{ctx.base}bookings/{booking.label}",
        title=booking.name or booking.label,
        what=what_words(AskDocument.from_json(booking.ask), ctx.labels),
        when=_span((offer.starts, offer.ends), ctx),
        cost=money_text(offer_cost(booking, offer.starts), booking.currency),
        until=moment_words(offer.until, ctx.zone, ctx.now),
        left=max(0, left),
        whole=max(1, int((offer.until - offer.made_at).total_seconds())),
    )


def _row(entry: WaitEntry, groups: Mapping[UUID, Sequence[str]], ctx: PageContext) -> EntryRow:
    booking = entry.booking
    group = groups.get(entry.any_of, ()) if entry.any_of else ()
    return EntryRow(
        entry=entry,
        href=f"{ctx.base}bookings/{booking.label}",
        title=booking.name or booking.label,
        what=what_words(AskDocument.from_json(booking.ask), ctx.labels),
        windows=tuple(_span(each, ctx) for each in entry.times[:MOST_WINDOWS]),
        more=max(0, len(entry.windows) - MOST_WINDOWS),
        how=_how(entry, ctx),
        cost=money_text(entry.cost, booking.currency),
        until=moment_words(entry.until, ctx.zone, ctx.now),
        only_one=f"Only one of {', '.join(group)}" if len(group) > 1 else "",
    )


def _groups(entries: Sequence[WaitEntry]) -> dict[UUID, list[str]]:
    """The numbers of the bookings of each group."""
    found: dict[UUID, list[str]] = defaultdict(list)
    for entry in entries:
        if entry.any_of is not None:
            found[entry.any_of].append(entry.booking.label)
    return found


def _change_row(change: BookingChange, ctx: PageContext) -> ChangeRow:
    until = change.keep_trying_until or ctx.now
    return ChangeRow(
        booking=change.booking,
        differences=tuple(wish_lines(change, ctx.zone, ctx.now)),
        cost=money_text(change.delta_held, change.booking.currency),
        until=moment_words(until, ctx.zone, ctx.now),
    )


def _how(entry: WaitEntry, ctx: PageContext) -> str:
    if entry.mode == WaitMode.AUTO:
        return "Booked when there is room; its money is held"
    if entry.is_dormant:
        return "No more offers: two had no answer"
    if entry.quiet_until is not None and entry.quiet_until > ctx.now:
        return f"Offers again from {moment_words(entry.quiet_until, ctx.zone, ctx.now)}"
    return "Offered when there is room; nothing is held"


def _span(window: tuple[datetime, datetime], ctx: PageContext) -> str:
    since, until = (moment_words(each, ctx.zone, ctx.now) for each in window)
    return f"{since} to {until}"


urlpatterns = [
    path("t/<slug:tenant>/offers", offers_page, name="waitlist"),
    path("t/<slug:tenant>/bookings/<str:label>/wait", booking_wait, name="booking-wait"),
]
