"""The list of bookings as a page and as CSV. The address holds search, filters and order."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.models import Booking
from allocation.points.arrays import arrays
from allocation.queries.bookings.booking_list import (
    GROUPS,
    NEWEST,
    SORTS,
    BookingFilter,
    bookings_export,
    bookings_page,
)
from allocation.services.record.costs import paid_for
from allocation.web.bookings.booking_pages import booking_rows, page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.page import notices_context
from allocation.web.bookings.summary import booking_what
from billing.rules import Period
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.platform.errors import Refused
from tenants.platform.labels import MAX_REFERENCE, MAX_TEXT, labels_read, labels_text
from tenants.platform.text import csv_plain
from tenants.web.frame import tenant_page
from tenants.web.list_menu import list_menus

GROUP_LABELS = {
    "": "All",
    "open": "Open",
    "waiting": "Waiting",
    "scheduled": "Scheduled",
    "running": "Running",
    "paused": "Paused",
    "over": "Over",
}
COLUMNS = (
    ("name", "Booking"),
    ("state", "State"),
    ("start", "When"),
    ("", "What"),
    ("tier", "Tier"),
    ("project", "Project"),
    ("owner", "By"),
    ("cost", "Cost"),
)
"""Columns by sort key; "" for a column that can't be sorted."""
ORDERS = (
    ("-booked", "Newest first"),
    ("booked", "Oldest first"),
    ("start", "Earliest start"),
    ("-start", "Latest start"),
    ("-cost", "Highest cost"),
    ("name", "Name"),
    ("state", "State"),
    ("project", "Project"),
    ("owner", "Person"),
)
DESCENDING_FIRST = ("cost", "start")
"""Columns that sort in descending order first."""
EXPORTED = (
    *("number", "name", "state", "starts", "ends", "what"),
    *("tier", "project", "owner", "cost", "currency", "cost_is", "labels", "external_ref"),
)
MAX_TEXT_LENGTH = 200
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2999, 12, 31)
MOST_EXPORTED = 10_000


def list_rows(found: Sequence[Booking], ctx: PageContext) -> list[dict[str, Any]]:
    """Returns the rows of a list, in which an array is one line with counts."""
    found_arrays = {row.array_id: row.array for row in found if row.array is not None}
    words = arrays().words(found_arrays.values()) if found_arrays else {}
    rows = []
    for booking, shown in zip(found, booking_rows(found, ctx), strict=True):
        row = shown | {"label": booking.label}
        if booking.array is not None:
            label = booking.array.label
            row |= {
                "label": label,
                "title": booking.name or label,
                "href": f"{ctx.base}arrays/{label}",
                "when": words[booking.array.id],
                "what": f"{booking.array.count} × {row['what']}",
            }
        rows.append(row)
    return rows


@require_safe
@tenant_page
def bookings_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """`?state=&project=<slug>&mine=1&from=&to=&q=&sort=[-]column&after=|before=<cursor>`."""
    wanted = filter_read(request)
    ctx = page_context(actor, timezone.now())
    page = bookings_page(actor, wanted)
    first = replace(wanted, after="", before="")
    context = {
        "page": page,
        "rows": list_rows(page.rows, ctx),
        "notices": notices_context(actor, ctx),
        "wanted": wanted,
        "groups": [
            {"label": label, "url": _link(replace(first, group=key)), "on": wanted.group == key}
            for key, label in GROUP_LABELS.items()
        ],
        "columns": [_column(first, key, label) for key, label in COLUMNS],
        "orders": ORDERS,
        "order_words": dict(ORDERS).get(wanted.sort, ""),
        "typed_labels": request.GET.get("label", ""),
        "label_problem": label_problem(request.GET.get("label", "")),
        "reference_off": _link(replace(first, reference="")),
        "days": days_chip(wanted.days, _link(replace(first, days=None))),
        "mine_url": _link(replace(first, mine=not wanted.mine)),
        "csv_url": f"bookings.csv{_link(first)}",
        "most_exported": MOST_EXPORTED,
        "previous": _link(replace(first, before=page.before)) if page.before else "",
        "next": _link(replace(first, after=page.after)) if page.after else "",
        "list_menus": list_menus(request, actor, "bookings"),
        "is_filtered": replace(first, sort=NEWEST) != BookingFilter(),
    }
    return render(request, "allocation/bookings.html", context)


