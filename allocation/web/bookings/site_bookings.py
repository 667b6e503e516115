"""The operators' page of all tenants' bookings, with a message to the owners of chosen ones."""

from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Booking, Node
from allocation.queries.bookings.booking_list import GROUPS, PAGE
from allocation.queries.bookings.site_bookings import (
    OPEN_GROUP,
    SiteFilter,
    nodes_of_bookings,
    site_bookings,
)
from allocation.services.operate.messages import LONGEST, owners_message
from allocation.web.bookings.booking_pages import booking_row
from allocation.web.bookings.list_page import GROUP_LABELS, MAX_TEXT_LENGTH
from allocation.web.bookings.page_context import PageContext
from tenants.models import GpuClass, Tier, User
from tenants.platform.form_actions import form_action_run, ids_read
from tenants.queries import tenants_all
from tenants.web.frame import operator_page, zone_of


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_bookings(request: HttpRequest, operator: User) -> HttpResponse:
    """`?state=&tenant=<slug>&tier=&class=&node=&q=&page=`; POST sends a message to owners."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {"message": lambda form: _message(operator, form)})
        if refusal is None:
            return redirect(request.get_full_path())
    wanted = _filter_read(request.GET)
    chosen = frozenset(request.POST.getlist("booking") if refusal else ())
    page = Paginator(site_bookings(wanted).order_by("-submitted", "-id"), PAGE).get_page(
        request.GET.get("page")
    )
    context = {
        "rows": _rows(list(page.object_list), operator, chosen),
        "page": page,
        "wanted": wanted,
        "groups": [
            {"label": label, "url": _link(wanted, state=key), "on": wanted.group == key}
            for key, label in GROUP_LABELS.items()
            if key
        ],
        "choices": _choices(wanted),
        "is_filtered": bool(_values(wanted)),
        "previous": _link(wanted, page=page.previous_page_number()) if page.has_previous() else "",
        "next": _link(wanted, page=page.next_page_number()) if page.has_next() else "",
        "refusal": refusal,
        "typed": request.POST if refusal else {},
        "longest": LONGEST,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_bookings.html", context, status=status)


def _message(operator: User, form: QueryDict) -> str:
    sent = owners_message(
        operator=operator,
        bookings=ids_read(form, "booking", "booking"),
        text=form.get("message", ""),
        now=timezone.now(),
    )
    owners = len({booking.owner_id for booking in sent})
    return (
        f"Message sent to {owners} {'person' if owners == 1 else 'people'} about "
        f"{len(sent)} {'booking' if len(sent) == 1 else 'bookings'}."
    )


def _rows(bookings: list[Booking], operator: User, chosen: frozenset[str]) -> list[dict[str, Any]]:
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    ctx = PageContext(timezone.now(), zone_of(operator.time_zone), "", labels)
    nodes = nodes_of_bookings(booking.id for booking in bookings)
    return [
        booking_row(booking, ctx)
        | {"nodes": nodes.get(booking.id, ()), "chosen": str(booking.id) in chosen}
        for booking in bookings
    ]


def _choices(wanted: SiteFilter) -> list[tuple[str, str, list[tuple[str, str]], str]]:
    """The filters: name, label of all, choices, and the one that is chosen."""
    tenants = [(each.slug, each.name) for each in tenants_all()]
    tiers = list(Tier.objects.order_by("name").values_list("slug", "name"))
    classes = list(GpuClass.objects.values_list("slug", "label"))
    nodes = list(Node.objects.order_by("name").values_list("name", "name"))
    return [
        ("tenant", "All tenants", tenants, wanted.tenant),
        ("tier", "All tiers", tiers, wanted.tier),
        ("class", "All classes", classes, wanted.gpu_class),
        ("node", "All nodes", nodes, wanted.node),
    ]


def _filter_read(asked: QueryDict) -> SiteFilter:
    """Reads the filters from the address; an unknown state is that of open bookings."""

    def text(name: str) -> str:
        return asked.get(name, "")[:MAX_TEXT_LENGTH].replace("\x00", "").strip()

    group = asked.get("state", "")
    return SiteFilter(
        tenant=text("tenant"),
        group=group if group in GROUPS else OPEN_GROUP,
        tier=text("tier"),
        gpu_class=text("class"),
        node=text("node"),
        text=text("q"),
    )


def _values(wanted: SiteFilter) -> dict[str, str]:
    values = {
        "state": "" if wanted.group == OPEN_GROUP else wanted.group,
        "tenant": wanted.tenant,
        "tier": wanted.tier,
        "class": wanted.gpu_class,
        "node": wanted.node,
        "q": wanted.text,
    }
    return {key: value for key, value in values.items() if value}


def _link(wanted: SiteFilter, **changed: object) -> str:
    return "?" + urlencode({**_values(wanted), **changed})


urlpatterns = [path("ops/bookings", ops_bookings, name="ops-bookings")]
