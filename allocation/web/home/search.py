"""The search for bookings, projects, people, nodes and pages."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.models import Node
from allocation.queries.bookings.booking_list import (
    MAX_SEARCH_WORDS,
    RESULTS_SHOWN,
    SearchResults,
    search_results,
)
from allocation.queries.bookings.site_bookings import OPEN_GROUP, SiteFilter, site_bookings
from tenants.access import Actor, PlatformActor, operator_rights
from tenants.models import GpuClass, User
from tenants.platform.costly import costly
from tenants.queries import tenants_all
from tenants.rules.operator_roles import Area, Rights
from tenants.web.frame import operator_page, tenant_page
from tenants.web.list_menu import own_pages
from tenants.web.navigation import Page, operator_pages, pages_found, pages_of, pages_open

LONGEST = 200
MOST_FIRST = 9
"""Pages that are offered before anything is typed."""
LABEL = re.compile(r"bk-([0-9]{1,18})", re.IGNORECASE)
# A slice, share or duration: unlikely as the name of a booking, project or person.
ASKS = re.compile(r"[0-9]+g\.[0-9]+gb|0?\.[0-9]+|[0-9]+(?:\.[0-9]+)?(?:m|min|h|d|w)", re.IGNORECASE)
MORE = (
    Page("Free time as a list", "timeline?view=list", "list", "timeline table free gpus"),
    Page("Book GPUs", "book", "plus", "new booking reserve"),
)
"""Pages that the navigation does not have."""


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
    groups = _groups(actor, search_results(actor, text), text, base) if text else _first(actor, base)
    groups.insert(0 if text else 1, _views(own_pages(actor), text, base))
    user = request.user
    if text and isinstance(user, User) and user.is_staff:
        groups.append(_operator_pages(operator_rights(user, timezone.now()), text))
    return _answer(request, text, groups, book=f"{base}book?{urlencode({'q': text})}", action=f"{base}search")


@costly("search", needs_query=True)
@require_safe
@operator_page(Area.OWN)
def ops_search(request: HttpRequest, operator: User) -> HttpResponse:
    """`?q=`: finds bookings of all organisations by number or name, organisations, nodes and pages.

    `part=list` returns the list under the field.
    """
    text = request.GET.get("q", "")[:LONGEST].replace("\x00", "").strip()
    rights = operator_rights(operator, timezone.now())
    if not text:
        pages = list(operator_pages(rights))[:MOST_FIRST]
        first = [HitGroup("Go to", _hits(pages, "/ops/")), _ops_views(operator, rights, text)]
        return _answer(request, text, first, book="", action="/ops/search")
    found = {Area.BOOKINGS: _ops_bookings, Area.PEOPLE: _organisations, Area.NODES: _ops_nodes}
    groups = [search(text) for area, search in found.items() if rights.may(area)]
    groups += [_ops_views(operator, rights, text), _operator_pages(rights, text)]
    return _answer(request, text, groups, book="", action="/ops/search")


def _answer(
    request: HttpRequest, text: str, groups: Sequence[HitGroup], *, book: str, action: str
) -> HttpResponse:
    """The page of results, or the list under the field."""
    shown = [group for group in groups if group.hits]
    name = "list" if request.GET.get("part") == "list" else "page"
    context = {"text": text, "groups": shown, "book": book, "action": action}
    return render(request, f"allocation/search_{name}.html", context)


def _first(actor: Actor, base: str) -> list[HitGroup]:
    """What the palette offers before anything is typed."""
    return [HitGroup("Go to", _hits([*MORE[-1:], *pages_of(actor)][:MOST_FIRST], base))]


def _hits(pages: Iterable[Page], base: str) -> tuple[Hit, ...]:
    return tuple(Hit(each.label, "page", base + each.suffix, each.icon) for each in pages)


def _views(pages: Iterable[Page], text: str, base: str) -> HitGroup:
    """Saved views with these words; all before anything is typed."""
    found = pages_found(pages, text) if text else list(pages)
    hits = (Hit(each.label, each.about, base + each.suffix, each.icon) for each in found[:MOST_FIRST])
    return HitGroup("Saved views", tuple(hits))


def _ops_views(operator: User, rights: Rights, text: str) -> HitGroup:
    """Those of lists that the operator's roles open."""
    return _views(pages_open(own_pages(PlatformActor.of(operator)), rights), text, "/ops/")


def _operator_pages(rights: Rights, text: str) -> HitGroup:
    pages = pages_found(operator_pages(rights), text)
    return HitGroup("Operator", _hits(pages, "/ops/"))


def _ops_bookings(text: str) -> HitGroup:
    rows = site_bookings(SiteFilter(group=OPEN_GROUP, text=text)).order_by("-submitted", "-id")[
        :RESULTS_SHOWN
    ]
    return HitGroup(
        "Bookings",
        tuple(
            Hit(
                row.name or row.label,
                f"{row.label} · {row.tenant.name} · {row.project.name}",
                f"/ops/bookings/{row.id}",
                "list",
            )
            for row in rows
        ),
    )


def _organisations(text: str) -> HitGroup:
    words = text.lower().split()
    found = [
        each for each in tenants_all() if all(word in f"{each.name} {each.slug}".lower() for word in words)
    ]
    return HitGroup(
        "Organisations",
        tuple(
            Hit(each.name, each.slug, f"/ops/bookings?{urlencode({'tenant': each.slug})}", "people")
            for each in found[:RESULTS_SHOWN]
        ),
    )


def _ops_nodes(text: str) -> HitGroup:
    condition = Q()
    for word in text.split()[:MAX_SEARCH_WORDS]:
        condition &= Q(name__icontains=word)
    nodes = Node.objects.filter(condition).order_by("name")[:RESULTS_SHOWN]
    return HitGroup(
        "Nodes",
        tuple(Hit(each.name, each.get_state_display(), f"/ops/fleet/{each.name}", "chip") for each in nodes),
    )


def _direct(text: str) -> str:
    """Returns the address of a booking number or a request; else an empty string."""
    if LABEL.fullmatch(text):
        return f"bookings/{text.upper()}"
    words = text.lower().split()
    classes = set(GpuClass.objects.values_list("slug", flat=True)) if len(words) > 1 else set()
    is_ask = any(word in classes or ASKS.fullmatch(word) for word in words)
    return f"book?{urlencode({'q': text})}" if is_ask and len(words) > 1 else ""


def _groups(actor: Actor, found: SearchResults, text: str, base: str) -> list[HitGroup]:
    pages = pages_found([*pages_of(actor), *MORE], text)
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
                    each.project.name if each.project else "Organisation admin",
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
            _hits(pages, base),
        ),
    ]


urlpatterns = [
    path("t/<slug:tenant>/search", search_page, name="search"),
    path("ops/search", ops_search, name="ops-search"),
]
