"""Budgets above and below a project: every level counts, refuses and is named."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction

from billing.models import Account, Budget, Campaign, Transfer
from billing.platform_limits import platform_limits
from billing.queries import budget_figures_of, ledger_check
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import (
    HoldRequest,
    Rung,
    budget_put,
    charge_add,
    charge_refund,
    hold_settle,
    holds_move,
    holds_place,
    ladder_set,
    new_holds_place,
)
from billing.services.guardrails import guardrails_evaluate
from billing.services.renewals import budgets_renew
from tenants import models as tenants
from tenants.models import Project
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services.labs.labs import project_lab_set
from tests.billing.builders import DECEMBER, NOVEMBER, NOW, a_budget, a_project
from tests.builders import a_tenant_admin, a_user, an_actor
from tests.roles import as_role, as_system

pytestmark = pytest.mark.django_db
LATE = datetime(2026, 12, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _system() -> Iterator[None]:
    with as_system():
        yield


class Lab:
    """A project with money in a lab, two people and a campaign."""

    def __init__(self, amount: str = "1000") -> None:
        self.project: Project = a_project()
        tenant = self.project.tenant
        self.lab = tenants.Lab.objects.create(tenant=tenant, slug="imaging", name="Imaging")
        tenants.Project.objects.filter(id=self.project.id).update(lab=self.lab)
        self.mara, self.jonas = a_user().pk, a_user().pk
        self.campaign = Campaign.objects.create(
            tenant=self.project.tenant, project=self.project, slug="ablation", name="Ablation"
        )
        a_budget(self.project, amount)
        a_budget(self.project, amount, DECEMBER)

    def owner(self, level: str) -> BudgetOwner:
        tenant, project = self.project.tenant_id, self.project.id
        return {
            "platform": BudgetOwner(None),
            "tenant": BudgetOwner(tenant),
            "lab": BudgetOwner(tenant, lab_id=self.lab.id),
            "project": BudgetOwner(tenant, project),
            "campaign": BudgetOwner(tenant, project, campaign_id=self.campaign.id),
            "person": BudgetOwner(tenant, project, person_id=self.mara),
        }[level]

    def limit(self, level: str, amount: str, period: Period = NOVEMBER, **more: bool) -> Budget:
        terms = BudgetTerms(period, Decimal(amount), **more)
        return budget_put(actor_id=None, owner=self.owner(level), terms=terms, now=NOW)

    def hold(
        self,
        amount: str,
        person: int | None = None,
        campaign: UUID | None = None,
        window: tuple[datetime, datetime] = (NOW, datetime(2026, 11, 17, 16, tzinfo=UTC)),
        now: datetime = NOW,
    ) -> HoldRequest:
        request = HoldRequest(uuid4(), Decimal(amount), *window, person or self.mara, campaign)
        refused = holds_place(
            tenant_id=self.project.tenant_id,
            project_id=self.project.id,
            requests=[request],
            now=now,
        )
        if refused:
            raise refused[request.reference]
        return request

    def settle(self, hold: HoldRequest, amount: str) -> Decimal:
        return hold_settle(
            tenant_id=self.project.tenant_id,
            reference=hold.reference,
            amount=Decimal(amount),
            now=NOW,
        )


def spent_and_held(budget: Budget) -> tuple[Decimal | int, Decimal | int]:
    figures = budget_figures_of([budget.id])[budget.id]
    return figures.spent, figures.held


@pytest.mark.parametrize(
    ("level", "owner", "subject"),
    [
        ("tenant", "tenant_admin", "Helix Institute has €20.00 left for November 2026"),
        ("lab", "tenant_admin", "The lab Imaging has €20.00 left for November 2026"),
        ("campaign", "lead", "The campaign Ablation has €20.00 left"),
        ("person", "lead", "’s part of Protein Folding has €20.00 left"),
    ],
)
def test_each_level_refuses_what_it_can_not_pay_and_says_whose_it_is(
    level: str, owner: str, subject: str
) -> None:
    lab = Lab()
    lab.limit(level, "50")
    lab.hold("30", campaign=lab.campaign.id)
    with pytest.raises(Refused) as refusal:
        lab.hold("20.01", campaign=lab.campaign.id)
    no = refusal.value
    assert subject in no.sentence
    assert (no.code, no.owner, no.numbers["level"], no.numbers["short"]) == (
        "budget_exceeded",
        owner,
        level,
        "0.01",
    )
    assert no.frees_at == datetime(2026, 12, 1, tzinfo=UTC)
    assert Transfer.objects.filter(kind="hold").count() == 1
    assert ledger_check() == []


def test_other_people_other_campaigns_and_other_months_don_t_count() -> None:
    lab = Lab()
    person, campaign = lab.limit("person", "50"), lab.limit("campaign", "60")
    lab.hold("100", person=lab.jonas)
    lab.hold("200", person=lab.jonas, campaign=lab.campaign.id, window=(LATE, LATE.replace(hour=4)))
    lab.hold("40")
    lab.hold("55", person=lab.jonas, campaign=lab.campaign.id)
    assert spent_and_held(person) == (0, 40)
    assert spent_and_held(campaign) == (0, 55)
    assert ledger_check() == []


def test_a_new_limit_counts_what_is_spent_and_held_already() -> None:
    lab = Lab()
    lab.settle(lab.hold("100"), "60")
    lab.hold("25")
    for level in ("platform", "tenant", "lab", "person"):
        with pytest.raises(Refused) as refusal:
            lab.limit(level, "84.99")
        assert (refusal.value.code, refusal.value.numbers["used"]) == ("budget_below_use", "85.00")
        assert spent_and_held(lab.limit(level, "85")) == (60, 25)
    assert ledger_check() == []


def test_a_soft_limit_counts_and_refuses_nothing_until_it_is_hard() -> None:
    lab = Lab()
    soft = lab.limit("tenant", "50", is_hard=False)
    lab.hold("80")
    assert budget_figures_of([soft.id])[soft.id].left == -30
    with pytest.raises(Refused, match="budget_below_use"):
        lab.limit("tenant", "79", is_hard=True)
    assert lab.limit("tenant", "80", is_hard=True).account.limited


def test_a_hold_is_split_where_any_level_begins_a_period() -> None:
    """Half of the window is before the campaign's days; only the other half counts there."""
    lab = Lab()
    days = Period(date(2026, 11, 18), date(2026, 11, 25))
    campaign = lab.limit("campaign", "100", days)
    tenant = lab.limit("tenant", "1000")
    window = (datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 19, tzinfo=UTC))
    hold = lab.hold("80", campaign=lab.campaign.id, window=window)
    assert spent_and_held(campaign) == (0, 40)
    assert spent_and_held(tenant) == (0, 80)
    lab.settle(hold, "50")
    assert spent_and_held(campaign) == (10, 0)
    assert spent_and_held(tenant) == (50, 0)
    assert ledger_check() == []


