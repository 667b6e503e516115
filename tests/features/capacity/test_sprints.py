"""Sprints of Jira: what a started one rents by the rule of its project, and how a closed one ends it."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from allocation.features.capacity.models import CapacityPlan
from allocation.features.capacity.sprints import Mode, SprintRuleTerms, sprint_rule_set
from allocation.points import Sprint, SprintAct, sprint_acts
from tenants.access import Actor
from tenants.models import Membership, Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, an_actor
from tests.builders_allocation import NOW, Lab
from tests.features.capacity.builders import (
    FakeCloud,
    joined,
    machines,
    providers_file,
    states,
    turned,
)
from tests.features.capacity.test_turns import queued
from tests.roles import as_system

URL = "https://jira.example.org/secure/GHGoToBoard.jspa?sprintId=12"
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


@pytest.fixture
def lead(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, Role.LEAD))


def ruled(lab: Lab, actor: Actor, mode: Mode, most: str = "60") -> None:
    terms = SprintRuleTerms(mode=mode, gpu_class="h100", count=4, most_cost=Decimal(most), issue="GPU-1")
    with tenant_tx(lab.tenant_id):
        sprint_rule_set(actor=actor, project=lab.project.slug, terms=terms, now=NOW)


def acted(lab: Lab, *, is_started: bool, actor: Actor | None = None) -> list[SprintAct]:
    """What a message of Jira leads to: in the worker, for the person whose bookings they are."""
    sprint = Sprint(actor or lab.actor, lab.project, URL, "S", NOW + 10 * DAY, is_started)
    with as_system():
        return sprint_acts(sprint, NOW)


def plans() -> list[CapacityPlan]:
    with as_system():
        return list(CapacityPlan.objects.all())


def test_a_sprint_rents_for_who_would_wait_until_it_is_closed(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    ruled(lab, lead, "rent")
    (act,) = acted(lab, is_started=True)
    assert act.issue == "GPU-1"
    assert act.sentence == (
        "For the sprint bookings that would wait may use rented GPUs: up to 4 H100, at most €60.00."
    )
    (plan,) = plans()
    assert (plan.state, plan.source, plan.reference, plan.until) == ("active", "sprint", URL, NOW + 10 * DAY)
    # A second message about the same sprint changes nothing.
    assert acted(lab, is_started=True) == []
    turned(cloud, NOW)
    assert states() == []
    # Nobody can pay for this one, which would wait, too.
    queued(lab, hours=20)
    turned(cloud, NOW)
    assert states() == []
    queued(lab, hours=0.5)
    turned(cloud, NOW)
    (machine,) = machines()
    joined(cloud, machine, NOW + MINUTE)
    turned(cloud, NOW + MINUTE)
    assert states() == ["ready"]
    (act,) = acted(lab, is_started=False)
    assert act.sentence == "Nothing more is rented for the sprint; its machines cost €12.00."
    (plan,) = plans()
    assert (plan.state, plan.note) == ("cancelled", "The sprint was closed.")
    assert acted(lab, is_started=False) == []


def test_a_sprint_proposes_its_plan_to_leads_even_for_one(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    ruled(lab, lead, "propose")
    (act,) = acted(lab, is_started=True, actor=lead)
    assert act.sentence.startswith("Proposed for the sprint: up to 4 H100, at most €60.00.")
    assert [each.state for each in plans()] == ["proposed"]
    acted(lab, is_started=False)
    assert [each.state for each in plans()] == ["cancelled"]


def test_a_budget_that_refuses_is_said(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    ruled(lab, lead, "rent", "5000")
    (act,) = acted(lab, is_started=True)
    assert act.sentence.startswith("Nothing is rented for the sprint: ")
    assert plans() == []


def test_only_leads_set_the_rule_and_off_is_off(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    with pytest.raises(Refused, match="Only leads"):
        ruled(lab, lab.actor, "rent")
    assert acted(lab, is_started=True) == []
    ruled(lab, lead, "off")
    assert acted(lab, is_started=True) == []


@pytest.mark.parametrize("role", [None, "researcher"])
def test_a_rule_of_who_leads_no_more_only_proposes(
    cloud: FakeCloud, lab: Lab, lead: Actor, role: str | None
) -> None:
    ruled(lab, lead, "rent")
    with as_system():
        own = Membership.objects.filter(user_id=lead.user_id)
        own.update(role=role) if role else own.delete()
    (act,) = acted(lab, is_started=True)
    assert act.sentence.startswith("Proposed for the sprint: up to 4 H100, at most €60.00.")
    assert [(each.state, each.decided_by) for each in plans()] == [("proposed", None)]
