"""How well guarantees, tiers and fair share hold: claims, later starts and pauses by tenant.

Runs as an operator, who sees every tenant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Min, Q

from allocation.models import Booking, EventCounter, MovedStart, Pause
from solver.reasons.catalogue import BY_ID
from tenants.models import Tenant, Tier

DROPPED = "pauses_dropped:"
_STARTED = Q(events__kind="started")


@dataclass(slots=True)
class TenantClaims:
    """A tenant's claims on lent GPUs, its later starts by the key of the order, and the pauses of
    its bookings by rule.

    `asked` bookings inside the guarantee had to wait for GPUs that were lent; `had` of them started
    within the bound, `open` ones still can.
    """

    name: str
    asked: int = 0
    had: int = 0
    open: int = 0
    overtaken: dict[str, int] = field(default_factory=dict)
    delayed: int = 0
    pauses: dict[str, int] = field(default_factory=dict)

    @property
    def missed(self) -> int:
        """Claims that were not met within the bound."""
        return self.asked - self.had - self.open


@dataclass(frozen=True, slots=True)
class ClaimsReport:
    """The tenants that have something to show, and pauses that a plan dropped, by rule, of all
    time."""

    bound: timedelta
    tenants: tuple[TenantClaims, ...]
    dropped: Mapping[str, int]


def claims_report(since: datetime, now: datetime, cool_down: timedelta, margin: timedelta) -> ClaimsReport:
    """Everything since `since`.

    A run is left alone for the `cool_down` of the policy after a pause. `margin` is how long
    notices and cycles take in addition.
    """
    names = dict(Tenant.objects.values_list("id", "name"))
    found: dict[UUID, TenantClaims] = {key: TenantClaims(name) for key, name in names.items()}
    bound = _longest_hold(cool_down) + margin
    _claims_add(found, since, now, bound)
    moved = MovedStart.objects.filter(at__gte=since).values_list("tenant_id", "overtaken_by")
    for tenant, key, count in moved.annotate(count=Count("id")):
        if key:
            found[tenant].overtaken[key] = count
        else:
            found[tenant].delayed += count
    pauses = Pause.objects.filter(notified_at__gte=since, withdrawn=False)
    for tenant, rule, count in pauses.values_list("tenant_id", "rule").annotate(count=Count("id")):
        found[tenant].pauses[BY_ID[rule].code] = count
    shown = (each for each in found.values() if _has_something(each))
    return ClaimsReport(bound, tuple(sorted(shown, key=lambda each: each.name)), _dropped())


def _longest_hold(cool_down: timedelta) -> timedelta:
    """The longest time for which a pausable run is left alone, with its grace period."""
    rows = Tier.objects.filter(pausable=True).values_list("protected_seconds", "grace_seconds")
    held = (max(timedelta(seconds=a), cool_down) + timedelta(seconds=b) for a, b in rows)
    return max(held, default=timedelta(0))


def _claims_add(found: dict[UUID, TenantClaims], since: datetime, now: datetime, bound: timedelta) -> None:
    rows = Booking.objects.filter(claimed_from__gte=since).values_list(
        "tenant_id", "claimed_from", "ended_at"
    )
    for tenant, claimed, ended, started in rows.annotate(first=Min("events__at", filter=_STARTED)):
        is_late = (started or ended or now) > claimed + bound
        if started is None and ended is not None and not is_late:
            # Cancelled before the time was over.
            continue
        mine = found[tenant]
        mine.asked += 1
        mine.had += started is not None and not is_late
        mine.open += started is None and not is_late


def _dropped() -> dict[str, int]:
    rows = EventCounter.objects.filter(name__startswith=DROPPED, count__gt=0)
    return {row.name.removeprefix(DROPPED): row.count for row in rows.order_by("name")}


def _has_something(each: TenantClaims) -> bool:
    return bool(each.asked or each.overtaken or each.delayed or each.pauses)
