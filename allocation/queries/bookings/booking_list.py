"""Lists of bookings: filters, words to search for, an order by column, pages that stay put."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core import signing
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Lower

from allocation.models import Booking
from allocation.queries.bookings.timeline import bookings_visible
from allocation.rules.states import OPEN, TERMINAL, State
from tenants.access import Actor
from tenants.models import Membership, Project

PAGE = 25
GROUPS: dict[str, tuple[State, ...]] = {
    "open": tuple(sorted(OPEN)),
    "waiting": (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED),
    "scheduled": (State.SCHEDULED,),
    "running": (State.STARTING, State.ACTIVE, State.PAUSING, State.PAUSED, State.ENDING),
    "over": tuple(sorted(TERMINAL)),
}
"""What the filter offers, and the states that each choice means."""

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


@dataclass(frozen=True, slots=True)
class BookingFilter:
    """A filter: a group of states ("" for all), a project's slug, mine alone, words that number,
    name, owner or project have; and the page `after` or `before` a cursor, in the order `sort`."""

    group: str = ""
    project: str = ""
    mine: bool = False
    text: str = ""
    sort: str = NEWEST
    after: str = ""
    before: str = ""

    @property
    def column(self) -> str:
        """The column that is sorted by."""
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """True for the largest, latest or last first."""
        return self.sort.startswith("-")


@dataclass(frozen=True, slots=True)
class BookingsPage:
    """One page of bookings with the cursors of those beside it, empty where there is none."""

    rows: tuple[Booking, ...]
    total: int
    before: str
    after: str


def bookings_page(actor: Actor, wanted: BookingFilter) -> BookingsPage:
    """The page that was asked for. A cursor names a booking, so that new ones move nothing."""
    found = bookings_filtered(actor, wanted)
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


def bookings_filtered(actor: Actor, wanted: BookingFilter) -> QuerySet[Booking]:
    """All that the filter lets through of what the reader may see."""
    found = bookings_visible(actor).select_related("project", "tier", "owner")
    if wanted.group in GROUPS:
        found = found.filter(state__in=GROUPS[wanted.group])
    if wanted.project:
        found = found.filter(project__slug=wanted.project)
    if wanted.mine:
        found = found.filter(owner_id=actor.user_id)
    return found.filter(booking_search_condition(actor, wanted.text))


def bookings_export(actor: Actor, wanted: BookingFilter, *, most: int) -> list[Booking]:
    """The first `most` of the filter, in its order."""
    rows = _ordered(bookings_filtered(actor, wanted), wanted, down=wanted.is_descending)
    return list(rows[:most])


def booking_search_condition(actor: Actor, text: str) -> Q:
    """Bookings of which every word is in the name, the owner or the project, or is the number."""
    condition = Q()
    for word in text.split()[:MAX_SEARCH_WORDS]:
        owners = members_named(actor, word).values_list("user_id", flat=True)
        projects = projects_named(actor, word).values_list("id", flat=True)
        either = Q(name__icontains=word)
        # Ids, not joins: the index of the list then holds all that a search looks at.
        either |= Q(owner_id__in=set(owners)) | Q(project_id__in=set(projects))
        if number := NUMBER.fullmatch(word):
            either |= Q(number=int(number[1]))
        condition &= either
    return condition


def members_named(actor: Actor, word: str) -> QuerySet[Membership]:
    """Members with the word in a name, of the projects that the reader may see."""
    members = Membership.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        members = members.filter(project_id__in=list(actor.roles))
    names = Q(user__username__icontains=word)
    return members.filter(
        names | Q(user__first_name__icontains=word) | Q(user__last_name__icontains=word)
    )


def projects_named(actor: Actor, word: str) -> QuerySet[Project]:
    """Projects with the word in their name, of those that the reader may see."""
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
    """What a cursor names; a broken one begins at the first page."""
    if not cursor:
        return None
    try:
        value, key = signing.loads(cursor, salt=SALT)
    except (signing.BadSignature, ValueError):
        return None
    return value, key
