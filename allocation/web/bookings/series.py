"""The page of a series: every date with its result, and its cancellation."""

from datetime import datetime
from decimal import Decimal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from allocation.access import access_series, access_series_to_change, may_change_series
from allocation.models import Series
from allocation.queries.bookings.series import failed_dates_of, local_start, series_shown
from allocation.services.bookings.series import BEFORE_START, series_cancel
from allocation.web.bookings.booking_pages import booking_row, page_context
from allocation.web.parts.changes import open_changes
from allocation.web.parts.labels import labels_context
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.forms.confirm import Confirmation, confirm_page
from tenants.web.frame import refused_page, tenant_page


@require_safe
@tenant_page
def series_page(request: HttpRequest, actor: Actor, reference: str) -> HttpResponse:
    """Shows all dates of a series."""
    series = access_series(actor, reference)
    shown = series_shown(series)
    conflicts = failed_dates_of(shown)
    ctx = page_context(actor, timezone.now())
    booked = [each.booking for each in shown.dates if each.booking]
    changes = open_changes(booked, ctx.zone, ctx.now)
    context = {
        "series": series,
        "shown": shown,
        "reference": reference,
        "dates": [
            {
                "starts": _words(series, each.starts),
                "line": booking_row(each.booking, ctx) if each.booking else None,
                "sentence": each.sentence,
                "change": changes.get(each.booking.id, "") if each.booking else "",
            }
            for each in shown.dates
        ],
        "conflicts": ", ".join(_words(series, each.starts) for each in conflicts),
        "why": conflicts[0].sentence if conflicts else "",
        **labels_context(series.labels, series.external_ref),
        "held": money_text(shown.held, shown.currency) if shown.currency else "",
        "may_cancel": shown.is_open and may_change_series(actor, series),
    }
    return render(request, "allocation/series.html", context)


def _words(series: Series, moment: datetime) -> str:
    """Returns the time in the series' own zone: `Mon 23 Nov 2026 09:00`."""
    local = local_start(series, moment)
    return f"{local:%a} {local.day} {local:%b %Y %H:%M}"


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def series_cancel_page(request: HttpRequest, actor: Actor, reference: str) -> HttpResponse:
    """Cancels every date that has not started; a GET shows the confirmation."""
    try:
        series = access_series_to_change(actor, reference)
        if request.method != "POST":
            return confirm_page(request, _question(actor, series, reference))
        count = series_cancel(actor=actor, series=series, now=timezone.now())
    except Refused as refusal:
        return refused_page(request, refusal)
    dates = "1 date is" if count == 1 else f"{count} dates are"
    messages.success(request, f"{dates} cancelled. Release running dates on their own pages.")
    return HttpResponseRedirect(f"/t/{actor.tenant_slug}/series/{reference}")


def _question(actor: Actor, series: Series, reference: str) -> Confirmation:
    """Returns the confirmation with the dates and the returned money."""
    coming = list(series.bookings.filter(state__in=BEFORE_START).order_by("starts", "id"))
    back = sum((each.hold_amount for each in coming), Decimal())
    dates = f"{len(coming)} date{'s' * (len(coming) != 1)}"
    owner = series.owner.display_name
    first = coming[0].planned_starts or coming[0].not_before if coming else None
    free = money_text(back, coming[0].currency) if coming else ""
    return Confirmation(
        title=f"Cancel {dates} of this series?",
        lost=(
            f"This series belongs to {owner} in {series.project.name}.",
            *([f"The first is {_words(series, first)}. Others can book these times."] if first else []),
            *([f"{free} is returned to the budget."] if free else []),
            "This can't be undone. Running dates continue; release them on their own pages.",
        ),
        button=f"Cancel {dates}",
        back=f"/t/{actor.tenant_slug}/series/{reference}",
        keep="Keep the series",
    )


SERIES = "t/<slug:tenant>/series/<str:reference>"
urlpatterns = [
    path(SERIES, series_page, name="series"),
    path(f"{SERIES}/cancel", series_cancel_page, name="series-cancel"),
]
