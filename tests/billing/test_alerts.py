"""Alerts of budgets: asked for with the budget, sent once per crossing, with a history."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from billing.models import Budget, BudgetAlert, Guardrail
from billing.rules import BudgetOwner, BudgetTerms, month_of
from billing.services import HoldRequest, Rung, budget_put, holds_place, ladder_set
from billing.services.guardrails import guardrails_evaluate
from billing.services.renewals import budgets_renew
from portal.integrations.relay import outbox_relay
from tenants.models import Membership, Notification, OutboxMessage, Project, Role, Tenant
from tests.api.builders import Api, a_token, said
from tests.billing.builders import NOW, a_budget
from tests.billing.test_guardrails import Ladder
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, a_user, actor_now
from tests.roles import as_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def helix() -> Tenant:
    return a_tenant("helix", name="Helix Institute")


@pytest.fixture
def folding(helix: Tenant) -> Project:
    return a_project(helix, "folding", name="Protein folding")


@pytest.fixture
def system() -> Iterator[None]:
    with as_system():
        yield


@pytest.mark.usefixtures("system")
def test_each_crossing_is_one_row_and_the_database_refuses_a_second() -> None:
    lab = Ladder(Rung("committed", 80, "notify"), Rung("committed", 90, "no_bookings"))
    hold = lab.hold("850")
    assert [guardrails_evaluate(NOW) for _ in range(2)] == [1, 0]
    (row,) = BudgetAlert.objects.all()
    assert (row.percent, row.amount, row.held, row.cleared_at) == (80, Decimal(1000), Decimal(850), None)
    with pytest.raises(IntegrityError, match="budget_alert_once"), transaction.atomic():
        BudgetAlert.objects.create(
            tenant_id=row.tenant_id,
            budget=row.budget,
            measure=row.measure,
            percent=80,
            action="notify",
            audience="both",
            people=[],
            reached_at=NOW,
            amount=1,
            spent=1,
            held=0,
        )
    lab.settle(hold, "10")
    later = NOW + timedelta(hours=1)
    guardrails_evaluate(later)
    lab.hold("900")
    guardrails_evaluate(later)
    found = BudgetAlert.objects.filter(percent=80).order_by("id")
    assert [each.cleared_at for each in found] == [later, None]
    ladder_set(actor_id=None, budget=lab.budget, rungs=[], now=later)
    assert not BudgetAlert.objects.filter(cleared_at=None).exists()


def test_named_people_are_notified_as_long_as_they_may_see_the_budget(folding: Project) -> None:
    named, gone = a_member(folding, Role.RESEARCHER), a_member(folding, Role.RESEARCHER)
    a_member(folding, Role.LEAD)
    admin = a_tenant_admin(folding.tenant)
    other = a_project(folding.tenant, "other")
    with as_system():
        budget = a_budget(folding, "100")
        people = (named.user_id, gone.user_id)
        alerts = [Rung("committed", 50, "notify", "people", people)]
        ladder_set(actor_id=None, budget=budget, rungs=alerts, now=NOW)
        Membership.objects.filter(id=gone.pk).update(project=other)
        request = HoldRequest(budget.id, Decimal(60), NOW, NOW + timedelta(hours=6))
        holds_place(tenant_id=folding.tenant_id, project_id=folding.id, requests=[request], now=NOW)
        guardrails_evaluate(NOW)
        outbox_relay(NOW)
        assert set(Notification.objects.values_list("user_id", flat=True)) == {named.user_id}
        # Without them it is the admins' again, so that an alert is never lost.
        Membership.objects.filter(id=named.pk).update(project=other)
        ladder_set(actor_id=None, budget=budget, rungs=[], now=NOW)
        ladder_set(actor_id=None, budget=budget, rungs=alerts, now=NOW)
        message = OutboxMessage.objects.filter(kind="budget.threshold_reached").latest("id")
        assert (message.payload["audience"], message.payload["people"]) == ("admins", [])
        outbox_relay(NOW)
        assert Notification.objects.filter(user_id=admin.user_id).count() == 1


@pytest.mark.usefixtures("system")
def test_the_share_that_pages_show_is_that_of_an_alert(folding: Project) -> None:
    owner, period = BudgetOwner(folding.tenant_id, folding.id), month_of(NOW.date())

    def put(percent: int) -> list[tuple[str, int, str]]:
        terms = BudgetTerms(period, Decimal(100), warn_percent=percent, is_repeated=True)
        budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)
        rows = Guardrail.objects.order_by("percent")
        return [(row.measure, row.percent, row.audience) for row in rows]

    assert put(80) == [("committed", 80, "both")]
    Guardrail.objects.update(audience="admins")
    assert put(70) == [("committed", 70, "admins")]
    budget = Budget.objects.get()
    rungs = [Rung("committed", each, "notify") for each in (50, 90, 100)]
    ladder_set(actor_id=None, budget=budget, rungs=rungs, now=NOW)
    assert Budget.objects.get().warn_percent == 90
    budgets_renew(NOW)
    assert {each.warn_percent for each in Budget.objects.all()} == {90}


def test_rest_sets_alerts_with_a_budget_and_lists_their_history(folding: Project) -> None:
    lead, admin = a_member(folding, Role.LEAD), a_tenant_admin(folding.tenant)
    outsider = a_user()
    api = Api(a_token(actor_now(admin.user_id, "helix")))
    starts = month_of(timezone.now().date()).starts
    ends = month_of(timezone.now().date()).ends
    body = {"project": "folding", "amount": "100", "starts": f"{starts}", "ends": f"{ends}"}
    plain = said(api.post("budgets", body))
    assert plain["warn_percent"] == 80
    path = f"budgets/{plain['id']}"
    assert [each["percent"] for each in said(api.get(f"{path}/guardrails"))["rungs"]] == [80]
    alerts = [
        {"measure": "committed", "percent": 50, "audience": "people", "people": [lead.user.username]},
        {"measure": "forecast", "percent": 100},
    ]
    assert api.put(path, {"amount": "0", "alerts": alerts}).status_code == 200
    rungs = said(api.get(f"{path}/guardrails"))["rungs"]
    assert [(each["percent"], each["people"]) for each in rungs] == [(50, [lead.user.username]), (100, [])]
    # A budget of nothing is used up, so both are reached at once.
    history = said(api.get(f"{path}/alerts"))["items"]
    assert {(each["percent"], tuple(each["people"]), each["cleared_at"]) for each in history} == {
        (50, (lead.user.username,), None),
        (100, (), None),
    }
    for people, code in (([outsider.username], "unknown_person"), ([], "nobody_named")):
        wrong = [{"measure": "spent", "percent": 9, "audience": "people", "people": people}]
        refused = api.put(path, {"amount": "0", "alerts": wrong})
        assert (refused.status_code, said(refused)["code"]) == (422, code)


def test_a_page_asks_for_alerts_with_the_budget_and_shows_their_history(folding: Project) -> None:
    client, lead = Client(), a_member(folding, Role.LEAD)
    client.force_login(a_tenant_admin(folding.tenant).user)
    page = client.get("/t/helix/budgets").content.decode()
    assert all(each in page for each in ("50 % spent or held", "forecast by the end", lead.user.display_name))
    period = month_of(timezone.now().date())
    new = {
        "owner": "folding",
        "starts": f"{period.starts}",
        "last": f"{period.ends - timedelta(days=1)}",
        "amount": "0",
        "alerts": ["committed-80", "forecast-100"],
        "audience": "admins",
        "people": lead.user.username,
    }
    wrong = client.post("/t/helix/budgets", {**new, "amount": "much"})
    assert (wrong.status_code, 'value="much"' in wrong.content.decode()) == (422, True)
    with as_system():
        assert not Budget.objects.exists()
    assert client.post("/t/helix/budgets", new).status_code == 302
    with as_system():
        rows = list(Guardrail.objects.order_by("measure"))
    assert [(row.measure, row.percent, row.audience, row.people) for row in rows] == [
        ("committed", 80, "admins", [lead.user_id]),
        ("forecast", 100, "admins", [lead.user_id]),
    ]
    here = f"/t/helix/budgets/{rows[0].budget_id}"
    shown = client.get(here).content.decode()
    assert "History of alerts" in shown
    assert f"admins, {lead.user.display_name}" in shown
    saved = {"save_alerts": "1", "alerts": ["committed-80"], "alert_percent": "65 %", "audience": "both"}
    assert client.post(here, saved).status_code == 302
    with as_system():
        assert sorted(Guardrail.objects.values_list("percent", "people")) == [(65, []), (80, [])]
        assert BudgetAlert.objects.filter(percent=100, cleared_at__isnull=False).exists()
    for wrong_value in ({"alert_percent": "x"}, {"alerts": ["luck-5"]}, {"people": "nobody"}):
        assert client.post(here, {**saved, **wrong_value}).status_code == 422
