"""The timeline page: a grid, a list, a month, or the days of one GPU."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.points.outside import outside_uses
from allocation.queries.bookings.timelines.rows import GpuRow, Timeline
from allocation.queries.bookings.timelines.timeline import timeline_read
from allocation.services.quotes.free_times import free_times_read
from allocation.web.bookings.request_panel.panel import panel_context
from allocation.web.parts.times import clock
from allocation.web.timeline.calendar import gpu_days, gpu_span, month_span, month_weeks, moved
from allocation.web.timeline.elements import Group, ViewOptions, rows_element
from allocation.web.timeline.grid import grid_groups
from allocation.web.timeline.span import (
    DEFAULT_ZOOM,
    LABEL_EDGE,
    ZOOMS,
    Span,
    since_text,
    span_read,
)
from allocation.web.timeline.tables import booked_rows, free_rows
from billing.price_books import current_prices
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.web.frame import tenant_page, zone_of
from tenants.web.list_menu import list_menus

FREE_HOURS = (1, 6, 24)
STANDARD = "standard"
SNAP_MINUTES = {"6h": 15, "24h": 60, "3d": 180, "2w": 720}
"""Minutes that an arrow key moves."""


class Address:
    """The page's query, and links with changed values."""

    KEYS = ("from", "span", "class", "view", "free", "open", "tenant", "tier", "gpu")

    def __init__(self, request: HttpRequest) -> None:
        self.path = request.path
        self.values = {key: request.GET[key] for key in self.KEYS if request.GET.get(key)}

    def get(self, key: str) -> str:
        """Returns the value in the address, or an empty string."""
        return self.values.get(key, "")

    def link(self, **changes: str) -> str:
        """Returns this address with `changes`; an empty value removes its key.

        `from_` means `from`.
        """
        new = self.values | {key.rstrip("_"): value for key, value in changes.items()}
        query = urlencode({key: value for key, value in new.items() if value}, safe=":,")
        return f"{self.path}?{query}" if query else self.path

    @property
    def view(self) -> str:
        """Returns the chosen view; `grid` without a valid one."""
        return self.get("view") if self.get("view") in CONTEXTS else "grid"

    def span(self, zone: tzinfo, now: datetime) -> Span:
        """Returns the time that the view shows."""
        since = self.get("from")
        if self.view == "month":
            return month_span(since, zone, now)
        if self.view == "gpu":
            return gpu_span(since, zone, now)
        return span_read(key=self.get("span"), since=since, zone=zone, now=now)


@costly("timeline")
@require_safe
@tenant_page
def timeline_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """`?from=&span=6h|24h|3d|2w&class=&view=grid|list|month|gpu&free=6h&open=node&gpu=node/0`;
    `part=grid` is the view alone."""
    now = timezone.now().replace(microsecond=0)
    address = Address(request)
    zone = zone_of(actor.time_zone)
    span = address.span(zone, now)
    window = span.window
    free = free_times_read(is_operator=False, since=window.starts, until=window.ends, now=now)
    timeline = timeline_read(
        actor=actor, window=window, gpu_class=address.get("class"), now=now, free=free.by_gpu
    )
    look = ViewOptions(
        span=span,
        now=now,
        base=f"/t/{actor.tenant_slug}/",
        open_nodes=opened_nodes(address.get("open")),
        free=free_hours(address.get("free")),
        prices=prices_read(now),
        outside=outside_uses(None if actor.is_tenant_admin else actor.roles, span.columns())
        if address.view == "grid"
        else (),
    )
    context = view_context(timeline, look, address)
    if request.GET.get("part") == "grid":
        return render(request, context["content"], context)
    context["bar"] = bar_context(address, span, timeline)
    context |= panel_context(request, actor, now)
    context["list_menus"] = list_menus(request, actor, "timeline")
    context["folded"] = request.COOKIES.get("panel") == "folded"
    return render(request, "allocation/timeline.html", context)


def view_context(timeline: Timeline, look: ViewOptions, address: Address) -> dict[str, Any]:
    """The context of the chosen view; `content` is its template."""
    view = address.view
    return {
        "content": f"allocation/timeline_{view}.html",
        "grid_url": address.link(part="grid"),
        **CONTEXTS[view](timeline, look, address),
    }


def grid_context(timeline: Timeline, look: ViewOptions, address: Address) -> dict[str, Any]:
    """The context of the grid."""
    groups = grid_groups(timeline, look)
    _toggles(groups, address)
    span, now = look.span, look.now
    is_now = span.window.starts <= now < span.window.ends
    now_at = span.percent(now) if is_now else None
    return {
        "groups": [(each, rows_element(each.rows)) for each in groups] if timeline.groups else [],
        "days": span.days(),
        "days_only": span.shows_days_only,
        "ticks": span.ticks(),
        "clocks": [(at, text, at < LABEL_EDGE) for at, text in span.clocks(now)],
        "span_words": span.words,
        "now_at": now_at,
        "now_clock": clock(now, span.zone),
        "heading": f"{span.zoom.label} from {span.window.starts.astimezone(span.zone):%d %b %H:%M}",
        "from_ms": _ms(span.window.starts),
        "span_ms": round(span.window.length.total_seconds() * 1000),
        "now_ms": _ms(now),
        "step_minutes": SNAP_MINUTES[span.zoom.key],
        "places": json.dumps(_places(timeline), separators=(",", ":")),
    }


