"""The operators' page of all tenants' bookings, with acts on chosen ones."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Booking, Node
from allocation.queries.bookings.booking_list import GROUPS, PAGE
from allocation.queries.bookings.site_bookings import (
    OPEN_GROUP,
    SiteFilter,
    nodes_of_bookings,
    releases_asked,
    site_bookings,
)
from allocation.rules.ask.words.numbers import length_of
from allocation.rules.states import WAITING
from allocation.services.operate.bulk import (
    ACTS,
    LONGEST_TEXT,
    Act,
    BulkAct,
    BulkLine,
    bulk_apply,
    bulk_preview,
)
from allocation.services.quotes.start_checks import is_delay
from allocation.web.bookings.booking_pages import booking_rows
from allocation.web.bookings.list_page import GROUP_LABELS, MAX_TEXT_LENGTH, days_chip, days_fields, days_read
from allocation.web.bookings.operator_words import operator_words
from allocation.web.bookings.page_context import PageContext
from allocation.words.reasons import sentence_for
from tenants.access import PlatformActor
from tenants.models import GpuClass, Tier, User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import SHOWN_ON_PAGE, form_act_read, ids_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, CSRF_FIELD
from tenants.queries import tenants_all
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, zone_of
from tenants.web.list_menu import list_menus


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.BOOKINGS)
def ops_bookings(request: HttpRequest, operator: User) -> HttpResponse:
    """`?state=&tenant=<slug>&tier=&class=&node=&from=&to=&q=&sort=&page=`; POST acts on the chosen bookings.

    The first POST answers with what would happen to each booking, the second one does it.
    """
    refusal = None
    if request.method == "POST":
        try:
            return _act(request, operator)
        except Refused as refused:
            if refused.kind not in SHOWN_ON_PAGE:
                raise
            refusal = refused
    wanted = _filter_read(request.GET)
    chosen = frozenset(request.POST.getlist("booking") if refusal else ())
    sort = request.GET.get("sort", "")
    page = Paginator(site_bookings(wanted).order_by(*ORDERS.get(sort, NEWEST)), PAGE).get_page(
        request.GET.get("page")
    )
    kept = {"sort": sort} if sort in ORDERS else {}
    context = {
        "rows": _rows(list(page.object_list), operator, chosen),
        "page": page,
        "wanted": wanted,
        "groups": [
            {"label": label, "url": _link(wanted, state=key, **kept), "on": wanted.group == key}
            for key, label in GROUP_LABELS.items()
            if key or wanted.days
        ],
        "days": days_chip(
            wanted.days, _link(replace(wanted, days=None, group=wanted.group or OPEN_GROUP), **kept)
        ),
        "choices": _choices(wanted),
        "is_filtered": bool(_values(wanted)),
        "sorts": SORTS,
        "sort": sort,
        "previous": _link(wanted, **kept, page=page.previous_page_number()) if page.has_previous() else "",
        "next": _link(wanted, **kept, page=page.next_page_number()) if page.has_next() else "",
        "refusal": refusal,
        "typed": request.POST if refusal else {},
        "longest": LONGEST_TEXT,
        "list_menus": list_menus(request, PlatformActor.of(operator), "bookings"),
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_bookings.html", context, status=status)


NEWEST = ("-submitted", "-number", "-id")
ORDERS: dict[str, tuple[str | OrderBy, ...]] = {
    "oldest": ("submitted", "number", "id"),
    "start": (Coalesce("planned_starts", "starts").asc(nulls_last=True), "submitted", "id"),
    "cost": ("-hold_amount", "-submitted", "-id"),
    "tenant": ("tenant__name", *NEWEST),
}
SORTS = (
    ("", "Newest first"),
    ("oldest", "Longest wait first"),
    ("start", "Next start first"),
    ("cost", "Most money held first"),
    ("tenant", "By organisation"),
)
"""How the list can be sorted, and what each is called."""

TITLES: dict[Act, tuple[str, str, str]] = {
    "message": ("Send the message to the owners?", "Send the message", "Message sent"),
    "release": ("Ask to release these bookings?", "Ask to release", "Asked to release"),
    "pause": ("Pause these bookings?", "Pause", "Notice of a pause given to"),
}
"""The question, its button, and what is reported."""


def _act(request: HttpRequest, operator: User) -> HttpResponse:
    """Asks with the effect on each booking, then does it and lists what was not possible."""
    form, now = request.POST, timezone.now()
    name = cast(Act, form_act_read(request, ACTS))
    seconds = length_of(form.get("length", "")) if name == "pause" else None
    act = BulkAct(name, form.get("text", ""), timedelta(seconds=seconds) if seconds else None)
    ids = ids_read(form, "booking", "booking")
    if CONFIRMED_FIELD not in form:
        return _bulk_page(request, name, bulk_preview(bookings=ids, act=act, now=now))
    lines = bulk_apply(operator=operator, bookings=ids, act=act, now=now)
    if any(line.refusal for line in lines):
        return _bulk_page(request, name, lines, is_over=True)
    messages.success(request, _report(name, lines))
    return redirect(request.get_full_path())


def _bulk_page(
    request: HttpRequest, name: Act, lines: Sequence[BulkLine], *, is_over: bool = False
) -> HttpResponse:
    """What happens to which booking, as a question, or when it is over as the result."""
    done = [line for line in lines if line.refusal is None]
    title, button, _ = TITLES[name]
    context = {
        "title": _report(name, done) if is_over else title,
        "button": f"{button}: {_count(done)}" if name == "pause" else button,
        "done": done,
        "refused": [line for line in lines if line.refusal is not None],
        "is_over": is_over,
        "text": request.POST.get("text", ""),
        "back": request.get_full_path(),
        "fields": [
            (field, value)
            for field, values in request.POST.lists()
            for value in values
            if field != CSRF_FIELD
        ],
    }
    return render(request, "allocation/ops_bulk.html", context)


def _report(name: Act, done: Sequence[BulkLine]) -> str:
    if name == "pause":
        return f"{TITLES[name][2]} {_count(done)}."
    owners = len({line.booking.owner_id for line in done})
    people = f"{owners} {'person' if owners == 1 else 'people'}"
    return f"{TITLES[name][2]}: {people}, about {_count(done)}."


def _count(lines: Sequence[BulkLine]) -> str:
    return f"{len(lines)} {'booking' if len(lines) == 1 else 'bookings'}"


def _rows(bookings: list[Booking], operator: User, chosen: frozenset[str]) -> list[dict[str, Any]]:
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    ctx = PageContext(timezone.now(), zone_of(operator.time_zone), "", labels)
    nodes = nodes_of_bookings(booking.id for booking in bookings)
    asked = releases_asked(booking.id for booking in bookings)
    return [
        row
        | {
            "href": reverse("ops-booking", args=[booking.id]),
            "nodes": nodes.get(booking.id, ()),
            "why": _why(booking),
            "chosen": str(booking.id) in chosen,
            "asked": asked.get(booking.id),
        }
        for booking, row in zip(bookings, booking_rows(bookings, ctx), strict=True)
    ]


def _why(booking: Booking) -> str:
    """Why it waits, in one sentence: the decision's first reason has the longest delay."""
    if booking.state not in WAITING:
        return ""
    why = next((sentence_for(booking.ask, each) for each in booking.reasons if is_delay(each)), "")
    return operator_words(why, booking)


