"""The backlog: what a project's rule rents when its bookings would wait for too long."""

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from allocation.features.capacity.causes.backlog import (
    BacklogRuleTerms,
    backlog_plan,
    backlog_rule_set,
    backlogs_due,
)
from allocation.features.capacity.models import BacklogRule, CapacityPlan
from allocation.features.capacity.sprints import Mode
from allocation.models import Booking
from tenants.access import Actor
from tenants.models import Membership, Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders import a_member, an_actor
from tests.builders_allocation import HOUR, NOW, Lab
from tests.features.capacity.builders import FakeCloud, joined, machines, providers_file, states, turned
from tests.features.capacity.test_turns import queued
from tests.roles import as_owner, as_system

MINUTE = timedelta(minutes=1)
BODY = {
    "mode": "rent",
    "gpu_class": "h100",
    "wait_minutes": 240,
    "count": 4,
    "hours": 2,
    "most_cost": "60",
}


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


@pytest.fixture
def lead(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, Role.LEAD))


def ruled(lab: Lab, actor: Actor, mode: Mode = "rent", most: str = "60", **changes: int) -> BacklogRule:
    values = {"wait_minutes": 240, "count": 4, "hours": 2} | changes
    terms = BacklogRuleTerms(mode=mode, gpu_class="h100", most_cost=Decimal(most), **values)
    with tenant_tx(lab.tenant_id):
        return backlog_rule_set(actor=actor, project=lab.project.slug, terms=terms, now=NOW)


def planned(rule: BacklogRule, now: datetime = NOW) -> CapacityPlan | None:
    with as_system():
        return backlog_plan(rule.pk, now)


def note(rule: BacklogRule) -> str:
    with as_system():
        return BacklogRule.objects.get(pk=rule.pk).note


def starts_in(booking: Booking, wait: timedelta | None) -> None:
    with as_owner():
        row = Booking.objects.filter(id=booking.id)
        if wait is None:
            times = ("planned_starts", "planned_ends", "announced_from", "announced_until")
            row.update(**dict.fromkeys((*times, "planned_strength")))
        else:
            row.update(planned_starts=NOW + wait, planned_ends=NOW + wait + HOUR)


def test_a_long_wait_rents_for_as_many_gpus_as_wait(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead)
    turned(cloud, NOW)
    with as_system():
        assert not CapacityPlan.objects.exists()
    queued(lab, hours=0.5, gpus=2)
    turned(cloud, NOW)
    with as_system():
        plan = CapacityPlan.objects.get()
    assert (plan.source, plan.state, plan.gpus) == ("backlog", "active", 2)
    assert (plan.until, plan.most_cost, plan.decided_by_id) == (NOW + 2 * HOUR, Decimal(24), lead.user_id)
    assert plan.note == "Bookings that would wait too long: 1, GPUs: 2."
    (machine,) = machines()
    joined(cloud, machine, NOW + MINUTE)
    turned(cloud, NOW + MINUTE)
    assert states() == ["ready"]
    with as_system():
        assert list(Booking.objects.values_list("pool", flat=True)) == [plan.pool]
    assert note(rule) == ""


@pytest.mark.parametrize(
    ("wait", "is_too_long"),
    [(timedelta(hours=4), False), (timedelta(hours=4, seconds=1), True), (None, False)],
)
def test_the_wait_counts_from_when_a_booking_could_begin(
    cloud: FakeCloud, lab: Lab, lead: Actor, wait: timedelta | None, *, is_too_long: bool
) -> None:
    rule, booking = ruled(lab, lead), queued(lab)
    with as_owner():
        Booking.objects.filter(id=booking.id).update(submitted=NOW - 9 * HOUR, not_before=NOW)
    starts_in(booking, wait)
    assert (planned(rule) is not None) is is_too_long


