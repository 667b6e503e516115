"""The page of a booking and the actions on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.access import access_booking, may_change, may_give_back, may_see_approval
from allocation.models import Booking, BookingEvent, Pause
from allocation.points import BOOKING_CARDS
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.queries.bookings.bookings import (
    NodePlace,
    Slots,
    history_of,
    moved_starts_of,
    node_places_of,
)
from allocation.queries.bookings.pauses import pauses_of
from allocation.queries.bookings.planned_pauses import PlannedPause, planned_pauses
from allocation.queries.bookings.site_bookings import RELEASE_ASKED
from allocation.queries.decisions.seen import labels_seen, pauses_seen
from allocation.queries.fleet.catalogue import ask_units
from allocation.queries.fleet.portal_modes import freeze_reason
from allocation.queries.fleet.stops import stop_reason
from allocation.rules.ask import AskDocument
from allocation.rules.states import BEFORE_RUN, RUNNING, State
from allocation.services.bookings.change.sooner import is_sooner_possible
from allocation.services.quotes.changes import later_ends
from allocation.services.quotes.why_waiting import WhyWaiting, waits_seen, why_waiting
from allocation.services.record.costs import paid_for
from allocation.web.bookings.dependencies import parents_card
from allocation.web.bookings.earlier_options import outlook_of
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.page import pause_context
from allocation.web.bookings.state_words import state_words
from allocation.web.bookings.summary import ExtendChoice, booking_summary, booking_what, commands_of
from allocation.web.parts.approvals import approval_line
from allocation.web.parts.changes import shown_change, undo_lines
from allocation.web.parts.labels import labels_context
from allocation.web.parts.planned_start import (
    MovedLine,
    ahead_lines,
    change_lines,
    holder_lines,
    moved_lines,
)
from allocation.web.parts.times import moment_words
from allocation.web.parts.use_chart import use_card
from allocation.words.amounts import unit_of
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import GpuClass
from tenants.platform.costly import costly
from tenants.platform.errors import Refused
from tenants.web.frame import tenant_page, zone_of

CHANGEABLE = (*BEFORE_RUN, *RUNNING, State.PAUSED, State.WAITLISTED)
WAITS_FOR_PLACE = (State.REQUESTED, State.QUEUED)
PLANNED = (*WAITS_FOR_PLACE, State.PAUSED)
HELD_UP = (State.PAUSING, State.PAUSED)
TURNED_DOWN = (State.REFUSED, State.EXPIRED)


def page_context(actor: Actor, now: datetime) -> PageContext:
    """Returns what the pages of bookings need to render text for the actor."""
    return PageContext(
        now=now,
        zone=zone_of(actor.time_zone),
        base=f"/t/{actor.tenant_slug}/",
        labels=dict(GpuClass.objects.values_list("slug", "label")),
    )


def booking_rows(bookings: Sequence[Booking], ctx: PageContext) -> list[dict[str, Any]]:
    """Returns rows of a list, with estimates of those that wait for others and planned pauses."""
    ctx = replace(ctx, estimates=estimated_starts(bookings), planned_pauses=planned_pauses(bookings, ctx.now))
    return [booking_row(each, ctx) for each in bookings]


def booking_row(booking: Booking, ctx: PageContext) -> dict[str, Any]:
    """Returns one booking as a row of a list."""
    return {
        "booking": booking,
        "href": f"{ctx.base}bookings/{booking.label}",
        "title": booking.name or booking.label,
        "what": booking_what(booking, ctx.labels),
        "when": state_words(booking, ctx),
        "cost": money_text(
            paid_for(booking) if booking.charged is not None else booking.hold_amount - booking.settled,
            booking.currency,
        ),
        "is_final": booking.charged is not None,
    }


@costly("preview")
@require_safe
@tenant_page
def booking_page(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Shows one booking: state, reasons, placement, utilisation, cost, history and actions.

    `part=body` returns the page without its frame, `part=use` the utilisation card; `use=` selects
    its time span.
    """
    try:
        booking = access_booking(actor, label)
    except Refused as refusal:
        if refusal.code != "array_not_booking":
            raise
        return HttpResponseRedirect(f"/t/{actor.tenant_slug}/arrays/{label}")
    if request.GET.get("part") == "use":
        use = _use(request, booking, page_context(actor, timezone.now()))
        return render(request, "allocation/use.html", {"booking": booking, "use": use})
    return booking_answer(request, actor, booking)


