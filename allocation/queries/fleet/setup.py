"""The setup progress of a new site and of a new tenant, from their data."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.models import Booking, GpuModel, Node
from allocation.queries.fleet.reported import ReportedModel, reported_models
from billing.models import Budget, PriceBook
from billing.price_books import prices_of
from tenants.models import GpuClass, Invitation, Membership, Project, Quota, Tenant, Tier
from tenants.queries import people_in


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """What a first booking requires. `unnamed` are reported models missing from the catalogue,
    `waiting` are quarantined nodes, `unpriced` are (class, tier) pairs without a price."""

    has_models: bool
    unnamed: tuple[ReportedModel, ...]
    has_tiers: bool
    has_prices: bool
    unpriced: tuple[tuple[str, str], ...]
    has_tenant: bool
    has_quota: bool
    waiting: tuple[Node, ...]
    ready: int
    has_booked: bool

    @property
    def done(self) -> tuple[bool, ...]:
        """Whether each step is done, in order."""
        return (
            self.has_models and not self.unnamed,
            self.has_tiers,
            self.has_prices and not self.unpriced,
            self.has_tenant,
            self.has_quota,
            self.ready > 0 and not self.waiting,
        )


def site_setup() -> SiteSetup:
    """The current setup progress."""
    book = PriceBook.objects.order_by("-version").first()
    priced = prices_of(book) if book else {}
    tiers = list(Tier.objects.values_list("slug", flat=True))
    return SiteSetup(
        has_models=GpuModel.objects.exists(),
        unnamed=tuple(each for each in reported_models() if each.model is None),
        has_tiers=bool(tiers),
        has_prices=book is not None,
        unpriced=tuple(
            (gpu_class, tier)
            for gpu_class in GpuClass.objects.values_list("slug", flat=True)
            for tier in tiers
            if (gpu_class, tier) not in priced
        ),
        has_tenant=Tenant.objects.exists(),
        has_quota=_has_quota(Quota.objects.all()),
        waiting=tuple(Node.objects.filter(state=Node.State.QUARANTINED)),
        ready=Node.objects.filter(state=Node.State.READY, gpus__isnull=False).distinct().count(),
        has_booked=has_booked(),
    )


def has_booked() -> bool:
    """Whether any booking has ever run."""
    return Booking.objects.filter(ready_at__isnull=False).exists()


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """What a tenant already has of what bookings require. An operator gives the quota."""

    has_project: bool
    is_given_quota: bool
    has_budget: bool
    has_people: bool


def tenant_setup_of(tenant_id: UUID, user_id: int, now: datetime) -> TenantSetup | None:
    """The setup progress for an admin of the tenant. None after its first booking."""
    if Booking.objects.filter(tenant_id=tenant_id).exists():
        return None
    today = now.astimezone(UTC).date()
    members = people_in(Membership.objects.filter(tenant_id=tenant_id)).exclude(user_id=user_id)
    invited = Invitation.objects.filter(tenant_id=tenant_id, state=Invitation.State.OPEN)
    return TenantSetup(
        has_project=Project.objects.filter(tenant_id=tenant_id, is_open=True).exists(),
        is_given_quota=_has_quota(Quota.objects.filter(tenant_id=tenant_id)),
        has_budget=Budget.objects.filter(
            tenant_id=tenant_id,
            level="project",
            project__is_open=True,
            starts__lte=today,
            ends__gt=today,
        ).exists(),
        has_people=members.exists() or invited.filter(expires__gt=now).exists(),
    )


def _has_quota(quotas: QuerySet[Quota]) -> bool:
    """Whether any of these quotas lets its tenant use GPUs."""
    usable = Q(guaranteed_units__gt=0) | ~Q(borrow_limit_units=0)
    return quotas.filter(usable, project=None).exists()