def test_a_booking_without_an_estimate_has_to_have_waited(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule, booking = ruled(lab, lead), queued(lab)
    starts_in(booking, None)
    with as_owner():
        Booking.objects.filter(id=booking.id).update(submitted=NOW - 5 * HOUR, not_before=NOW - 5 * HOUR)
    assert planned(rule) is not None


def test_one_plan_is_open_at_a_time_and_a_month_has_its_money(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    rule = ruled(lab, lead, most="30")
    queued(lab)
    first = planned(rule)
    assert first is not None
    assert planned(rule) is None
    with as_owner():
        over = {"state": "ended", "ended": NOW, "committed": Decimal(24)}
        CapacityPlan.objects.filter(id=first.id).update(**over)
    # 6 of 30 are left, and the first paid period of a machine costs 12.
    assert planned(rule) is None
    assert note(rule) == "The first paid period costs €12.00. Allow at least so much."
    with as_owner():
        CapacityPlan.objects.filter(id=first.id).update(most_cost=Decimal(30), committed=Decimal(30))
    assert planned(rule) is None
    assert note(rule) == "The rule has used its €30.00 of this month."
    with as_owner():
        CapacityPlan.objects.filter(id=first.id).update(created=NOW - timedelta(days=31))
    assert planned(rule) is not None


def test_proposals_wait_for_a_lead_and_off_does_nothing(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    queued(lab)
    rule = ruled(lab, lead, "propose")
    plan = planned(rule)
    assert plan is not None
    assert (plan.state, plan.decided_by_id) == ("proposed", None)
    with as_system():
        assert list(backlogs_due(NOW)) == [rule]
    ruled(lab, lead, "off")
    with as_system():
        assert list(backlogs_due(NOW)) == []


def test_a_former_lead_decides_nothing_more(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    queued(lab)
    rule = ruled(lab, lead)
    with as_owner():
        Membership.objects.filter(user=lead.user_id).update(role=Role.RESEARCHER)
    plan = planned(rule)
    assert plan is not None
    assert plan.state == "proposed"
    with as_owner():
        CapacityPlan.objects.all().delete()
        Membership.objects.filter(user=lead.user_id).delete()
    assert planned(rule) is None
    assert note(rule) != ""


def test_what_no_machine_serves_rents_nothing(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    rule = ruled(lab, lead)
    queued(lab, gpus=40)
    child = queued(lab)
    with as_owner():
        Booking.objects.filter(id=child.id).update(awaits_parents=True)
    assert planned(rule) is None
    with as_owner():
        Booking.objects.filter(id=child.id).update(awaits_parents=False)
    assert planned(rule) is not None


def test_only_leads_set_a_rule(cloud: FakeCloud, lab: Lab) -> None:
    with pytest.raises(Refused, match="Only leads"):
        ruled(lab, lab.actor)


@pytest.mark.django_db
def test_rest_sets_and_lists_a_rule_for_each_class(site: Site) -> None:
    address = "projects/folding/backlog-rules"
    for most in ("60", "70"):
        assert site.lead.put(address, BODY | {"most_cost": most}).status_code == 200
    (rule,) = said(site.lead.get(address))["items"]
    assert (rule["gpu_class"], rule["count"], rule["hours"], rule["mode"]) == ("h100", 4, 2, "rent")
    assert Decimal(rule["most_cost"]) == 70
    for wrong in (
        {"mode": "x"},
        {"count": 0},
        {"wait_minutes": 9},
        {"hours": 169},
        {"most_cost": "0"},
        {"most_cost": "NaN"},
        {"bogus": 1},
    ):
        assert site.lead.put(address, BODY | wrong).status_code in (400, 422), wrong
    assert site.lead.put(address, BODY | {"gpu_class": "none"}).status_code == 422
    assert site.researcher.put(address, BODY).status_code == 403
    assert site.outsider.get(address).status_code == 404


@pytest.mark.django_db
def test_the_page_sets_a_rule_and_shows_it(cloud: FakeCloud, site: Site, client: Client) -> None:
    client.force_login(site.people["lead"])
    address = f"/t/{site.tenant.slug}/capacity/backlog/folding"
    assert client.post(address, {"act": "set", **BODY}).status_code == 302
    page = client.get(address).content.decode()
    assert "A plan that is active" in page
    assert "240 min" in page
    for wrong in ({"count": "0"}, {"wait_minutes": "9"}, {"hours": "169"}, {"most_cost": "0"}):
        refused = client.post(address, {"act": "set", **BODY, **wrong})
        assert refused.status_code == 422, wrong
        assert "Enter at " in refused.content.decode()
    assert f'href="{address}"' in client.get(f"/t/{site.tenant.slug}/capacity").content.decode()
