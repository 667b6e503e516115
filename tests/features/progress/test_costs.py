"""What a unit of progress of a campaign costs, and the limit that notifies and pauses."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.features.progress.costs import unit_cost_store, unit_costs
from allocation.features.progress.models import Progress
from allocation.models import Booking
from allocation.queries.bookings.rung_effects import budget_scope
from allocation.rules.states import State
from billing.models import Budget, BudgetAlert, Campaign, Guardrail
from billing.queries import rungs_to_mark
from billing.rules import BudgetOwner, BudgetTerms, Period, month_after, month_of
from billing.services import Rung, budget_put, ladder_set
from billing.services.guardrails import guardrails_evaluate, ladder_copy, restraining_rungs
from portal.integrations.notifications.words_of_payloads import budget_headline, budget_sentences
from tenants.models import OutboxMessage
from tenants.platform.errors import Refused
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def now() -> datetime:
    """The present second."""
    return timezone.now().replace(microsecond=0)


@pytest.fixture
def campaign(site: Site) -> Campaign:
    """A campaign with a budget of this month."""
    month = month_of(now().astimezone(UTC).date())
    with as_system():
        found = Campaign.objects.create(
            tenant=site.tenant, project=site.project, slug="ablation", name="Ablation"
        )
        budget_put(
            actor_id=None,
            owner=BudgetOwner(site.tenant.id, site.project.id, campaign_id=found.id),
            terms=BudgetTerms(Period(month.starts, month_after(month.ends)), Decimal(500)),
            now=now(),
        )
    return found


def budget_of(campaign: Campaign) -> Budget:
    """Its budget as it is now."""
    with as_system():
        return Budget.objects.get(campaign=campaign)


def shown(client: Client, address: str) -> str:
    """The page there."""
    return flat(client.get(address).content.decode())


def reporting(
    site: Site,
    campaign: Campaign,
    steps: float,
    *,
    price: str = "6",
    unit: str = "step",
    state: str = State.ACTIVE,
) -> Booking:
    """A booking of the campaign that ran for two hours and did so many steps in its last one."""
    at = now()
    with as_system():
        booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE)
        Booking.objects.filter(id=booking.id).update(
            ready_at=at - 2 * HOUR,
            planned_starts=at - 2 * HOUR,
            planned_ends=at + 3 * HOUR,
            price_per_hour=Decimal(price),
        )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(campaign=campaign, state=state)
        Progress.objects.create(
            booking=booking,
            tenant=site.tenant,
            step=steps,
            unit=unit,
            metrics={},
            at=at,
            anchor_at=at - HOUR,
            anchor_step=0,
            mark_at=at - HOUR,
            mark_step=0,
        )
        booking.refresh_from_db()
    return booking


def test_a_unit_costs_price_by_rate_over_all_runs_and_a_stuck_one_costs_its_time(
    site: Site, campaign: Campaign
) -> None:
    reporting(site, campaign, 100)
    reporting(site, campaign, 300, price="2")
    reporting(site, campaign, 4, unit="epoch")
    with as_system():
        epoch, step = unit_costs(campaign.id)
    assert (step.unit, step.runs) == ("step", 2)
    assert step.units == pytest.approx(800)
    # 12 and 4 for 200 and 600 steps.
    assert step.cost == pytest.approx(Decimal("0.02"))
    assert epoch.cost == pytest.approx(Decimal("1.5"))
    reporting(site, campaign, 0, price="8")
    with as_system():
        _, step = unit_costs(campaign.id)
        assert unit_costs(campaign.id, now() + HOUR) == ()
    assert step.cost == pytest.approx(Decimal("0.04"))


def test_a_lead_limits_it_and_the_ladder_notifies_and_pauses(site: Site, campaign: Campaign) -> None:
    booking = reporting(site, campaign, 100)
    path = f"campaigns/{campaign.id}/costs"
    assert said(site.researcher.get(path))["limit"] is None
    body = {"most": "70", "count": 1000, "unit": "step", "action": "pause"}
    found = said(site.lead.put(path, body))
    assert (found["limit"]["most"], found["limit"]["cost"]) == ("70.000000", "60.000000")
    with as_system():
        rungs = {
            (row.measure, row.percent, row.action): row.reached_at
            for row in Guardrail.objects.filter(budget__campaign=campaign)
        }
    assert rungs["unit_cost", 80, "notify"] is not None, "60 is more than 80 % of 70"
    assert rungs["unit_cost", 100, "pause"] is None
    with as_owner():
        Progress.objects.filter(booking=booking).update(step=50)
        Budget.objects.filter(campaign=campaign).update(unit_cost_at=now() - HOUR)
    with as_system():
        unit_cost_store(campaign.id, now())
        assert budget_of(campaign).unit_cost == 120
        due = set(rungs_to_mark(now()))
        assert {(each.percent, each.action) for each in due} == {(100, "pause")}
        assert guardrails_evaluate(now()) == 1
        assert not rungs_to_mark(now()).exists()
        (rung,) = restraining_rungs(now())
        assert list(Booking.objects.filter(budget_scope(rung.budget))) == [booking]
        sent = OutboxMessage.objects.filter(kind="budget.threshold_reached").latest("id").payload
        alert = BudgetAlert.objects.get(percent=100, measure="unit_cost")
    assert (alert.unit_cost, alert.unit_most) == (Decimal(120), Decimal(70))
    assert budget_headline(sent) == "Budget of Ablation: 100 % of the most spend per unit of progress"
    assert budget_sentences(sent)[0] == "1,000 steps have cost €120.00; at most €70.00 is set."


def test_a_limit_that_is_taken_away_ends_its_rungs_and_their_alerts(site: Site, campaign: Campaign) -> None:
    reporting(site, campaign, 50)
    path = f"campaigns/{campaign.id}/costs"
    said(site.lead.put(path, {"most": "70", "action": "pause"}))
    with as_system():
        assert BudgetAlert.objects.get(percent=100, measure="unit_cost").cleared_at is None
    said(site.lead.put(path, {"most": None}))
    with as_system():
        assert not Guardrail.objects.filter(budget__campaign=campaign, measure="unit_cost").exists()
        assert BudgetAlert.objects.get(percent=100, measure="unit_cost").cleared_at is not None


def test_a_report_keeps_the_figure_at_most_once_a_minute(site: Site, campaign: Campaign) -> None:
    booking = reporting(site, campaign, 100)
    said(site.lead.put(f"campaigns/{campaign.id}/costs", {"most": "70"}))
    assert site.researcher.put(f"bookings/{booking.label}/progress", {"step": 200}).status_code == 200
    assert budget_of(campaign).unit_cost == 60, "within the minute"
    with as_owner():
        Budget.objects.filter(campaign=campaign).update(unit_cost_at=now() - 2 * timedelta(minutes=1))
    assert site.researcher.put(f"bookings/{booking.label}/progress", {"step": 200}).status_code == 200
    assert budget_of(campaign).unit_cost == pytest.approx(Decimal(30), rel=Decimal("0.01"))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"most": "0"}, "too_small"),
        ({"most": "-1"}, "too_small"),
        ({"most": "1e30"}, "wrong_type"),
        ({"most": "5", "count": 0}, "too_small"),
        ({"most": "5", "unit": " "}, "empty"),
        ({"most": "5", "unit": "u" * 25}, "too_long"),
        ({"most": "5", "action": "drain"}, "unknown_choice"),
        ({"most": "5", "per": 5}, "unknown_field"),
    ],
    ids=str,
)
def test_what_is_no_limit_changes_nothing(
    site: Site, campaign: Campaign, body: dict[str, object], code: str
) -> None:
    answer = site.lead.put(f"campaigns/{campaign.id}/costs", body)
    assert answer.status_code in (400, 409, 422), said(answer)
    assert budget_of(campaign).unit_most is None
    assert said(answer)["code"] == code or code in ("too_small", "wrong_type")


def test_only_leads_set_it_and_strangers_see_nothing(site: Site, campaign: Campaign) -> None:
    path = f"campaigns/{campaign.id}/costs"
    for who in (site.researcher, site.viewer):
        assert who.put(path, {"most": "5"}).status_code == 403
    assert site.outsider.get(path).status_code == 404
    assert site.outsider.put(path, {"most": "5"}).status_code == 404
    with as_system():
        bare = Campaign.objects.create(tenant=site.tenant, project=site.project, slug="bare", name="Bare")
    answer = site.lead.put(f"campaigns/{bare.id}/costs", {"most": "5"})
    assert (answer.status_code, said(answer)["code"]) == (409, "no_campaign_budget")


def test_a_rung_needs_a_limit_and_can_not_decide_new_bookings(site: Site, campaign: Campaign) -> None:
    budget = budget_of(campaign)
    with as_system():
        with pytest.raises(Refused) as no:
            ladder_set(actor_id=None, budget=budget, rungs=[Rung("unit_cost", 90, "notify")], now=now())
        assert no.value.code == "unit_rung"
        with pytest.raises(IntegrityError), transaction.atomic():
            Guardrail.objects.create(
                tenant=site.tenant, budget=budget, measure="unit_cost", percent=90, action="no_bookings"
            )
        with pytest.raises(IntegrityError), transaction.atomic():
            Budget.objects.filter(level="project").update(unit_most=1, unit_count=1, unit="step")


def test_the_next_period_has_the_same_limit(site: Site, campaign: Campaign) -> None:
    said(site.lead.put(f"campaigns/{campaign.id}/costs", {"most": "70", "unit": "epoch"}))
    source = budget_of(campaign)
    month = Period(source.ends, month_after(source.ends))
    with as_system():
        target = budget_put(
            actor_id=None, owner=source.owner, terms=BudgetTerms(month, Decimal(9)), now=now()
        )
        ladder_copy(source, target)
        target.refresh_from_db()
        assert (target.unit_most, target.unit_count, target.unit) == (Decimal(70), 1000, "epoch")
        assert Guardrail.objects.filter(budget=target, measure="unit_cost").count() == 2


def test_the_page_shows_costs_and_saves_a_limit(site: Site, campaign: Campaign, client: Client) -> None:
    reporting(site, campaign, 100)
    address = f"/t/helix/campaigns/{campaign.id}/costs"
    client.force_login(site.people["viewer"])
    page = shown(client, address)
    assert "€60.00" in page
    assert "Limit of the cost per unit" not in page
    client.force_login(site.people["lead"])
    assert "Limit of the cost per unit" in shown(client, address)
    form = {"act": "limit", "most": "50", "count": "1000", "unit": "step", "action": "notify"}
    assert client.post(address, form).status_code == 302
    page = shown(client, address)
    assert '<option value="notify" selected>' in page
    assert "at most €50.00 for 1,000 steps; €60.00 so far, 120 % of it" in page
    budget = budget_of(campaign)
    ladder = shown(client, f"/t/helix/budgets/{budget.id}")
    assert "100 % of the most spend per unit" in ladder
    client.force_login(site.people["outsider"])
    assert client.get(address).status_code == 404
