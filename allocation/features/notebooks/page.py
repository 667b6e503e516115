"""The card of notebooks on the page of a booking, and the way into one."""

from collections.abc import Callable
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from allocation.access import access_booking
from allocation.features.notebooks.entries import ticket_make
from allocation.features.notebooks.services import (
    RUNNING,
    NotebookTerms,
    notebook_end,
    notebook_of,
    notebook_start,
    programs_offered,
)
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from allocation.web.bookings.booking_pages import booking_answer
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.web.frame import refused_page, tenant_page
from tenants.web.sessions import credential_of

TEMPLATE = "notebooks/card.html"
MOST_LENGTH = 40


def notebook_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card for the owner of a running booking whose nodes offer notebooks."""
    if not settings.NOTEBOOK_URL or booking.owner_id != actor.user_id or booking.state not in RUNNING:
        return None
    row = notebook_of(booking)
    if row is not None and row.run != booking.ready_at:
        # Of a run before a pause.
        row = None
    programs = programs_offered(booking)
    if row is None and not programs:
        return None
    card = {
        "label": booking.label,
        "row": row,
        "programs": programs,
        "is_open": row is not None and row.ended_at is None,
        "is_ready": row is not None and row.state == "ready",
        "now": now,
    }
    return BookingCard(TEMPLATE, card)


@require_safe
@tenant_page
def notebook_part(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """The card alone, which an open page asks for while the notebook starts."""
    found = notebook_card(actor, access_booking(actor, label), timezone.now())
    return render(request, TEMPLATE, {"card": found.card if found else None})


@require_POST
@tenant_page
def notebook_start_act(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Starts a notebook, and shows the booking again."""
    terms = NotebookTerms(program=request.POST.get("program", "")[:MOST_LENGTH])
    return _act(
        request,
        actor,
        label,
        lambda: notebook_start(actor=actor, reference=label, terms=terms, now=timezone.now()),
    )


@require_POST
@tenant_page
def notebook_end_act(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Ends the notebook, and shows the booking again."""
    return _act(request, actor, label, lambda: notebook_end(actor=actor, reference=label, now=timezone.now()))


@require_safe
@tenant_page
def notebook_open(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Sends the browser into its notebook, with a ticket for one use."""

    def go() -> HttpResponse:
        session = credential_of(request)
        url = ticket_make(actor=actor, reference=label, session=session, now=timezone.now())
        return HttpResponseRedirect(url)

    return _act(request, actor, label, go)


def _act(request: HttpRequest, actor: Actor, label: str, act: Callable[[], object]) -> HttpResponse:
    """What an act answers, or the booking's page; a refusal is shown there."""
    try:
        done = act()
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            return refused_page(request, refusal)
        return booking_answer(request, actor, access_booking(actor, label), refusal)
    if isinstance(done, HttpResponse):
        return done
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/bookings/{label}")


BOOKING_CARDS.append(notebook_card)
_AT = "t/<slug:tenant>/bookings/<str:label>/notebook"
urlpatterns = [
    path(_AT, notebook_part, name="notebook"),
    path(f"{_AT}/start", notebook_start_act, name="notebook-start"),
    path(f"{_AT}/end", notebook_end_act, name="notebook-end"),
    path(f"{_AT}/open", notebook_open, name="notebook-open"),
]
