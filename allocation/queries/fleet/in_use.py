"""What bookings have at one instant, and what of it is above guarantees. No limit counts rented GPUs."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Min, QuerySet, Sum

from allocation.models import Allocation
from allocation.rules.borrowing import UnitsHeld, units_above
from tenants.lab_queries import guarantees_now
from tenants.models import Quota

_TIER = ("booking__tier__counts_against_guarantee", "booking__tier__pausable")


@dataclass(frozen=True, slots=True)
class InUse:
    """Units of a class that a booking has now; `borrowed` of them are above the tenant's guarantee,
    or in a tier that uses none."""

    tenant_id: UUID
    project_id: UUID
    booking_id: UUID
    gpu_class: str
    units: int
    borrowed: int


def live_allocations(now: datetime) -> QuerySet[Allocation]:
    """The rows on hardware at this instant."""
    return Allocation.objects.filter(state__in=Allocation.LIVE, period__contains=now)


def in_use(now: datetime, tenant_id: UUID | None = None) -> list[InUse]:
    """What each booking has now of what quota counts, which are no rented machines; with a tenant only what
    its bookings have."""
    quotas, rows = Quota.objects.all(), live_allocations(now).filter(booking__pool="")
    if tenant_id is not None:
        quotas, rows = quotas.filter(tenant_id=tenant_id), rows.filter(tenant_id=tenant_id)
    named = ("tenant_id", "gpu__gpu_class_id", "project_id", "booking_id", *_TIER)
    summed = rows.values_list(*named).annotate(Sum("units"), Min("period__startswith"))
    held: dict[tuple[UUID, str], list[UnitsHeld]] = defaultdict(list)
    for tenant, name, project, booking, counts, pausable, units, since in summed.order_by():
        row = UnitsHeld(booking, project, int(units), counts, pausable, since)
        held[tenant, name].append(row)
    guaranteed: dict[tuple[UUID, str], int] = {}
    dated = guarantees_now(now)
    assigned: Counter[tuple[UUID, str]] = Counter()
    kept: dict[tuple[UUID, str], dict[UUID, int]] = defaultdict(dict)
    for quota in quotas:
        key = quota.tenant_id, quota.gpu_class_id
        if quota.project_id is None:
            guaranteed[key] = dated.get(key, quota.guaranteed_units)
            continue
        sure = dated.get((quota.project_id, quota.gpu_class_id), quota.guaranteed_units)
        assigned[key] += sure
        if quota.lend_limit_units is not None:
            least = max(0, sure - quota.lend_limit_units)
            kept[key][quota.project_id] = least
    found = []
    for key, mine in held.items():
        # A class of which the tenant has no quota has no guarantees, and nothing is borrowed.
        most = max(guaranteed.get(key, 0), assigned[key])
        above = units_above(mine, most, kept[key]) if key in guaranteed else {}
        found += [
            InUse(key[0], row.project, row.booking, key[1], row.units, above.get(row.booking, 0))
            for row in mine
        ]
    return found
