"""How far a new tenant has been set up, from its data."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from allocation.models import Booking
from billing.models import Budget
from tenants.models import Invitation, Membership, Project, Quota


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """What a tenant has that booking needs. `is_given_quota`: by the platform's operator."""

    has_project: bool
    is_given_quota: bool
    has_budget: bool
    has_people: bool


def tenant_setup_of(tenant_id: UUID, user_id: int, now: datetime) -> TenantSetup | None:
    """How far the tenant is, seen by one of its admins; None once something was booked in it."""
    if Booking.objects.filter(tenant_id=tenant_id).exists():
        return None
    today = now.astimezone(UTC).date()
    members = Membership.objects.filter(tenant_id=tenant_id).exclude(user_id=user_id)
    invited = Invitation.objects.filter(tenant_id=tenant_id, state=Invitation.State.OPEN)
    quotas = Quota.objects.filter(tenant_id=tenant_id, project=None)
    return TenantSetup(
        has_project=Project.objects.filter(tenant_id=tenant_id, is_open=True).exists(),
        is_given_quota=quotas.filter(guaranteed_units__gt=0).exists()
        or quotas.exclude(borrow_limit_units=0).exists(),
        has_budget=Budget.objects.filter(
            tenant_id=tenant_id, project__is_open=True, starts__lte=today, ends__gt=today
        ).exists(),
        has_people=members.exists() or invited.filter(expires__gt=now).exists(),
    )