def booking_answer(
    request: HttpRequest, actor: Actor, booking: Booking, refusal: Refused | None = None
) -> HttpResponse:
    """Returns the page of the booking, with the refusal of an act on it."""
    # First: the page takes an event that it shows as a sign that it shows what came with it.
    events = history_of(booking)
    waits = waits_seen(actor, why_waiting(booking, timezone.now()))
    may, may_end = may_change(actor, booking), may_give_back(actor, booking)
    ctx = _context_of(actor, booking, waits, may_change=may)
    places = node_places_of(booking)
    summary = booking_summary(booking, ctx, may_change=may, may_give_back=may_end)
    approval = approval_line(booking, ctx.zone, ctx.now)
    context = {
        "booking": booking,
        "title": booking.name or booking.label,
        "summary": summary,
        "places": place_cards(places, booking.ask),
        "where": where_words(places),
        "titles": titles_of(booking),
        "commands": commands_of(booking, places),
        "events": events,
        "release_asked": _release_asked(events) if summary.give_back else None,
        "refusal": refusal,
        "possible": _possible(booking, refusal, ctx),
        "approval": approval,
        "may_open_approval": approval is not None and may_see_approval(actor, approval[0], ctx.now),
        "is_own": booking.owner_id == actor.user_id,
        "use": _use(request, booking, ctx),
        "cards": [card for of in BOOKING_CARDS if (card := of(actor, booking, ctx.now))],
        **pause_context(booking, ctx, may_change=may),
        "moved_starts": _moved_lines(actor, booking, ctx),
        "ahead": ahead_lines(waits.ahead),
        "holders": holder_lines(waits.holders, ctx.zone, ctx.now),
        "changes": change_lines(waits.changes, ctx.zone, ctx.now),
        "outlook": outlook_of(actor, booking, ctx.labels, ctx.zone, ctx.now),
        "may_change": may,
        "can_wait": may and _can_wait(booking, ctx.now),
        "can_be_sooner": may and is_sooner_possible(booking, ctx.now),
        "can_change": may_end and booking.state in CHANGEABLE,
        "change": shown_change(booking, ctx.zone, ctx.now),
        "parents": parents_card(actor, booking, ctx),
        "undo": undo_lines(booking, ctx.zone, ctx.now) if may else [],
        **labels_context(booking.labels, booking.external_ref),
    }
    name = "booking_body" if request.GET.get("part") == "body" else "booking"
    return render(request, f"allocation/{name}.html", context, status=200 if refusal is None else 409)


def _moved_lines(actor: Actor, booking: Booking, ctx: PageContext) -> list[MovedLine]:
    """Returns the receipts of moved starts; a claimant that the actor may not see has no number."""
    lines = moved_lines(moved_starts_of(booking), ctx.zone, ctx.now)
    seen = labels_seen(actor, (each.claimant for each in lines))
    return [replace(each, claimant=each.claimant if each.claimant in seen else "") for each in lines]


def _context_of(actor: Actor, booking: Booking, waits: WhyWaiting, *, may_change: bool) -> PageContext:
    """Returns what the page knows of the booking: units, pauses, its queue, its later ends."""
    ctx = page_context(actor, timezone.now())
    ctx = context_with(ctx, booking, pauses_seen(actor, pauses_of(booking)), waits)
    ctx = replace(ctx, planned_pauses=_pauses_to_come(actor, booking, ctx.now))
    if not may_change:
        return ctx
    later = later_ends(actor=actor, booking=booking, now=ctx.now)
    return replace(ctx, ends=later.ends, no_later=later.limit)


def _pauses_to_come(actor: Actor, booking: Booking, now: datetime) -> Mapping[UUID, PlannedPause]:
    """Returns the planned pause; a booking that the actor may not see has no number in it."""
    found = planned_pauses([booking], now)
    seen = labels_seen(actor, (each.label for each in found.values()))
    return {key: replace(each, label=each.label * (each.label in seen)) for key, each in found.items()}


def context_with(
    ctx: PageContext, booking: Booking, pauses: tuple[Pause, ...], waits: WhyWaiting
) -> PageContext:
    """Adds what every page of the booking knows of it: units, pauses, stops, its place in the queue."""
    return replace(
        ctx,
        units=_units(booking),
        pauses=pauses,
        frozen=freeze_reason(booking, ctx.now) or stop_reason(booking, ctx.now),
        ahead=sum(each.count for each in waits.ahead),
        estimates=estimated_starts([booking]),
    )


def _release_asked(events: Sequence[BookingEvent]) -> BookingEvent | None:
    """The last request of an operator to release the booking; events are newest first."""
    return next((event for event in events if event.kind == RELEASE_ASKED), None)


