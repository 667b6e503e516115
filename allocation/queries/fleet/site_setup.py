"""How far a new site has been set up, from its data. For operators."""

from dataclasses import dataclass

from allocation.models import Booking, GpuModel, Node
from allocation.queries.fleet.reported import ReportedModel, reported_models
from billing.models import PriceBook
from billing.queries import prices_of
from tenants.models import GpuClass, Quota, Tenant, Tier


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """What a first booking needs. `unnamed` are reported models without a row, `waiting` the
    quarantined nodes, `unpriced` classes in tiers."""

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
        """Whether each step is done, in the order of the steps."""
        return (
            self.has_models and not self.unnamed,
            self.has_tiers,
            self.has_prices and not self.unpriced,
            self.has_tenant,
            self.has_quota,
            self.ready > 0 and not self.waiting,
        )


def site_setup() -> SiteSetup:
    """The steps as they stand."""
    book = PriceBook.objects.order_by("-version").first()
    priced = prices_of(book) if book else {}
    tiers = list(Tier.objects.values_list("slug", flat=True))
    quotas = Quota.objects.filter(project=None)
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
        has_quota=quotas.filter(guaranteed_units__gt=0).exists()
        or quotas.exclude(borrow_limit_units=0).exists(),
        waiting=tuple(Node.objects.filter(state=Node.State.QUARANTINED)),
        ready=Node.objects.filter(state=Node.State.READY, gpus__isnull=False).distinct().count(),
        has_booked=has_booked(),
    )


def has_booked() -> bool:
    """Whether any booking has ever run."""
    return Booking.objects.filter(ready_at__isnull=False).exists()