def list_context(timeline: Timeline, look: ViewOptions, address: Address) -> dict[str, Any]:
    """The context of the list."""
    return {"free_rows": free_rows(timeline, look), "booked_rows": booked_rows(timeline, look)}


def month_context(timeline: Timeline, look: ViewOptions, address: Address) -> dict[str, Any]:
    """The context of the month."""
    weeks = month_weeks(timeline, look, address.link)
    is_known = any(day.classes for week in weeks for day in week)
    return {"weeks": weeks, "is_known": is_known, "span_words": look.span.words, "weekdays": WEEKDAYS}


def gpu_context(timeline: Timeline, look: ViewOptions, address: Address) -> dict[str, Any]:
    """The context of one GPU's days; `rows` is empty if there is no such GPU."""
    found = gpu_days(timeline, look, address.get("gpu"))
    if found is None:
        return {"rows": []}
    node, gpu, rows = found
    return {
        "rows": rows_element(rows),
        "gpu_name": f"{node.name}, GPU {gpu.index}",
        "gpu_words": f"{gpu.class_label} in rack {node.rack}",
        "gpu_state": gpu.unusable_reason,
        "hours": [(f"{100 * hour / 24:g}", f"{hour:02}:00") for hour in range(0, 24, 3)],
        "span_words": look.span.words,
    }


CONTEXTS = {"grid": grid_context, "list": list_context, "month": month_context, "gpu": gpu_context}
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def bar_context(address: Address, span: Span, timeline: Timeline) -> dict[str, Any]:
    """The links above a timeline: time, zoom, view, classes and free hours."""
    starts, length, zone = span.window.starts, span.window.length, span.zone
    zoom, gpu_class, free = span.zoom.key, address.get("class"), address.get("free")
    view, wide = address.view, address.view in ("month", "gpu")
    hours = {f"{count}h": count for count in FREE_HOURS}
    return {
        "today": address.link(from_=""),
        "earlier": address.link(from_=since_text(moved(span, -1) if wide else starts - length, zone)),
        "later": address.link(from_=since_text(moved(span, 1) if wide else starts + length, zone)),
        "zooms": []
        if wide
        else [
            _choice(each.label, address.link(span=_unless_default(key), from_=""), on=key == zoom)
            for key, each in ZOOMS.items()
        ],
        "views": [
            _choice(label, address.link(view=key, gpu="", from_="" if wide else address.get("from")), on=on)
            for label, key, on in (
                ("Grid", "", view == "grid"),
                ("List", "list", view == "list"),
                ("Month", "month", view == "month"),
            )
        ],
        "classes": [_choice("Back to all GPUs", address.link(view="", gpu="", from_=""), on=False)]
        if view == "gpu"
        else [
            _choice("All GPUs", address.link(class_=""), on=not gpu_class),
            *(
                _choice(label, address.link(class_=slug), on=slug == gpu_class)
                for slug, label in timeline.classes
            ),
        ],
        "frees": []
        if wide
        else [
            _choice(f"Free {count} h", address.link(free="" if key == free else key), on=key == free)
            for key, count in hours.items()
        ],
    }


def _choice(label: str, url: str, *, on: bool) -> dict[str, Any]:
    return {"label": label, "url": url, "on": on}


def _unless_default(key: str) -> str:
    return "" if key == DEFAULT_ZOOM else key


def _toggles(groups: Iterable[Group], address: Address) -> None:
    """Sets each node row's link that opens or closes it, and each GPU's link to its days."""
    for row in (row for group in groups for row in group.rows if row.kind == "gpu"):
        # Relative, because a page has a thousand of them.
        row.calendar = f"?view=gpu&gpu={row.key}"
    rows = [row for group in groups for row in group.rows if row.kind == "node"]
    opened = {row.node for row in rows if row.is_open}
    chosen = {each for each in address.get("open").split(",") if "/" in each}
    for row in rows:
        # Without `open` the portal chooses, so no open nodes are written as "-".
        row.toggle = address.link(open=",".join(sorted(chosen | opened ^ {row.node})) or "-")


def opened_nodes(value: str) -> frozenset[str] | None:
    """The nodes that the address opens; None: the default."""
    return frozenset(value.split(",")) if value else None


def free_hours(value: str) -> timedelta | None:
    """The hours that a GPU has to be free, from the address."""
    hours = value.removesuffix("h")
    if not (hours.isascii() and hours.isdigit() and len(hours) < 4):
        return None
    return timedelta(hours=int(hours))


def prices_read(now: datetime) -> dict[str, str]:
    """Returns the price of a GPU-hour in the standard tier by class."""
    return {
        gpu_class: money_text(price.per_gpu_hour, price.currency)
        for (gpu_class, tier), price in current_prices(now).items()
        if tier == STANDARD
    }


def _places(timeline: Timeline) -> dict[str, dict[str, tuple[tuple[int, int], ...]]]:
    """Returns the legal placements of slices by model, for drawing with the mouse."""
    gpus: list[GpuRow] = [gpu for group in timeline.groups for node in group.nodes for gpu in node.gpus]
    return {gpu.model: dict(gpu.placements) for gpu in gpus if gpu.shows_slots}


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


urlpatterns = [path("t/<slug:tenant>/timeline", timeline_page, name="timeline")]
