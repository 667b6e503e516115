"""The limits of a tier that are in force for a tenant."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from allocation.models import TierVersion
from allocation.rules.tier_limits import Bounds, StartHours, TierLimits
from tenants.models import Tier
from tenants.platform.reference import by_version


def bounds_of(tier: Tier) -> Bounds:
    """Returns what the operator allows in a tier."""
    return Bounds(
        tier.min_duration_seconds,
        tier.max_duration_seconds,
        tier.lead_seconds,
        tier.advance_seconds,
        tier.max_open,
        tier.max_open_gpus,
    )


def own_bounds(version: TierVersion) -> Bounds:
    """Returns what a version demands inside these bounds."""
    return Bounds(
        version.min_seconds,
        version.max_seconds,
        version.min_lead_seconds,
        version.max_lead_seconds,
        version.max_open,
        version.max_open_gpus,
    )


def version_in_force(tenant_id: UUID, tier: str, at: datetime) -> TierVersion | None:
    """Returns the tenant's version of a tier at an instant; None before its first."""
    rows = [each for each in versions_read(tenant_id) if each.tier_id == tier]
    return next((each for each in reversed(rows) if each.starts <= at), None)


def tier_limits(tenant_id: UUID, tier: Tier, at: datetime) -> TierLimits:
    """Returns the limits of a tier for a tenant at an instant."""
    return limits_by(tier, version_in_force(tenant_id, tier.slug, at))


def limits_by(tier: Tier, version: TierVersion | None) -> TierLimits:
    """Returns the limits of a tier by a tenant's version of it."""
    if version is None:
        return TierLimits(bounds_of(tier))
    return TierLimits(bounds_of(tier), own_bounds(version), frozenset(version.classes), start_hours(version))


def start_hours(version: TierVersion) -> StartHours | None:
    """Returns the hours in which a version lets bookings start; None: at any time."""
    if not version.start_hours:
        return None
    weekly = tuple((int(day), int(first), int(ends)) for day, first, ends in version.start_hours)
    return StartHours(version.zone, weekly)


@by_version
def versions_read(tenant_id: UUID) -> Sequence[TierVersion]:
    """Returns the versions of a tenant by tier and start, without those that were withdrawn."""
    rows = TierVersion.objects.filter(tenant_id=tenant_id, withdrawn=None)
    return tuple(rows.order_by("tier_id", "starts", "id"))
