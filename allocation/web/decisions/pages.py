"""A decision as a page: the bookings that it changed, the reasons, and the proof by replay."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from allocation.models import Booking, BookingEvent
from allocation.queries.bookings.holders import holders_of
from allocation.queries.decisions.decisions import (
    ChangedBooking,
    DecisionFacts,
    changed_bookings,
    decision_changes,
    decision_facts,
    decisions_latest,
    replay_latest,
)
from allocation.queries.decisions.seen import holders_seen
from allocation.services.decide.replays import replay_by_operator, replay_request
from allocation.web.parts.planned_start import holder_lines, moved_lines
from allocation.web.parts.state_pills import state_pill
from allocation.web.parts.times import moment_words
from allocation.words.reasons import sentence_for
from tenants.access import Actor
from tenants.models import Tenant, User
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import SHOWN_ON_PAGE
from tenants.platform.text import whole_number
from tenants.platform.wall import tenant_tx
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, tenant_page

HOLDERS_SHOWN = 20
"""Bookings of a page for which the bookings in their way are looked up."""


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, and when it ends; empty if that is not known."""

    sentence: str
    frees: str


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A booking of the decision. `holders` are the bookings in its way, with their ends;
    `is_latest`: no later decision has planned it."""

    booking: Booking
    tenant: Tenant
    href: str
    pill: SafeString
    events: tuple[BookingEvent, ...]
    moved: str
    reasons: tuple[Why, ...]
    holders: tuple[str, ...]
    is_latest: bool


def decision_lines(
    changed: Sequence[ChangedBooking],
    number: int,
    zone: tzinfo,
    now: datetime,
    actor: Actor | None,
) -> Iterator[DecisionLine]:
    """Yields the lines. For an operator (no actor) each is read as its tenant reads it."""
    left = HOLDERS_SHOWN
    for each in changed:
        booking = each.booking
        is_latest = booking.decision_id == number
        holders: tuple[str, ...] = ()
        if is_latest and booking.planned_places and left:
            left -= 1
            with _tenant_of(booking, is_operator=actor is None):
                rows = tuple(holders_of(booking, now))
                rows = rows if actor is None else holders_seen(actor, rows)
                holders = tuple(holder_lines(rows, zone, now))
        yield DecisionLine(
            booking=booking,
            tenant=booking.tenant,
            href=f"/t/{booking.tenant.slug}/bookings/{booking.label}",
            pill=state_pill(booking.state),
            events=each.events,
            moved=moved_lines([each.moved], zone, now)[0].text if each.moved else "",
            reasons=tuple(_reasons(each, zone, now, is_latest=is_latest)),
            holders=holders,
            is_latest=is_latest,
        )


def _tenant_of(booking: Booking, *, is_operator: bool) -> AbstractContextManager[None]:
    return tenant_tx(booking.tenant_id) if is_operator else nullcontext()


def _reasons(
    changed: ChangedBooking,
    zone: tzinfo,
    now: datetime,
    *,
    is_latest: bool,
) -> Iterator[Why]:
    """Yields the receipt's reason, then those of the booking if no later decision replaced them."""
    said = set()
    if changed.moved is not None:
        said.add(changed.moved.sentence)
        yield Why(changed.moved.sentence, "")
    for stored in changed.booking.reasons if is_latest else ():
        sentence = sentence_for(changed.booking.ask, stored)
        if sentence not in said:
            said.add(sentence)
            yield Why(sentence, _frees(stored, zone, now))


def _frees(stored: dict[str, Any], zone: tzinfo, now: datetime) -> str:
    frees_at = stored.get("frees_at")
    if not frees_at:
        return ""
    return f"until {moment_words(datetime.fromisoformat(frees_at), zone, now)}"


SHOWN = 25
NAMED = 3
"""Bookings that a row of the list names."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision with what it changed of the reader's first bookings; `more` are not shown."""

    facts: DecisionFacts
    events: tuple[BookingEvent, ...]
    more: int


