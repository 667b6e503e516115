"""Lists of bookings: filters, search, sorting by column and stable pages; and the top bar's
search."""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core import signing
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Lower

from allocation.models import Booking, BookingLabel, Node
from allocation.queries.bookings.timelines.timeline import bookings_visible
from allocation.rules.states import OPEN, PHASES, State
from billing.rules import Period
from tenants.access import Actor
from tenants.models import Membership, Project
from tenants.platform.labels import labels_read

PAGE = 25
GROUPS: dict[str, tuple[State, ...]] = {"open": tuple(sorted(OPEN)), **PHASES}
"""The choices of the state filter, and the states of each."""


@dataclass(frozen=True, slots=True)
class PhaseCounts:
    """Open bookings: they wait for a decision or a place, have a place, run, or are paused."""

    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0

    @property
    def open(self) -> int:
        """All of them."""
        return self.waiting + self.scheduled + self.running + self.paused


COUNTED: dict[str, Any] = {
    name: Count("id", filter=Q(state__in=PHASES[name])) for name in PhaseCounts.__slots__
}
"""The counts as aggregates of a query on bookings."""
SORTS: dict[str, Any] = {
    "booked": F("submitted"),
    "start": Coalesce("planned_starts", "submitted"),
    "name": Lower("name"),
    "state": F("state"),
    "tier": F("tier__name"),
    "project": F("project__name"),
    "owner": F("owner__username"),
    "cost": Coalesce("charged", "hold_amount"),
}
NEWEST = "-booked"
NUMBER = re.compile(r"(?:bk-?)?([0-9]{1,18})", re.IGNORECASE)
MAX_SEARCH_WORDS = 6
SALT = "bookings-list"
RESULTS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class BookingFilter:
    """A filter: a group of states ("" for all), a project's slug, only the reader's own bookings,
    labels as text, a reference, days in which it was open, and search words. `sort` is the order;
    `after` or `before` is the cursor of the page."""

    group: str = ""
    project: str = ""
    mine: bool = False
    labels: str = ""
    reference: str = ""
    days: Period | None = None
    text: str = ""
    sort: str = NEWEST
    after: str = ""
    before: str = ""

    @property
    def column(self) -> str:
        """The sorted column."""
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """Whether the largest or latest values come first."""
        return self.sort.startswith("-")


