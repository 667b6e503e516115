"""The search for bookings, projects, people, nodes and pages."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from allocation.queries.bookings.booking_list import SearchResults, search_results
from tenants.access import Actor
from tenants.models import GpuClass
from tenants.platform.costly import costly
from tenants.web.frame import tenant_page

LONGEST = 200
LABEL = re.compile(r"bk-([0-9]{1,18})", re.IGNORECASE)
# A slice, share or duration: unlikely as the name of a booking, project or person.
ASKS = re.compile(r"[0-9]+g\.[0-9]+gb|0?\.[0-9]+|[0-9]+(?:\.[0-9]+)?(?:m|min|h|d|w)", re.IGNORECASE)
PAGES = (
    ("Home", "", "home", "start next bookings"),
    ("Timeline", "timeline", "cal", "grid calendar free gpus"),
    ("Free time as a list", "timeline?view=list", "list", "timeline table free gpus"),
    ("Bookings", "bookings", "list", "reservations jobs"),
    ("Book GPUs", "book", "plus", "new booking reserve"),
    ("Budgets", "budgets", "coin", "money cost spend"),
    ("Quotas", "quotas", "gauge", "limits guarantee share"),
    ("People and projects", "people", "people", "members roles leads admins"),
    ("Fleet", "fleet", "chip", "nodes gpus machines hardware"),
    ("Tiers", "tiers", "tiers", "priority pause spot standard"),
    ("Prices", "prices", "tag", "cost rate"),
    ("Settings and tokens", "settings", "gear", "api token mail time zone"),
    ("Calendars", "settings/calendars", "cal", "ics subscribe feed"),
)
"""Name, address, icon and search words of the pages that every member has."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    title: str
    detail: str
    href: str
    icon: str


@dataclass(frozen=True, slots=True)
class HitGroup:
    """Search results of one kind."""

    name: str
    hits: tuple[Hit, ...]


@costly("search", needs_query=True)
@require_safe
@tenant_page
def search_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """`?q=`: redirects a booking number to the booking and a request to its quote, else searches.

    `part=list` returns the list under the field and never redirects.
    """
    text = request.GET.get("q", "")[:LONGEST].replace("\x00", "").strip()
    base = f"/t/{actor.tenant_slug}/"
    is_part = request.GET.get("part") == "list"
    if not is_part and (target := _direct(text)):
        return HttpResponseRedirect(base + target)
    groups = [group for group in _groups(search_results(actor, text), text, base) if group.hits]
    context = {"text": text, "groups": groups, "book": f"{base}book?{urlencode({'q': text})}"}
    name = "list" if is_part else "page"
    return render(request, f"allocation/search_{name}.html", context)


def _direct(text: str) -> str:
    """Returns the address of a booking number or a request; else an empty string."""
    if LABEL.fullmatch(text):
        return f"bookings/{text.upper()}"
    words = text.lower().split()
    classes = set(GpuClass.objects.values_list("slug", flat=True)) if len(words) > 1 else set()
    is_ask = any(word in classes or ASKS.fullmatch(word) for word in words)
    return f"book?{urlencode({'q': text})}" if is_ask and len(words) > 1 else ""


def _groups(found: SearchResults, text: str, base: str) -> list[HitGroup]:
    words = text.lower().split()
    pages = (page for page in PAGES if words and all(w in " ".join(page).lower() for w in words))
    return [
        HitGroup(
            "Bookings",
            tuple(
                Hit(
                    row.name or row.label,
                    f"{row.label} · {row.project.name} · {row.owner.display_name}",
                    f"{base}bookings/{row.label}",
                    "list",
                )
                for row in found.bookings
            ),
        ),
        HitGroup(
            "Projects",
            tuple(Hit(each.name, each.slug, f"{base}p/{each.slug}", "gauge") for each in found.projects),
        ),
        HitGroup(
            "People",
            tuple(
                Hit(
                    each.user.display_name,
                    each.project.name if each.project else "Tenant admin",
                    f"{base}bookings?{urlencode({'q': each.user.username})}",
                    "user",
                )
                for each in found.people
            ),
        ),
        HitGroup(
            "Nodes",
            tuple(Hit(each.name, "node", f"{base}fleet/{each.name}", "chip") for each in found.nodes),
        ),
        HitGroup(
            "Pages",
            tuple(Hit(name, "page", base + suffix, icon) for name, suffix, icon, _ in pages),
        ),
    ]


urlpatterns = [path("t/<slug:tenant>/search", search_page, name="search")]