def _choices(wanted: SiteFilter) -> list[tuple[str, str, list[tuple[str, str]], str]]:
    """The filters: name, label of all, choices, and the one that is chosen."""
    tenants = [(each.slug, each.name) for each in tenants_all()]
    tiers = list(Tier.objects.order_by("name").values_list("slug", "name"))
    classes = list(GpuClass.objects.values_list("slug", "label"))
    nodes = list(Node.objects.order_by("name").values_list("name", "name"))
    return [
        ("tenant", "All organisations", tenants, wanted.tenant),
        ("tier", "All tiers", tiers, wanted.tier),
        ("class", "All classes", classes, wanted.gpu_class),
        ("node", "All nodes", nodes, wanted.node),
    ]


def _filter_read(asked: QueryDict) -> SiteFilter:
    """Reads the filters from the address; an unknown state is that of open bookings."""

    def text(name: str) -> str:
        return asked.get(name, "")[:MAX_TEXT_LENGTH].replace("\x00", "").strip()

    group, days = asked.get("state", ""), days_read(asked)
    usual = "" if days else OPEN_GROUP
    return SiteFilter(
        tenant=text("tenant"),
        group=group if group in GROUPS else usual,
        tier=text("tier"),
        gpu_class=text("class"),
        node=text("node"),
        text=text("q"),
        days=days,
    )


def _values(wanted: SiteFilter) -> dict[str, str]:
    values = {
        "state": "" if wanted.group == OPEN_GROUP and not wanted.days else wanted.group,
        "tenant": wanted.tenant,
        "tier": wanted.tier,
        "class": wanted.gpu_class,
        "node": wanted.node,
        "q": wanted.text,
        **days_fields(wanted.days),
    }
    return {key: value for key, value in values.items() if value}


def _link(wanted: SiteFilter, **changed: object) -> str:
    return "?" + urlencode({**_values(wanted), **changed})


urlpatterns = [path("ops/bookings", ops_bookings, name="ops-bookings")]