@costly("export")
@require_safe
@tenant_page
def bookings_csv(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Exports the list as CSV, at most MOST_EXPORTED rows."""
    ctx = page_context(actor, timezone.now())
    rows = bookings_export(actor, filter_read(request), most=MOST_EXPORTED)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(EXPORTED)
    writer.writerows([csv_plain(value) for value in _cells(row, ctx)] for row in rows)
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="bookings-{actor.tenant_slug}.csv"'
    return response


def _cells(row: Booking, ctx: PageContext) -> Iterator[str]:
    held = row.hold_amount - row.settled
    cost = held if row.charged is None else paid_for(row)
    yield from (row.label, row.name, row.state)
    for moment in (row.planned_starts, row.planned_ends):
        yield moment.astimezone(ctx.zone).isoformat(timespec="minutes") if moment else ""
    yield booking_what(row, ctx.labels)
    yield from (row.tier.name, row.project.name, row.owner.display_name)
    yield from (str(cost), row.currency, "held" if row.charged is None else "charged")
    yield from (labels_text(row.labels), row.external_ref)


def filter_read(request: HttpRequest) -> BookingFilter:
    """Reads the filters from the address; ignores invalid values."""
    asked = request.GET
    group, sort = asked.get("state", ""), asked.get("sort", NEWEST)
    labels = _clean(asked.get("label", ""), MAX_TEXT)
    return BookingFilter(
        group=group if group in GROUPS else "",
        project=_clean(asked.get("project", "")),
        mine=asked.get("mine") == "1",
        labels="" if label_problem(labels) else labels,
        reference=_clean(asked.get("external_ref", ""), MAX_REFERENCE),
        days=days_read(asked),
        text=_clean(asked.get("q", "")),
        sort=sort if sort.removeprefix("-") in SORTS else NEWEST,
        after=asked.get("after", ""),
        before=asked.get("before", ""),
    )


def days_read(asked: QueryDict) -> Period | None:
    """Reads `from` and `to`, the first and the last of the UTC days; None: not given, or no such days."""
    try:
        first, last = (date.fromisoformat(asked.get(name, "")) for name in ("from", "to"))
    except ValueError:
        return None
    return Period(first, last + timedelta(days=1)) if FIRST_DAY <= first <= last < LAST_DAY else None


def days_fields(days: Period | None) -> dict[str, str]:
    """The days as the address has them."""
    return {"from": str(days.starts), "to": str(days.ends - timedelta(days=1))} if days else {}


def days_chip(days: Period | None, off: str) -> dict[str, Any] | None:
    """The filter of days in words, its fields, and the address without it."""
    if days is None:
        return None
    last = days.ends - timedelta(days=1)
    words = f"{days.starts.day} {days.starts:%b}"
    if last != days.starts:
        words += f" – {last.day} {last:%b}"
    return {"words": words, "fields": days_fields(days), "off": off}


def label_problem(text: str) -> str:
    """Returns why the text is no list of labels; "" if it is one."""
    try:
        labels_read(text, "label")
    except Refused as refusal:
        return refusal.sentence
    return ""


def _clean(text: str, most: int = MAX_TEXT_LENGTH) -> str:
    return text[:most].replace("\x00", "").strip()


def _column(wanted: BookingFilter, key: str, label: str) -> dict[str, Any]:
    """Returns a column heading with its sort link and direction."""
    if not key:
        return {"label": label}
    is_on = wanted.column == key
    turned = key if is_on and wanted.is_descending else f"-{key}"
    first = f"-{key}" if key in DESCENDING_FIRST else key
    return {
        "label": label,
        "url": _link(replace(wanted, sort=turned if is_on else first)),
        "sorted": ("descending" if wanted.is_descending else "ascending") if is_on else "",
        "is_number": key == "cost",
    }


def _link(wanted: BookingFilter) -> str:
    values = {
        "state": wanted.group,
        "project": wanted.project,
        "mine": "1" if wanted.mine else "",
        "label": wanted.labels,
        "external_ref": wanted.reference,
        "q": wanted.text,
        **days_fields(wanted.days),
        "sort": "" if wanted.sort == NEWEST else wanted.sort,
        "after": wanted.after,
        "before": wanted.before,
    }
    return "?" + urlencode({key: value for key, value in values.items() if value})


urlpatterns = [
    path("t/<slug:tenant>/bookings", bookings_list, name="bookings"),
    path("t/<slug:tenant>/bookings.csv", bookings_csv, name="bookings-csv"),
]
