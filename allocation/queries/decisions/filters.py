"""Decisions by what they did, organisation, and time: for operators."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet

from allocation.models import BookingEvent, Decision
from allocation.queries.decisions.decisions import DecisionOf
from tenants.models import Tenant

DID = {
    "assigns": "placed bookings",
    "moves": "moved bookings",
    "waits": "planned later starts",
    "pauses": "asked bookings to pause",
    "refusals": "refused bookings",
    "extensions": "answered extensions",
}
"""What a decision can be asked for, by the part of its plan."""


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """`did`: a part of the plan that has rows. `tenant`: the slug of an organisation of which it changed a
    booking. Empty: any. The time is half-open."""

    did: str = ""
    tenant: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_any(self) -> bool:
        """Whether it leaves out nothing."""
        return not (self.did or self.tenant or self.since or self.until)


def decisions_found(wanted: DecisionFilter) -> QuerySet[Decision]:
    """Returns those of the filter, the newest first, without their documents. An organisation or a part that
    there is not has none."""
    rows = Decision.objects.defer("snapshot", "plan").order_by("-id")
    if wanted.did:
        rows = rows.filter(**{f"counts__{wanted.did}__gt": 0}) if wanted.did in DID else rows.none()
    if wanted.since is not None:
        rows = rows.filter(at__gte=wanted.since)
    if wanted.until is not None:
        rows = rows.filter(at__lt=wanted.until)
    if wanted.tenant:
        tenants = list(Tenant.objects.filter(slug=wanted.tenant).values_list("id", flat=True))
        events = BookingEvent.objects.annotate(decided=DecisionOf(F("detail")))
        events = events.filter(tenant_id__in=tenants, decided__isnull=False)
        rows = rows.filter(id__in=events.values("decided"))
    return rows


def events_by_decision(numbers: Collection[int]) -> dict[int, list[BookingEvent]]:
    """Returns for operators the events of these decisions with their bookings, by decision, the
    oldest first."""
    rows = BookingEvent.objects.annotate(decided=DecisionOf(F("detail"))).select_related(
        "booking__tenant", "booking__project"
    )
    tenants = list(Tenant.objects.values_list("id", flat=True))
    rows = rows.filter(tenant_id__in=tenants, decided__isnull=False, decided__in=numbers)
    found: dict[int, list[BookingEvent]] = defaultdict(list)
    for event in rows.order_by("id"):
        found[event.decided].append(event)
    return found
