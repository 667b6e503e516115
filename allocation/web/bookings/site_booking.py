"""The operators' page of one booking of any tenant: why it waits, where it is, and what happened to it."""

from dataclasses import replace
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.models import Booking
from allocation.queries.bookings.bookings import history_of, node_places_of
from allocation.queries.bookings.pauses import pauses_of
from allocation.queries.bookings.planned_pauses import planned_pauses
from allocation.rules.states import OPEN
from allocation.services.operate.bulk import LONGEST_TEXT
from allocation.services.quotes.why_waiting import why_waiting
from allocation.web.bookings.booking_pages import context_with, place_cards, titles_of, where_words
from allocation.web.bookings.operator_words import operator_lines, operator_words
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import BookingSummary, booking_summary
from allocation.web.parts.planned_start import ahead_lines, change_lines, holder_lines
from tenants.models import GpuClass, User
from tenants.platform.costly import costly
from tenants.platform.errors import missing
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, zone_of


@costly("preview")
@require_safe
@operator_page(Area.BOOKINGS)
def ops_booking(request: HttpRequest, operator: User, booking_id: UUID) -> HttpResponse:
    """Shows the booking without its owner's actions."""
    found = Booking.objects.select_related("tenant", "project", "tier", "owner").filter(id=booking_id)
    booking = found.first()
    if booking is None:
        raise missing("booking")
    now, zone = timezone.now(), zone_of(operator.time_zone)
    waits = why_waiting(booking, now)
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    ctx = PageContext(now, zone, "", labels, planned_pauses=planned_pauses([booking], now, is_site=True))
    ctx = context_with(ctx, booking, tuple(pauses_of(booking)), waits)
    summary = booking_summary(booking, ctx, may_change=False, may_give_back=False)
    places = node_places_of(booking)
    context = {
        "booking": booking,
        "title": booking.name or booking.label,
        "summary": _for_operators(summary, booking),
        "titles": titles_of(booking),
        "places": place_cards(places, booking.ask),
        "where": where_words(places),
        "ahead": operator_lines(ahead_lines(waits.ahead), booking),
        "holders": operator_lines(holder_lines(waits.holders, zone, now), booking),
        "changes": operator_lines(change_lines(waits.changes, zone, now), booking),
        "events": [(event, operator_words(event.text, booking)) for event in history_of(booking)],
        "is_open": booking.state in OPEN,
        "longest": LONGEST_TEXT,
    }
    return render(request, "allocation/ops_booking.html", context)


def _for_operators(summary: BookingSummary, booking: Booking) -> BookingSummary:
    """The summary with the names of organisation and project instead of "your"."""
    checks = (
        replace(each, sentences=tuple(operator_lines(each.sentences, booking))) for each in summary.checks
    )
    return replace(summary, detail=operator_words(summary.detail, booking), checks=tuple(checks))


urlpatterns = [path("ops/bookings/<uuid:booking_id>", ops_booking, name="ops-booking")]
