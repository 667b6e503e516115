"""What owners of quotas use at one instant, and a summary of each organisation, for operators."""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum

from allocation.models import Booking, ChargeSum
from allocation.queries.bookings.booking_list import PhaseCounts, phases_by
from allocation.queries.fleet.in_use import in_use, live_allocations
from allocation.rules.states import OPEN, WAITING, State
from billing.models import Transfer
from billing.rules import UNITS_PER_GPU
from tenants.models import AuditEntry, GpuClass, Membership, Quota, Tenant
from tenants.queries import people_in

Owner = Literal["project_id", "tenant_id"]
ClassKey = tuple[UUID, str]
HOST = GpuClass.Kind.HOST


@dataclass(frozen=True, slots=True)
class UseNow:
    """Units of a class that an owner's bookings have now. `borrowed` is above its guarantee, or
    in a tier that uses no guarantee.

    `running` and `planned` count bookings; those have a planned start in the class.
    """

    used: int = 0
    borrowed: int = 0
    running: int = 0
    planned: int = 0


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """An organisation at one instant. `guaranteed` and `used` are units over all classes of GPUs, `cores`
    and `cores_used` over those of host cores.

    `spent` is what was charged since the month (UTC) began, as budgets have it; `held` the money of
    open bookings for all their days, also those after the month.
    `last_act` is the time of the newest act of a person in its log.
    """

    tenant: Tenant
    people: int
    guaranteed: int
    used: int
    phases: PhaseCounts
    spent: Decimal
    held: Decimal
    last_act: datetime | None
    cores: int = 0
    cores_used: int = 0

    @property
    def guaranteed_gpus(self) -> float:
        """The guarantee in GPUs, with as many places as pages show."""
        return round(self.guaranteed / UNITS_PER_GPU, 3)

    @property
    def used_gpus(self) -> float:
        """The use in GPUs, with as many places as pages show."""
        return round(self.used / UNITS_PER_GPU, 3)


def use_now(owner: Owner, now: datetime, tenant_id: UUID | None = None) -> dict[ClassKey, UseNow]:
    """Returns the use by owner and class; with a tenant only that of its projects."""
    bookings = Booking.objects.all()
    if tenant_id is not None:
        bookings = bookings.filter(tenant_id=tenant_id)
    found: dict[ClassKey, UseNow] = defaultdict(UseNow)
    for row in in_use(now, tenant_id):
        key = getattr(row, owner), row.gpu_class
        has = found[key]
        found[key] = UseNow(
            used=has.used + row.units,
            borrowed=has.borrowed + row.borrowed,
            running=has.running + 1,
        )
    planned = bookings.filter(state__in=_PLANNED, planned_class__gt="")
    counted = planned.values_list(owner, "planned_class").annotate(Count("id"))
    for owner_id, gpu_class, count in counted.order_by():
        key = owner_id, gpu_class
        found[key] = replace(found[key], planned=count)
    return dict(found)


def tenant_summaries(now: datetime) -> list[TenantSummary]:
    """Returns all organisations by name. For operators."""
    month = now.astimezone(UTC).date().replace(day=1)
    people = people_in(Membership.objects.all()).values_list("tenant_id")
    phases = phases_by(Booking.objects.filter(state__in=OPEN), "tenant_id")
    acts = AuditEntry.objects.filter(tenant_id=OuterRef("id"), actor__isnull=False)
    members = dict(people.annotate(count=Count("user_id", distinct=True)).order_by())
    quotas, live = Quota.objects.filter(project=None), live_allocations(now)
    guaranteed = _sums(quotas.exclude(gpu_class__kind=HOST), "guaranteed_units")
    used = _sums(live.exclude(gpu__gpu_class__kind=HOST), "units")
    cores = _sums(quotas.filter(gpu_class__kind=HOST), "guaranteed_units")
    cores_used = _sums(live.filter(gpu__gpu_class__kind=HOST), "units")
    spent = _sums(ChargeSum.objects.filter(day__gte=month), "exact")
    held = _sums(Transfer.objects.filter(kind="hold", end=None), "amount")
    newest = Subquery(acts.order_by("-at", "-id").values("at")[:1])
    return [
        TenantSummary(
            tenant,
            people=members.get(tenant.id, 0),
            guaranteed=int(guaranteed.get(tenant.id, 0)),
            used=int(used.get(tenant.id, 0)),
            phases=phases.get(tenant.id, PhaseCounts()),
            spent=spent.get(tenant.id, Decimal(0)),
            held=held.get(tenant.id, Decimal(0)),
            last_act=tenant.last_act,
            cores=int(cores.get(tenant.id, 0)),
            cores_used=int(cores_used.get(tenant.id, 0)),
        )
        for tenant in Tenant.objects.annotate(last_act=newest).order_by("name", "id")
    ]


_PLANNED = (*WAITING, State.SCHEDULED)


def _sums(rows: QuerySet[Any], column: str) -> dict[UUID, Decimal]:
    return dict(rows.values_list("tenant_id").annotate(total=Sum(column)).order_by())
