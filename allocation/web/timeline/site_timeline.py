"""The operators' timeline over all tenants, as a grid or a list."""

from collections import Counter
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.points.outside import outside_uses
from allocation.queries.bookings.timelines.rows import Timeline
from allocation.queries.bookings.timelines.site import Shown, site_timeline_read
from allocation.services.quotes.free_times import free_times_read
from allocation.web.timeline.elements import ViewOptions
from allocation.web.timeline.timeline_page import (
    Address,
    bar_context,
    free_hours,
    opened_nodes,
    prices_read,
    view_context,
)
from tenants.access import PlatformActor
from tenants.models import Tier, User
from tenants.platform.costly import costly
from tenants.queries import tenants_all
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, zone_of
from tenants.web.list_menu import list_menus


@costly("timeline")
@require_safe
@operator_page(Area.BOOKINGS)
def ops_timeline(request: HttpRequest, operator: User) -> HttpResponse:
    """The query of a tenant's timeline, and `tenant=<slug>&tier=`; `part=grid` is the grid alone.

    Bars lead to the list of bookings, where operators act on them.
    """
    now = timezone.now().replace(microsecond=0)
    address = Address(request)
    zone = zone_of(operator.time_zone)
    span = address.span(zone, now)
    window = span.window
    shown = Shown(address.get("class"), address.get("tenant"), address.get("tier"))
    free = free_times_read(is_operator=True, since=window.starts, until=window.ends, now=now)
    timeline = site_timeline_read(window=window, shown=shown, now=now, free=free.by_gpu)
    tenants, hues = tenants_all(), hues_of(timeline)
    look = ViewOptions(
        span=span,
        now=now,
        base="/ops/",
        open_nodes=opened_nodes(address.get("open")),
        free=free_hours(address.get("free")),
        prices=prices_read(now),
        hues=hues,
        outside=outside_uses(None, span.columns()) if address.view == "grid" else (),
    )
    context = {
        "is_site": True,
        "keys": "arrow keys move, Enter opens",
        "organisations": [(each.name, hues[each.slug]) for each in tenants if each.slug in hues],
        "has_others": any(each.slug not in hues for each in tenants),
        **view_context(timeline, look, address),
    }
    if request.GET.get("part") == "grid":
        return render(request, context["content"], context)
    context["bar"] = bar_context(address, span, timeline)
    context["list_menus"] = list_menus(request, PlatformActor.of(operator), "timeline")
    context["kept"] = [(key, text) for key, text in address.values.items() if key not in CHOICES]
    context["choices"] = [
        ("tenant", "All organisations", [(each.slug, each.name) for each in tenants], shown.tenant),
        ("tier", "All tiers", list(Tier.objects.values_list("slug", "name")), shown.tier),
    ]
    return render(request, "allocation/ops_timeline.html", context)


def hues_of(timeline: Timeline) -> Mapping[str, str]:
    """Returns the CSS classes of the organisations with the most bars, by slug; the others have none."""
    found = Counter(
        block.booking.tenant
        for group in timeline.groups
        for node in group.nodes
        for gpu in node.gpus
        for block in gpu.blocks
        if block.booking is not None
    )
    # By name, so that an organisation keeps its colour while the order of the busiest changes.
    return {slug: f"org-{at}" for at, slug in enumerate(sorted(dict(found.most_common(HUES))), start=1)}


HUES = 6
"""Colours that can be distinguished, also by people who see fewer of them."""
CHOICES = ("tenant", "tier")
"""Filters of the form; the others are links."""

urlpatterns = [path("ops/timeline", ops_timeline, name="ops-timeline")]
