"""The forecast: what a project's rule rents for hours in which GPUs are expected to be short."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from allocation.features.capacity.causes.forecast import (
    ForecastRuleTerms,
    forecast_plan,
    forecast_rule_set,
    forecasts_due,
    short_hours,
)
from allocation.features.capacity.models import CapacityPlan, ForecastRule
from allocation.features.capacity.sprints import Mode
from allocation.features.demand.models import DemandForecast
from allocation.points import ClassForecast
from tenants.access import Actor
from tenants.models import Membership, Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders import a_member, an_actor
from tests.builders_allocation import HOUR, NOW, Lab
from tests.features.capacity.builders import FakeCloud, machines, providers_file, turned
from tests.features.capacity.test_turns import queued
from tests.roles import as_owner, as_system

MINUTE = timedelta(minutes=1)
BODY = {"mode": "rent", "gpu_class": "h100", "hours": 3, "days": 2, "count": 4, "most_cost": "60"}


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


@pytest.fixture
def lead(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, Role.LEAD))


def ruled(lab: Lab, actor: Actor, mode: Mode = "rent", most: str = "60", **changes: int) -> ForecastRule:
    values = {"hours": 3, "days": 2, "count": 4} | changes
    terms = ForecastRuleTerms(mode=mode, gpu_class="h100", most_cost=Decimal(most), **values)
    with tenant_tx(lab.tenant_id):
        return forecast_rule_set(actor=actor, project=lab.project.slug, terms=terms, now=NOW)


def expected(wanted: Mapping[int, float], *, made: timedelta = timedelta(0), kind: str = "wanted") -> None:
    """A forecast that was made at `NOW - made`; the site has one GPU, and else half of one is wanted."""
    middle = [wanted.get(number, 0.5) for number in range(336)]
    high = [each + 50 for each in middle]
    with as_owner():
        DemandForecast.objects.all().delete()
        DemandForecast.objects.create(
            gpu_class_id="h100", kind=kind, at=NOW - made, low=middle, middle=middle, high=high, hits={}
        )


def planned(rule: ForecastRule, now: Any = NOW) -> CapacityPlan | None:  # noqa: ANN401 (an instant)
    with as_system():
        return forecast_plan(rule.pk, now)


def note(rule: ForecastRule) -> str:
    with as_system():
        return ForecastRule.objects.get(pk=rule.pk).note


def test_a_shortage_rents_for_its_hours(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    """Hours 5 to 7 and 10 are short by up to 2.5 GPUs; the next day is a time of its own."""
    rule = ruled(lab, lead)
    expected({5: 2, 6: 3.5, 7: 1.2, 10: 2, 30: 9})
    turned(cloud, NOW)
    with as_system():
        plan = CapacityPlan.objects.get()
        assert ForecastRule.objects.get().checked == NOW
    assert (plan.source, plan.state, plan.gpus) == ("forecast", "active", 3)
    assert (plan.starts, plan.until) == (NOW + 5 * HOUR, NOW + 11 * HOUR)
    # Four hours of a machine.
    assert (plan.most_cost, plan.decided_by_id) == (Decimal(48), lead.user_id)
    assert plan.note == "Short hours that are expected in the next 2 days: 5, of up to 3 GPUs."
    assert note(rule) == ""
    # Machines come at its time, and only with a booking that would wait.
    queued(lab, hours=0.5)
    turned(cloud, NOW + MINUTE)
    assert not machines()
    turned(cloud, NOW + 5 * HOUR)
    assert len(machines()) == 1


@pytest.mark.parametrize(
    ("wanted", "is_planned"),
    [
        ({1: 2, 2: 2, 3: 2}, True),
        ({1: 2, 2: 2, 3: 1}, False),  # As many as there are is not short.
        ({1: 2, 2: 2, 48: 2}, False),  # After the days that are looked at.
        ({1: 2, 2: 2, 47: 2}, True),
    ],
)
def test_enough_hours_of_the_coming_days_have_to_be_short(
    cloud: FakeCloud, lab: Lab, lead: Actor, wanted: dict[int, float], *, is_planned: bool
) -> None:
    rule = ruled(lab, lead)
    expected(wanted)
    assert (planned(rule) is not None) is is_planned


def test_an_hour_that_is_over_is_not_short() -> None:
    forecast = ClassForecast(NOW, [5, 5, 5], 4)
    found = list(short_hours(forecast, NOW + 90 * MINUTE, NOW + 24 * HOUR))
    assert [each.at for each in found] == [NOW + HOUR, NOW + 2 * HOUR]
    assert {each.gpus for each in found} == {1}


def test_a_time_is_planned_once_whatever_became_of_its_plan(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead)
    expected({1: 2, 2: 2, 3: 2, 20: 2, 21: 2, 22: 2})
    first = planned(rule)
    assert first is not None
    assert planned(rule) is None
    with as_owner():
        CapacityPlan.objects.filter(id=first.id).update(state="cancelled", ended=NOW)
    second = planned(rule)
    assert second is not None
    assert (second.starts, second.until) == (NOW + 20 * HOUR, NOW + 23 * HOUR)
    with as_owner():
        CapacityPlan.objects.filter(id=second.id).update(state="cancelled", ended=NOW)
    assert planned(rule) is None


def test_a_month_has_its_money(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead, most="30")
    expected({1: 2, 2: 2, 3: 2, 20: 2, 21: 2, 22: 2})
    first = planned(rule)
    assert first is not None
    assert first.most_cost == 30
    with as_owner():
        over = {"state": "ended", "ended": NOW, "committed": Decimal(30)}
        CapacityPlan.objects.filter(id=first.id).update(**over)
    assert planned(rule) is None
    assert note(rule) == "The rule has used its €30.00 of this month."


def test_an_old_forecast_says_nothing(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead)
    assert planned(rule) is None
    assert note(rule) == "The class has no forecast of now."
    short = dict.fromkeys(range(40), 3.0)
    expected(short, made=7 * HOUR)
    assert planned(rule) is None
    expected(short, kind="requested")
    assert planned(rule) is None
    expected(short, made=6 * HOUR)
    assert planned(rule) is not None


def test_rules_are_due_each_quarter_of_an_hour(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead, "propose")
    expected(dict.fromkeys(range(3), 3.0))

    def due(after: timedelta) -> list[ForecastRule]:
        with as_system():
            return list(forecasts_due(NOW + after))

    assert due(timedelta(0)) == [rule]
    plan = planned(rule)
    assert plan is not None
    assert (plan.state, plan.decided_by_id, plan.starts) == ("proposed", None, NOW)
    assert (due(14 * MINUTE), due(15 * MINUTE)) == ([], [rule])
    ruled(lab, lead, "propose", days=3)
    assert due(timedelta(0)) == [rule]
    ruled(lab, lead, "off")
    assert due(HOUR) == []


def test_a_former_lead_decides_nothing_more(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead)
    expected(dict.fromkeys(range(3), 3.0))
    with as_owner():
        Membership.objects.filter(user=lead.user_id).update(role=Role.RESEARCHER)
    plan = planned(rule)
    assert plan is not None
    assert plan.state == "proposed"


def test_only_leads_set_a_rule(cloud: FakeCloud, lab: Lab) -> None:
    with pytest.raises(Refused, match="Only leads"):
        ruled(lab, lab.actor)


@pytest.mark.django_db
def test_rest_sets_and_lists_a_rule_for_each_class(site: Site) -> None:
    address = "projects/folding/forecast-rules"
    for most in ("60", "70"):
        assert site.lead.put(address, BODY | {"most_cost": most}).status_code == 200
    (rule,) = said(site.lead.get(address))["items"]
    assert (rule["gpu_class"], rule["hours"], rule["days"], rule["count"]) == ("h100", 3, 2, 4)
    assert Decimal(rule["most_cost"]) == 70
    assert rule["checked"] is None
    for wrong in (
        {"mode": "x"},
        {"count": 0},
        {"hours": 0},
        {"hours": 337},
        {"days": 15},
        {"most_cost": "0"},
    ):
        assert site.lead.put(address, BODY | wrong).status_code in (400, 422), wrong
    assert said(site.lead.put(address, BODY | {"days": 1, "hours": 25}))["param"] == "hours"
    assert site.lead.put(address, BODY | {"days": 1, "hours": 24}).status_code == 200
    assert site.lead.put(address, BODY | {"gpu_class": "none"}).status_code == 422
    assert site.researcher.put(address, BODY).status_code == 403
    assert site.outsider.get(address).status_code == 404


@pytest.mark.django_db
def test_the_page_sets_a_rule_and_shows_it(cloud: FakeCloud, site: Site, client: Client) -> None:
    client.force_login(site.people["lead"])
    address = f"/t/{site.tenant.slug}/capacity/forecast/folding"
    assert client.post(address, {"act": "set", **BODY}).status_code == 302
    page = client.get(address).content.decode()
    assert "A plan that is active" in page
    assert "not yet" in page
    assert client.post(address, {"act": "set", **BODY, "days": "99"}).status_code == 422
    assert f'href="{address}"' in client.get(f"/t/{site.tenant.slug}/capacity").content.decode()
