"""Tenants with money, for tests about money."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import uuid4

from billing.models import Budget
from billing.rules import Period
from billing.services import budget_set, hold_place
from tenants.models import GpuClass, Project, Tenant, Tier
from tests.prices import price_book_publish

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
DECEMBER = Period(date(2026, 12, 1), date(2027, 1, 1))


def a_project(slug: str = "protein-folding", tenant: Tenant | None = None) -> Project:
    """A project, in a tenant of its own unless given one."""
    tenant = tenant or Tenant.objects.create(slug=f"t-{uuid4().hex[:8]}", name="Helix Institute")
    return Project.objects.create(tenant=tenant, slug=slug, name="Protein Folding")


def a_budget(project: Project, amount: str = "100", period: Period = NOVEMBER) -> Budget:
    """A budget set by the system."""
    return budget_set(actor_id=None, project=project, period=period, amount=Decimal(amount), now=NOW)


def a_hold(
    project: Project,
    amount: str = "10",
    *,
    starts: datetime = NOW,
    ends: datetime = datetime(2026, 11, 17, 16, tzinfo=UTC),
) -> "Hold":
    """A hold on the project's budgets."""
    hold = Hold(project, Decimal(amount))
    hold_place(
        tenant_id=project.tenant_id,
        project_id=project.id,
        reference=hold.reference,
        amount=hold.amount,
        starts=starts,
        ends=ends,
        now=NOW,
    )
    return hold


class Hold:
    """What a booking would remember of its money."""

    def __init__(self, project: Project, amount: Decimal) -> None:
        self.project = project
        self.amount = amount
        self.reference = uuid4()


def a_catalogue() -> None:
    """Two classes and two tiers."""
    GpuClass.objects.create(slug="h100", label="H100 80 GB", order=1)
    GpuClass.objects.create(slug="l40s", label="L40S 48 GB", order=2)
    Tier.objects.create(slug="standard", name="Standard", priority=200)
    Tier.objects.create(slug="spot", name="Spot", priority=100, pausable=True)


PRICES = {
    ("h100", "standard"): Decimal("4.80"),
    ("h100", "spot"): Decimal("1.68"),
    ("l40s", "standard"): Decimal("1.05"),
    ("l40s", "spot"): Decimal("0.37"),
}


def a_price_book(valid_from: datetime = NOW) -> None:
    """All prices of `a_catalogue`, in force from `valid_from`."""
    price_book_publish(actor_id=None, valid_from=valid_from, prices=PRICES, now=valid_from)