@require_GET
@tenant_page
def decisions(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Lists the decisions that changed bookings of the reader; `before` pages."""
    before = whole_number(request.GET.get("before", ""))
    found = decisions_latest(actor, most=SHOWN + 1, before=before)
    changes = decision_changes(actor, [number for number, _ in found[:SHOWN]])
    rows = [
        DecisionRow(facts, tuple(changes[number][:NAMED]), max(0, count - NAMED))
        for number, count in found[:SHOWN]
        if number in changes and (facts := decision_facts(number))
    ]
    context = {
        "rows": rows,
        "base": f"/t/{actor.tenant_slug}/decisions",
        "next": found[SHOWN - 1][0] if len(found) > SHOWN else None,
        "is_first": before is None,
    }
    return render(request, "allocation/decisions/list.html", context)


@costly("decision")
@require_GET
@tenant_page
def decision(request: HttpRequest, actor: Actor, number: int) -> HttpResponse:
    """Shows a decision that changed a booking of the reader; any other one is missing."""
    facts = _visible(actor, number)
    return _page(request, facts, actor, f"/t/{actor.tenant_slug}/decisions")


@require_POST
@tenant_page
def replay(request: HttpRequest, actor: Actor, number: int) -> HttpResponse:
    """Asks for a replay of a decision."""
    _visible(actor, number)
    with _shown(request):
        replay_request(person_id=actor.user_id, number=number, now=timezone.now())
    return redirect("decision", tenant=actor.tenant_slug, number=number)


@costly("decision")
@require_GET
@operator_page(Area.BOOKINGS)
def ops_decision(request: HttpRequest, operator: User, number: int) -> HttpResponse:
    """Shows a decision with the bookings of all tenants."""
    facts = decision_facts(number)
    if facts is None:
        raise missing("decision")
    return _page(request, facts, None, "/ops/decisions")


@require_POST
@operator_page(Area.BOOKINGS)
def ops_replay(request: HttpRequest, operator: User, number: int) -> HttpResponse:
    """Asks for a replay of a decision."""
    with _shown(request):
        replay_by_operator(operator=operator, number=number, now=timezone.now())
    return redirect("ops-decision", number=number)


def _visible(actor: Actor, number: int) -> DecisionFacts:
    """The decision. Raises Refused `not_found` unless it changed a booking of the reader."""
    facts = decision_facts(number)
    if facts is None or not changed_bookings(number, actor, most=1).total:
        raise missing("decision")
    return facts


@contextmanager
def _shown(request: HttpRequest) -> Iterator[None]:
    """Shows a refusal on the page instead of on one of its own."""
    try:
        yield
    except Refused as refusal:
        if refusal.kind not in SHOWN_ON_PAGE:
            raise
        messages.error(request, refusal.sentence)


def _page(request: HttpRequest, facts: DecisionFacts, actor: Actor | None, base: str) -> HttpResponse:
    now, zone = timezone.now(), timezone.get_current_timezone()
    changed = changed_bookings(facts.id, actor)
    # What keeps its plan is only counted, unless nothing else is left of the decision.
    differs = [each for each in changed.lines if each.events or each.moved]
    shown = differs or changed.lines
    lines = decision_lines(shown, facts.id, zone, now, actor)
    kept = len(changed.lines) - len(shown)
    context: dict[str, Any] = {
        "decision": facts,
        "lines": list(lines),
        "total": changed.total - kept,
        "kept": kept,
        "more": changed.total - len(changed.lines),
        "replay": replay_latest(facts.id),
        "base": base,
        "is_for_operator": actor is None,
    }
    return render(request, "allocation/decisions/one.html", context)


urlpatterns = [
    path("t/<slug:tenant>/decisions", decisions, name="decisions"),
    path("t/<slug:tenant>/decisions/<int:number>", decision, name="decision"),
    path("t/<slug:tenant>/decisions/<int:number>/replay", replay, name="decision-replay"),
    path("ops/decisions/<int:number>", ops_decision, name="ops-decision"),
    path("ops/decisions/<int:number>/replay", ops_replay, name="ops-decision-replay"),
]
