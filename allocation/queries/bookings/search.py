"""What the search of the top bar finds: only what its reader may open."""

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from allocation.models import Booking, Node
from allocation.queries.bookings.booking_list import (
    MAX_SEARCH_WORDS,
    booking_search_condition,
    members_named,
    projects_named,
)
from allocation.queries.bookings.timeline import bookings_visible
from tenants.access import Actor
from tenants.models import Membership, Project

MOST = 6


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The first few of each kind."""

    bookings: tuple[Booking, ...]
    projects: tuple[Project, ...]
    people: tuple[Membership, ...]
    nodes: tuple[Node, ...]


def search_results(actor: Actor, text: str) -> SearchResults:
    """Everything of which all words of `text` are in a name, the newest bookings first."""
    words = text.split()[:MAX_SEARCH_WORDS]
    if not words:
        return SearchResults((), (), (), ())
    bookings = bookings_visible(actor).filter(booking_search_condition(actor, text))
    # Narrow rows first: they come from the index alone, whatever the number of bookings.
    ids = list(bookings.order_by("-submitted").values_list("id", flat=True)[:MOST])
    rows = Booking.objects.filter(id__in=ids).select_related("project", "owner")
    projects, people, nodes = projects_named(actor, ""), members_named(actor, ""), Q()
    for word in words:
        projects &= projects_named(actor, word)
        people &= members_named(actor, word)
        nodes &= Q(name__icontains=word)
    return SearchResults(
        bookings=tuple(sorted(rows, key=lambda row: ids.index(row.id))),
        projects=tuple(projects.order_by("name", "id")[:MOST]),
        people=tuple(_once(people.select_related("user", "project").order_by("user__username"))),
        nodes=tuple(Node.objects.filter(nodes).order_by("name")[:MOST]),
    )


def _once(members: QuerySet[Membership]) -> list[Membership]:
    """The first membership of each person."""
    found: dict[int, Membership] = {}
    for member in members[: MOST * 8]:
        found.setdefault(member.user_id, member)
    return list(found.values())[:MOST]
