"""What the rungs of budgets' ladders do with bookings."""

import csv
import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Approval, Booking
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.record.forecasts import forecasts_store
from billing.models import Budget, Guardrail
from billing.queries import budget_figures_of
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import (
    HoldRequest,
    Rung,
    budget_put,
    hold_delta_place,
    hold_place,
    hold_settle,
    ladder_set,
)
from billing.services.guardrails import guardrails_evaluate
from tenants.models import Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant_admin, an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system

pytestmark = pytest.mark.django_db


def budget_of(lab: Lab) -> Budget:
    return Budget.objects.get(project=lab.project, level="project")


def laddered(budget: Budget, *rungs: Rung) -> None:
    with as_system():
        ladder_set(actor_id=None, budget=budget, rungs=rungs, now=NOW)


def booked(lab: Lab, hours: float = 2) -> Booking:
    with tenant_tx(lab.tenant_id):
        return booking_request(
            actor=lab.actor, request=a_booking_request(lab.project, an_ask(hours=hours)), now=NOW
        )


def charged(lab: Lab, amount: int, at: datetime) -> None:
    """An amount that was charged at `at`."""
    key, who = uuid4(), {"tenant_id": lab.tenant_id, "project_id": lab.project.id}
    hold_place(**who, reference=key, amount=Decimal(amount), starts=at, ends=at + HOUR, now=at)
    hold_settle(tenant_id=lab.tenant_id, reference=key, amount=Decimal(amount), now=at)


def test_a_rung_asks_for_an_approval_and_stops_asking_by_itself(lab: Lab) -> None:
    a_member(lab.project, Role.LEAD)
    a_tenant_admin(lab.tenant)
    with as_system():
        owner = BudgetOwner(lab.tenant_id, lab.project.id, person_id=lab.actor.user_id)
        period = Period(budget_of(lab).starts, budget_of(lab).ends)
        mine = budget_put(actor_id=None, owner=owner, terms=BudgetTerms(period, Decimal(40)), now=NOW)
        top = budget_put(
            actor_id=None,
            owner=BudgetOwner(lab.tenant_id),
            terms=BudgetTerms(period, Decimal(80)),
            now=NOW,
        )
        laddered(top, Rung("committed", 10, "approval"))
        laddered(mine, Rung("committed", 20, "approval"))

    # The booking that crosses a share needs none: its own money doesn't count.
    first, second = booked(lab), booked(lab)
    assert (first.state, second.state) == (State.REQUESTED, State.AWAITING_APPROVAL)
    with as_system():
        approval = Approval.objects.get(booking=second)
        assert [step["role"] for step in approval.steps] == ["lead", "admin"]
        names = {rule["name"].partition(": ")[2] for rule in approval.rules}
        assert names == {"24 % spent or held", "48 % spent or held"}
        delta = HoldRequest(uuid4(), Decimal(11), NOW, NOW + HOUR, lab.actor.user_id)
        with pytest.raises(Refused, match="asks for an approval") as refusal:
            hold_delta_place(
                tenant_id=lab.tenant_id,
                project_id=lab.project.id,
                old=first.id,
                request=delta,
                now=NOW,
            )
        assert refusal.value.code == "approval_needed"
        assert budget_figures_of([mine.id])[mine.id].held == Decimal("19.20")
        hold_settle(tenant_id=lab.tenant_id, reference=first.id, amount=Decimal(0), now=NOW)
        hold_settle(tenant_id=lab.tenant_id, reference=second.id, amount=Decimal(0), now=NOW)
    assert booked(lab).state == State.REQUESTED


def test_each_level_has_a_forecast_of_its_own_on_which_a_rung_acts(lab: Lab) -> None:
    with as_system():
        project = budget_of(lab)
        top = budget_put(
            actor_id=None,
            owner=BudgetOwner(lab.tenant_id),
            terms=BudgetTerms(Period(project.starts, project.ends), Decimal(2000)),
            now=NOW,
        )
        laddered(top, Rung("forecast", 40, "notify"), Rung("committed", 40, "notify"))
        assert forecasts_store(NOW) == 0
        for back in range(10, 0, -1):
            charged(lab, 20, NOW - back * timedelta(days=1))
        assert forecasts_store(NOW) == 2
        top.refresh_from_db()
        # 200 so far and 20 for each of the 45 days from today on.
        assert top.forecast == Decimal(1100)
        assert guardrails_evaluate(NOW) == 1
        assert Guardrail.objects.get(measure="forecast").reached_at == NOW
        assert Guardrail.objects.get(measure="committed").reached_at is None


def _platform_days_check(period: Period, day: date) -> None:
    """The same for a budget of the platform, on the pages of operators."""
    with as_system():
        terms = BudgetTerms(period, Decimal(500))
        budget = budget_put(actor_id=None, owner=BudgetOwner(None), terms=terms, now=NOW)
    operator, address = Client(), f"/ops/budgets/{budget.id}"
    operator.force_login(an_operator())
    page = operator.get(address).content.decode()
    assert page.count(f'href="{address}/days/{day}"') == 2
    assert "€20.00" in operator.get(f"{address}/days/{day}").content.decode()
    assert "charged" in operator.get(f"{address}/days.csv").content.decode()
    for wrong in ("2020-01-01", "x"):
        assert operator.get(f"{address}/days/{wrong}").status_code == 404


def test_each_level_has_a_chart_with_a_table_and_a_file(lab: Lab) -> None:
    now, lab = timezone.now(), replace(lab, project=a_project(lab.tenant))
    period = Period((now - 40 * timedelta(days=1)).date(), (now + timedelta(days=5)).date())
    with as_system():
        for owner in (BudgetOwner(lab.tenant_id, lab.project.id), BudgetOwner(lab.tenant_id)):
            terms = BudgetTerms(period, Decimal(500))
            budget = budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)
        for back in (12, 3):
            charged(lab, 20, now - back * timedelta(days=1))
    client = Client()
    client.force_login(a_tenant_admin(lab.tenant).user)
    address = f"/t/{lab.tenant.slug}/budgets/{budget.id}"
    page = client.get(address).content.decode()
    assert '<svg class="chart burn"' in page
    assert page.count('<th scope="row">') == 41
    rows = list(csv.DictReader(StringIO(client.get(f"{address}/days.csv").content.decode())))
    assert [sum(Decimal(row["charged"] or 0) for row in rows), len(rows)] == [40, 42]
    assert (rows[-1]["kind"], rows[-2]["unspent"][:3]) == ("forecast", "460")
    day = (now - 3 * timedelta(days=1)).date()
    assert page.count(f'href="{address}/days/{day}"') == 2, "in the table and in the chart"
    assert page.count(f'href="{address}/days/') == 2 * 41
    behind = client.get(f"{address}/days/{day}").content.decode()
    assert "€20.00" in behind
    assert client.get(f"{address}/days/2020-01-01").status_code == 404
    own = client.get(f"/t/{lab.tenant.slug}/p/{lab.project.slug}").content.decode()
    assert re.search(rf'href="/t/{lab.tenant.slug}/budgets/[^/"]+/days/{day}"', own)
    _platform_days_check(period, day)
    outsider = a_lab("outside")
    client.force_login(a_tenant_admin(outsider.tenant).user)
    assert client.get(f"{address}/days.csv").status_code == 404
    assert client.get(f"{address}/days/{day}").status_code == 404