def test_corrections_and_moves_reach_every_level() -> None:
    lab = Lab()
    person, tenant = lab.limit("person", "500"), lab.limit("tenant", "500")
    above = [lab.limit("lab", "500"), lab.limit("platform", "500")]
    hold = lab.hold("80")
    lab.settle(hold, "80")
    at: dict[str, Any] = {
        "tenant_id": lab.project.tenant_id,
        "reference": hold.reference,
        "note": "",
        "now": NOW,
    }
    charge_refund(amount=Decimal(30), **at)
    charge_add(amount=Decimal(5), **at)
    assert spent_and_held(person) == spent_and_held(tenant) == (55, 0)
    assert [spent_and_held(each) for each in above] == [(55, 0)] * 2
    moved = lab.hold("18")
    later = HoldRequest(moved.reference, Decimal(18), LATE, LATE.replace(hour=6), lab.mara)
    for _ in range(2):
        before = Transfer.objects.count()
        assert not holds_move(
            tenant_id=lab.project.tenant_id, project_id=lab.project.id, requests=[later], now=NOW
        )
    assert Transfer.objects.count() == before
    assert spent_and_held(person) == (55, 0)
    assert ledger_check() == []


@pytest.mark.turn
def test_random_lives_of_holds_add_up_at_every_level() -> None:
    """An independent fold in Python: the sum of each level over who and when."""
    random = Random(15)  # noqa: S311 (not a secret)
    lab = Lab("100000")
    limits = {
        "platform": lab.limit("platform", "100000"),
        "tenant": lab.limit("tenant", "100000"),
        "lab": lab.limit("lab", "100000"),
        "person": lab.limit("person", "100000"),
        "campaign": lab.limit("campaign", "100000"),
    }
    held: dict[str, Decimal] = dict.fromkeys(limits, Decimal(0))
    spent: dict[str, Decimal] = dict.fromkeys(limits, Decimal(0))
    for _ in range(40):
        person = random.choice([lab.mara, lab.jonas])
        campaign = random.choice([None, lab.campaign.id])
        in_november = random.random() < 0.7
        start = NOW if in_november else LATE
        amount = Decimal(random.randrange(1, 10**8)) / 10**6
        hold = lab.hold(str(amount), person, campaign, (start, start.replace(hour=23)))
        counted = [
            level
            for level in limits
            if in_november
            and (
                level in ("platform", "tenant", "lab")
                or (level == "person" and person == lab.mara)
                or (level == "campaign" and campaign)
            )
        ]
        charged = None
        if random.random() < 0.6:
            charged = lab.settle(hold, str(amount * random.randrange(0, 3) / 2))
        for level in counted:
            if charged is None:
                held[level] += amount
            else:
                spent[level] += charged
    assert {level: spent_and_held(budget) for level, budget in limits.items()} == {
        level: (spent[level], held[level]) for level in limits
    }
    assert ledger_check() == []


def test_the_platform_refuses_what_it_can_not_pay_without_saying_what_others_spend() -> None:
    lab, other = Lab(), Lab()
    lab.limit("platform", "50")
    other.hold("30")
    with pytest.raises(Refused, match="platform's own budget") as refusal:
        lab.hold("20.01")
    assert (refusal.value.code, refusal.value.owner) == ("budget_exceeded", "operator")
    assert not refusal.value.numbers
    with as_role("portal_web"), tenant_tx(lab.project.tenant_id):
        assert not Budget.objects.filter(level="platform").exists()
        assert [each.starts for each in platform_limits()] == [NOVEMBER.starts]
        with pytest.raises(Refused, match="platform's own budget"):
            lab.hold("20.01")
        lab.hold("20")
    assert ledger_check() == []


