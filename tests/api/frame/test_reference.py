"""Reference data that a web process keeps in memory: a change counts from the next request on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from allocation.features.requirements.models import Requirement
from allocation.models import ApprovalRule, MigPlacement
from billing.models import Account, Guardrail
from billing.rules import BudgetOwner, BudgetTerms, Period, month_after, month_of
from billing.services import budget_put
from tenants.models import Project, Quota, Tier
from tenants.platform.reference import by_version, reference_tx
from tests.api.builders import Site, a_site, said
from tests.prices import price_book_publish
from tests.roles import as_owner, as_role, as_system

pytestmark = pytest.mark.turn

ASK = {"count": 1, "classes": ["h100"], "profile": "1g.10gb", "duration": 3600}
BODY = {"project": "folding", "tier": "standard", "ask": ASK}


def price_set(per_hour: str) -> None:
    """Publishes new prices of the class from now on."""
    now = timezone.now().replace(microsecond=0)
    prices = dict.fromkeys([("h100", "standard"), ("h100", "spot")], Decimal(per_hour))
    price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)


def tenant_budget(site: Site) -> None:
    """Gives the organisation a budget that its bookings have used up."""
    held = Account.objects.get(id=site.budget.account_id).pending
    month = month_of(timezone.now().date())
    terms = BudgetTerms(Period(month.starts, month_after(month.ends)), held)
    owner = BudgetOwner(site.tenant.id)
    budget_put(actor_id=None, owner=owner, terms=terms, now=timezone.now())


def booked(site: Site) -> str:
    """The code of the refusal of a booking, or its state."""
    answer = said(site.researcher.post("bookings", BODY, idempotency_key=str(uuid4())))
    return str(answer.get("code", answer.get("state")))


# Reference data and what a request gets when it has changed; each starts from a site that books.
CHANGES: dict[str, tuple[Callable[[Site], object], str]] = {
    "a project is closed": (
        lambda site: Project.objects.filter(id=site.project.id).update(is_open=False),
        "not_allowed",
    ),
    "a tier is shorter": (
        lambda _: Tier.objects.filter(slug="standard").update(max_duration_seconds=60),
        "too_long",
    ),
    "a quota is gone": (
        lambda site: Quota.objects.filter(tenant=site.tenant).delete(),
        "class_not_open",
    ),
    "a profile is gone": (
        lambda _: MigPlacement.objects.filter(profile="1g.10gb").delete(),
        "impossible_profile",
    ),
    "prices are published": (lambda _: price_set("90000"), "budget_exceeded"),
    "a budget of the organisation": (tenant_budget, "budget_exceeded"),
    "a rung of a ladder": (
        lambda site: Guardrail.objects.create(
            tenant=site.tenant,
            budget=site.budget,
            measure="committed",
            percent=1,
            action="no_bookings",
        ),
        "bookings_stopped",
    ),
    "a rule of approval": (
        lambda site: ApprovalRule.objects.create(
            tenant=site.tenant,
            name="All",
            min_gpu_hours=Decimal("0.01"),
            created=timezone.now(),
            steps=[{"role": "admin", "needed": 1, "hours": 24, "escalates": False}],
            created_by_id=site.people["admin"].id,
        ),
        "awaiting_approval",
    ),
    "a class demands a text": (
        lambda site: Requirement.objects.create(
            gpu_class_id="h100",
            kind="terms",
            name="Fair use",
            text="x",
            version=1,
            created=timezone.now(),
            created_by_id=site.people["operator"].id,
        ),
        "terms_missing",
    ),
}


@pytest.fixture
def warm(db: None) -> Site:
    """A site whose reference data is in memory: two bookings were made, and the third reads none.

    The first one makes an account, which gives the data a new version."""
    site = a_site(budget="20")
    assert [booked(site), booked(site)] == ["requested", "requested"]
    with CaptureQueriesContext(connection) as seen:
        assert booked(site) == "requested"
    read = [each["sql"] for each in seen if "tenants_quota" in each["sql"]]
    assert not read
    return site


def test_a_change_counts_from_the_next_request_on(warm: Site) -> None:
    """Whatever the request reads from memory; what is rolled back never counts."""
    for name, (change, becomes) in CHANGES.items():
        with transaction.atomic():
            with as_owner():
                change(warm)
            assert booked(warm) == becomes, name
            transaction.set_rollback(True)
        assert booked(warm) == "requested", name


def test_a_table_without_its_trigger_would_be_noticed(warm: Site) -> None:
    """The control: as long as the versions stay, memory answers."""
    with as_system(), kept_versions():
        Project.objects.filter(id=warm.project.id).update(is_open=False)
    assert booked(warm) == "requested"


@contextmanager
def kept_versions() -> Iterator[None]:
    """Inside, changes give no new version: they are taken back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT owner, version FROM tenants_reference")
        before = cursor.fetchall()
        yield
        with as_role("portal_owner"):
            cursor.executemany(
                "UPDATE tenants_reference SET version = %s WHERE owner IS NOT DISTINCT FROM %s",
                [(version, owner) for owner, version in before],
            )


def test_what_the_own_transaction_changed_is_not_kept(warm: Site) -> None:
    """A rollback would leave in memory what never was."""
    read: list[int] = []

    @by_version
    def names() -> str:
        read.append(1)
        return str(Project.objects.get(id=warm.project.id).name)

    with transaction.atomic():
        with reference_tx(warm.tenant.id):
            Project.objects.filter(id=warm.project.id).update(name="Never")
            assert names() == "Never"
        transaction.set_rollback(True)
    with reference_tx(warm.tenant.id):
        assert names() == names() == warm.project.name
    assert len(read) == 2