def _can_wait(booking: Booking, now: datetime) -> bool:
    """Returns whether a refused window is still to come, so that it can be waited for."""
    starts, is_refused = booking.starts, booking.state == State.REFUSED
    is_alone = booking.series_id is None and booking.array_id is None
    return is_refused and is_alone and starts is not None and starts > now


def _use(request: HttpRequest, booking: Booking, ctx: PageContext) -> dict[str, Any] | None:
    base = f"{ctx.base}bookings/{booking.label}"
    span = request.GET.get("use", "")
    return use_card(booking, span=span, now=ctx.now, zone=ctx.zone, base=base)


def _possible(booking: Booking, refusal: Refused | None, ctx: PageContext) -> ExtendChoice | None:
    """Returns the longest extension that is possible after a refused one."""
    untils = [each["until"] for each in refusal.alternatives if "until" in each] if refusal else []
    if not untils or booking.planned_ends is None:
        return None
    until = datetime.fromisoformat(untils[0])
    seconds = int((until - booking.planned_ends).total_seconds())
    words = f"Extend until {moment_words(until, ctx.zone, ctx.now)} instead"
    return ExtendChoice(seconds, words) if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Titles:
    """The headings that depend on the state, and the text shown without a place."""

    why: str
    sooner: str
    place: str
    no_place: str
    time: str


@dataclass(frozen=True, slots=True)
class PlaceCard:
    """A node of the booking.

    `words` describes its drawing; `host_resources` names the requested host cores and memory, and
    is empty when none were requested.
    """

    place: NodePlace
    words: str
    host_resources: str


def titles_of(booking: Booking) -> Titles:
    """Returns the headings for a booking in its state."""
    state = State(booking.state)
    no_place = "It was never placed."
    devices = f"{unit_of(booking.ask)}s"
    if state == State.REQUESTED:
        no_place = "Being planned."
    elif state == State.AWAITING_APPROVAL:
        no_place = "None before the approval."
    elif state in PLANNED:
        no_place = "None yet."
    elif booking.first_planned_start is not None:
        no_place = "It gave up its place before it started."
    return Titles(
        why="Why it was refused" if state in TURNED_DOWN else "Why it is waiting",
        sooner="Earlier options" if state in WAITS_FOR_PLACE else "Alternatives",
        place=f"Planned {devices}" if state in PLANNED else f"{devices[0].upper()}{devices[1:]}",
        no_place=no_place,
        time="Resumes" if state in HELD_UP else "When",
    )


def place_cards(places: Iterable[NodePlace], ask: Mapping[str, Any]) -> list[PlaceCard]:
    """Returns a card for each node; `ask` is the booking's request."""
    return [
        PlaceCard(
            place,
            f"On {place.name}: {_devices_words(place, is_host=bool(ask.get('host')))}",
            _host_resources(ask, place.limits),
        )
        for place in places
    ]


def where_words(places: Sequence[NodePlace]) -> str:
    """Returns `on n1, n2`, or nothing without a place."""
    return f"on {', '.join(place.name for place in places)}" if places else ""


def _devices_words(place: NodePlace, *, is_host: bool) -> str:
    if is_host:
        return f"cores {', '.join(str(gpu.index) for gpu in place.gpus)}"
    return "; ".join(_gpu_words(gpu) for gpu in place.gpus)


def _gpu_words(gpu: Slots) -> str:
    return f"GPU {gpu.index}" if gpu.whole else f"GPU {gpu.index}, slice {gpu.profile}"


def _host_resources(ask: Mapping[str, Any], limits: str) -> str:
    cores, memory = ask.get("cores", 0), ask.get("memory", 0)
    if ask.get("host"):
        return f"{memory} GiB of memory per core, {memory * ask['count']} GiB together: {limits}."
    parts = [f"{cores} host cores"] * bool(cores) + [f"{memory} GiB of memory"] * bool(memory)
    return f"{' and '.join(parts)} per GPU: {limits}." if parts else ""


def _units(booking: Booking) -> int:
    """Returns the units that a booking with borrowed units uses, of all its groups; else 0."""
    if not booking.borrowed_units:
        return 0
    units = ask_units(AskDocument.from_json(booking.ask))
    return sum(units.values()) if booking.ask.get("groups") else units.get(booking.planned_class, 0)


BOOKING = "t/<slug:tenant>/bookings/<str:label>"
urlpatterns = [path(BOOKING, booking_page, name="booking")]