def test_the_ladder_of_the_platform_stops_new_bookings_of_every_tenant() -> None:
    lab, other = Lab(), Lab()
    budget = lab.limit("platform", "100", is_hard=False)
    rungs = [Rung("committed", 80, "no_bookings")]
    ladder_set(actor_id=None, budget=budget, rungs=rungs, now=NOW)
    with pytest.raises(Refused, match="Operators approve no bookings"):
        ladder_set(actor_id=None, budget=budget, rungs=[Rung("spent", 9, "approval")], now=NOW)
    hold = other.hold("85")
    assert guardrails_evaluate(NOW) == 1
    request = HoldRequest(uuid4(), Decimal(1), NOW, NOW.replace(hour=12), lab.mara)
    where: dict[str, Any] = {"tenant_id": lab.project.tenant_id, "project_id": lab.project.id}
    with as_role("portal_web"), tenant_tx(lab.project.tenant_id):
        found = new_holds_place(**where, requests=[request], now=NOW)
    assert found.refused[request.reference].code == "bookings_stopped"
    other.settle(hold, "0")
    assert guardrails_evaluate(NOW) == 1
    assert not new_holds_place(**where, requests=[request], now=NOW).refused


def test_a_project_brings_its_money_to_the_budget_of_its_lab() -> None:
    lab = Lab()
    old = lab.limit("lab", "100")
    lab.settle(lab.hold("40"), "30")
    lab.hold("25")
    tenant = lab.project.tenant
    target = tenants.Lab.objects.create(tenant=tenant, slug="next", name="Next")
    terms = BudgetTerms(NOVEMBER, Decimal(50))
    new = budget_put(actor_id=None, owner=BudgetOwner(tenant.id, lab_id=target.id), terms=terms, now=NOW)
    admin = an_actor(a_tenant_admin(tenant))
    with pytest.raises(Refused, match="more than the budget of the lab has left"):
        project_lab_set(actor=admin, project=lab.project.slug, lab="next", now=NOW)
    budget_put(actor_id=None, owner=new.owner, terms=replace(terms, amount=Decimal(60)), now=NOW)
    project_lab_set(actor=admin, project=lab.project.slug, lab="next", now=NOW)
    assert (spent_and_held(old), spent_and_held(new)) == ((0, 0), (30, 25))
    lab.hold("5")
    assert (spent_and_held(old), spent_and_held(new)) == ((0, 0), (30, 30))
    assert ledger_check() == []


def test_the_database_keeps_levels_apart_and_in_place() -> None:
    lab = Lab()
    budget = lab.limit("tenant", "500")
    account = Account.objects.create(tenant=lab.project.tenant, kind="budget")
    with pytest.raises(IntegrityError, match="budget_periods_apart"), transaction.atomic():
        Budget.objects.create(
            tenant=lab.project.tenant,
            level="tenant",
            account=account,
            starts=date(2026, 11, 30),
            ends=date(2026, 12, 2),
        )
    with pytest.raises(IntegrityError, match="budget_level"), transaction.atomic():
        Budget.objects.create(
            tenant=lab.project.tenant,
            level="person",
            project=lab.project,
            account=account,
            starts=date(2027, 1, 1),
            ends=date(2027, 1, 2),
        )
    with pytest.raises(Exception, match="keeps its level"), transaction.atomic():
        Budget.objects.filter(id=budget.id).update(ends=date(2027, 1, 1))
    foreign = Lab()
    with pytest.raises(IntegrityError, match="campaign_id_in_project"), transaction.atomic():
        Budget.objects.create(
            tenant=lab.project.tenant,
            level="campaign",
            project=lab.project,
            account=account,
            campaign=foreign.campaign,
            starts=date(2027, 1, 1),
            ends=date(2027, 1, 2),
        )


def test_a_repeated_budget_renews_itself_and_takes_along_what_is_left() -> None:
    lab = Lab()
    budget = lab.limit("tenant", "500", is_repeated=True, rolls_over=True)
    hold = lab.hold("100")
    assert budgets_renew(NOW) == 1
    assert budgets_renew(NOW) == 0
    december = Budget.objects.get(level="tenant", starts=DECEMBER.starts)
    assert (december.ends, december.rolls_over) == (DECEMBER.ends, True)
    # The next one is for January; 400 of November move, 100 are still held.
    assert budgets_renew(LATE) == 2
    assert budget_figures_of([december.id])[december.id].amount == 900
    lab.settle(hold, "70")
    assert budgets_renew(LATE) == 1
    after = budget_figures_of([budget.id, december.id])
    assert [after[each.id].amount for each in (budget, december)] == [70, 930]
    january = Budget.objects.get(level="tenant", starts=DECEMBER.ends)
    assert budget_figures_of([january.id])[january.id].amount == 500
    assert ledger_check() == []