@dataclass(frozen=True, slots=True)
class BookingsPage:
    """One page of bookings, with the cursors of the previous and next page ("" if there is
    none)."""

    rows: tuple[Booking, ...]
    total: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The first few results of each kind."""

    bookings: tuple[Booking, ...]
    projects: tuple[Project, ...]
    people: tuple[Membership, ...]
    nodes: tuple[Node, ...]


def bookings_page(actor: Actor, wanted: BookingFilter) -> BookingsPage:
    """The requested page. A cursor names a booking, so that new bookings do not shift pages."""
    found = _arrays_once(bookings_filtered(actor, wanted))
    backwards = bool(wanted.before)
    cursor = _opened(wanted.before or wanted.after)
    down = wanted.is_descending != backwards
    rows = _ordered(found, wanted, down=down)
    if cursor is not None:
        value, key = cursor
        beyond = "lt" if down else "gt"
        rows = rows.filter(
            Q(**{f"sorted_by__{beyond}": value}) | Q(sorted_by=value, **{f"id__{beyond}": key})
        )
    taken = list(rows[: PAGE + 1])
    more, page = len(taken) > PAGE, taken[:PAGE]
    if backwards:
        page.reverse()
    has_before = (more if backwards else cursor is not None) and bool(page)
    has_after = (cursor is not None if backwards else more) and bool(page)
    return BookingsPage(
        rows=tuple(page),
        total=found.count(),
        before=_cursor(page[0]) if has_before else "",
        after=_cursor(page[-1]) if has_after else "",
    )


def _arrays_once(found: QuerySet[Booking]) -> QuerySet[Booking]:
    """The same with one element of each array: the first that matches."""
    elements = found.filter(array__isnull=False).order_by("array_id", "array_index")
    first = elements.distinct("array_id").values("id")
    return found.filter(Q(array=None) | Q(id__in=first))


def bookings_filtered(actor: Actor, wanted: BookingFilter) -> QuerySet[Booking]:
    """The bookings that match the filter and that the reader may see.

    Raises:
        Refused: `bad_label`.
    """
    found = bookings_visible(actor).select_related("project", "tier", "owner", "array")
    if wanted.group in GROUPS:
        found = found.filter(state__in=GROUPS[wanted.group])
    if wanted.project:
        found = found.filter(project__slug=wanted.project)
    if wanted.mine:
        found = found.filter(owner_id=actor.user_id)
    if wanted.reference:
        found = found.filter(external_ref=wanted.reference)
    if wanted.days:
        found = found.filter(open_in(wanted.days))
    found = with_labels(found, labels_read(wanted.labels, "label"))
    return found.filter(booking_search_condition(actor, wanted.text))


def open_in(days: Period) -> Q:
    """Matches bookings that had been requested and were not over at some instant of the days (UTC)."""
    since, until = days.first_second, days.last_second
    return Q(submitted__lt=until) & (Q(ended_at=None) | Q(ended_at__gt=since))


def with_labels(rows: QuerySet[Booking], labels: Mapping[str, str]) -> QuerySet[Booking]:
    """The bookings that have all of the labels."""
    for key, value in labels.items():
        found = BookingLabel.objects.filter(tenant_id=OuterRef("tenant_id"))
        found = found.filter(key=key, value=value, booking_id=OuterRef("id"))
        rows = rows.filter(Exists(found))
    return rows


def bookings_export(actor: Actor, wanted: BookingFilter, *, most: int) -> list[Booking]:
    """The first `most` bookings that match the filter, in its order."""
    rows = _ordered(bookings_filtered(actor, wanted), wanted, down=wanted.is_descending)
    return list(rows[:most])


def booking_search_condition(actor: Actor, text: str) -> Q:
    """Matches bookings for which every word is in the name, owner or project, or is the number."""
    condition = Q()
    for word in text.split()[:MAX_SEARCH_WORDS]:
        owners = members_named(actor, word).values_list("user_id", flat=True)
        projects = projects_named(actor, word).values_list("id", flat=True)
        either = Q(name__icontains=word)
        # Ids instead of joins: the list's index then covers the search.
        either |= Q(owner_id__in=set(owners)) | Q(project_id__in=set(projects))
        if number := NUMBER.fullmatch(word):
            either |= Q(number=int(number[1]))
        condition &= either
    return condition


def search_results(actor: Actor, text: str) -> SearchResults:
    """Everything whose name contains all words of `text`, newest bookings first."""
    words = text.split()[:MAX_SEARCH_WORDS]
    if not words:
        return SearchResults((), (), (), ())
    bookings = bookings_visible(actor).filter(booking_search_condition(actor, text))
    # Ids first: an index-only scan finds them, however many bookings there are.
    ids = list(bookings.order_by("-submitted").values_list("id", flat=True)[:RESULTS_SHOWN])
    rows = Booking.objects.filter(id__in=ids).select_related("project", "owner")
    projects, people, nodes = projects_named(actor, ""), members_named(actor, ""), Q()
    for word in words:
        projects &= projects_named(actor, word)
        people &= members_named(actor, word)
        nodes &= Q(name__icontains=word)
    return SearchResults(
        bookings=tuple(sorted(rows, key=lambda row: ids.index(row.id))),
        projects=tuple(projects.order_by("name", "id")[:RESULTS_SHOWN]),
        people=tuple(_once(people.select_related("user", "project").order_by("user__username"))),
        nodes=tuple(Node.objects.filter(nodes).order_by("name")[:RESULTS_SHOWN]),
    )


def members_named(actor: Actor, word: str) -> QuerySet[Membership]:
    """Members of the reader's visible projects who have the word in their name."""
    members = Membership.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        members = members.filter(project_id__in=list(actor.roles))
    names = Q(user__username__icontains=word)
    return members.filter(names | Q(user__first_name__icontains=word) | Q(user__last_name__icontains=word))


def projects_named(actor: Actor, word: str) -> QuerySet[Project]:
    """The reader's visible projects that have the word in their name."""
    projects = Project.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=list(actor.roles))
    return projects.filter(Q(name__icontains=word) | Q(slug__icontains=word))


def _ordered(found: QuerySet[Booking], wanted: BookingFilter, *, down: bool) -> QuerySet[Booking]:
    sign = "-" if down else ""
    key = SORTS.get(wanted.column, SORTS["booked"])
    return found.annotate(sorted_by=key).order_by(f"{sign}sorted_by", f"{sign}id")


def _cursor(row: Booking) -> str:
    value = vars(row)["sorted_by"]  # an annotation of _ordered
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return signing.dumps([text, str(row.id)], salt=SALT)


def _opened(cursor: str) -> tuple[str, str] | None:
    """The sort value and id in a cursor. None for an invalid one: the first page is shown."""
    if not cursor:
        return None
    try:
        value, key = signing.loads(cursor, salt=SALT)
    except (signing.BadSignature, ValueError):
        return None
    return value, key


def _once(members: QuerySet[Membership]) -> list[Membership]:
    """The first membership of each person."""
    found: dict[int, Membership] = {}
    for member in members[: RESULTS_SHOWN * 8]:
        found.setdefault(member.user_id, member)
    return list(found.values())[:RESULTS_SHOWN]


def phases_of(bookings: QuerySet[Booking]) -> PhaseCounts:
    """The counts of these bookings."""
    return PhaseCounts(**bookings.order_by().aggregate(**COUNTED))


def phases_by(bookings: QuerySet[Booking], column: str) -> dict[Hashable, PhaseCounts]:
    """The counts of these bookings by the value of a column."""
    rows = bookings.order_by().values(column).annotate(**COUNTED)
    return {row[column]: PhaseCounts(**{name: row[name] for name in PhaseCounts.__slots__}) for row in rows}
