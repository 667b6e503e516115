"""Bookings of all tenants, for operators."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from allocation.models import Allocation, Booking, BookingEvent
from allocation.queries.bookings.booking_list import GROUPS, MAX_SEARCH_WORDS, NUMBER, open_in
from allocation.rules.states import OPEN
from billing.rules import Period

OPEN_GROUP, OVER = "open", "over"
RELEASE_ASKED = "release_asked"


@dataclass(frozen=True, slots=True)
class SiteFilter:
    """A tenant, tier, class and node ("" for all), a group of states, days in which it was open, and
    search words. With days a group of "" is all states."""

    tenant: str = ""
    group: str = OPEN_GROUP
    tier: str = ""
    gpu_class: str = ""
    node: str = ""
    text: str = ""
    days: Period | None = None

    @property
    def needs_tenant(self) -> bool:
        """Whether the list would read the whole past of the site."""
        return self.group == OVER and not (self.tenant or self.days)


def site_bookings(wanted: SiteFilter) -> QuerySet[Booking]:
    """The bookings that match, of all tenants; for a transaction of an operator.

    Past bookings belong to one tenant, whose index finds the newest of any number.
    """
    found = Booking.objects.select_related("tenant", "project", "tier", "owner")
    if wanted.needs_tenant:
        return found.none()
    if wanted.days:
        found = found.filter(open_in(wanted.days))
    if wanted.group or not wanted.days:
        found = found.filter(state__in=GROUPS[wanted.group or OPEN_GROUP])
    if wanted.tenant:
        found = found.filter(tenant__slug=wanted.tenant)
    if wanted.tier:
        found = found.filter(tier_id=wanted.tier)
    if wanted.gpu_class or wanted.node:
        found = found.filter(id__in=_on_devices(wanted).values("booking_id"))
    for word in wanted.text.split()[:MAX_SEARCH_WORDS]:
        found = found.filter(_word_condition(word))
    return found


def _on_devices(wanted: SiteFilter) -> QuerySet[Allocation]:
    """The allocations on GPUs of the class and the node."""
    found = Allocation.objects.all()
    if wanted.gpu_class:
        found = found.filter(gpu__gpu_class_id=wanted.gpu_class)
    if wanted.node:
        found = found.filter(gpu__node__name=wanted.node)
    return found


def nodes_of_bookings(bookings: Iterable[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """The names of the nodes that each booking has now or next, in alphabetical order."""
    rows = (
        Allocation.objects.filter(booking_id__in=list(bookings))
        .exclude(state__in=(Allocation.State.ENDED, Allocation.State.SUPERSEDED))
        .order_by("gpu__node__name")
        .values_list("booking_id", "gpu__node__name")
        .distinct()
    )
    found: dict[UUID, tuple[str, ...]] = {}
    for booking, node in rows:
        found[booking] = (*found.get(booking, ()), node)
    return found


def releases_asked(bookings: Iterable[UUID]) -> Mapping[UUID, datetime]:
    """When an operator last asked for the release of each booking, if one did."""
    rows = BookingEvent.objects.filter(booking_id__in=list(bookings), kind=RELEASE_ASKED)
    return dict(rows.order_by("id").values_list("booking_id", "at"))


def _word_condition(word: str) -> Q:
    either = Q(name__icontains=word) | Q(project__name__icontains=word)
    for field in ("username", "first_name", "last_name"):
        either |= Q(**{f"owner__{field}__icontains": word})
    if number := NUMBER.fullmatch(word):
        either |= Q(number=int(number[1]))
    return either


@dataclass(frozen=True, slots=True)
class WorkloadUse:
    """Bookings of a workload: all, those that are open, and the placed ones by class."""

    bookings: int
    open: int
    by_class: Mapping[str, int]


NO_USE = WorkloadUse(0, 0, {})


def workload_uses(workloads: Sequence[str], *, since: datetime) -> dict[str, WorkloadUse]:
    """The bookings of these workloads that were requested since then, of all tenants; for a
    transaction of an operator."""
    rows = (
        Booking.objects.filter(submitted__gte=since, ask__workload__in=list(workloads))
        .values_list("ask__workload", "planned_class", "state")
        .annotate(count=Count("id"))
        .order_by()
    )
    found: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for workload, gpu_class, state, count in rows:
        found[workload].append((gpu_class, state, count))
    return {
        workload: WorkloadUse(
            bookings=sum(count for _, _, count in each),
            open=sum(count for _, state, count in each if state in OPEN),
            by_class=_sums((gpu_class, count) for gpu_class, _, count in each if gpu_class),
        )
        for workload, each in found.items()
    }


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for name, count in pairs:
        found[name] += count
    return dict(found)
