"""The ladder of a budget: notifications, what it stops, and that it goes back by itself."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.queries.bookings.money.forecasts import BudgetForecast
from allocation.queries.bookings.money.projects import Forecast
from allocation.web.money.forecasts import forecast_words
from billing.models import Budget, Guardrail
from billing.queries import budget_figures_of, rungs_to_mark, would_have_stopped
from billing.rules import BudgetOwner, BudgetTerms, month_of
from billing.services import (
    HoldRequest,
    Rung,
    budget_put,
    charge_refund,
    holds_place,
    ladder_set,
    new_holds_place,
)
from billing.services.guardrails import guardrails_evaluate
from billing.services.renewals import budgets_renew
from portal.integrations.mail.message import section_of
from portal.integrations.relay import outbox_relay
from tenants.models import Mail, OutboxMessage, PublishedEvent, Role, Tenant
from tenants.platform.errors import Refused
from tests.billing.builders import NOVEMBER, NOW, a_budget
from tests.billing.test_tree import Lab
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _system() -> Iterator[None]:
    with as_system():
        yield


class Ladder(Lab):
    """A project of 1,000 a month with a ladder."""

    def __init__(self, *rungs: Rung, level: str = "project") -> None:
        super().__init__()
        self.budget = (
            Budget.objects.get(project=self.project, starts=NOVEMBER.starts)
            if level == "project"
            else self.limit(level, "1000")
        )
        ladder_set(actor_id=None, budget=self.budget, rungs=rungs, now=NOW)

    def book(self, amount: str) -> Refused | HoldRequest:
        """A new booking; its refusal if there is one."""
        request = HoldRequest(uuid4(), Decimal(amount), NOW, NOW + timedelta(hours=6), self.mara)
        held = new_holds_place(
            tenant_id=self.project.tenant_id,
            project_id=self.project.id,
            requests=[request],
            now=NOW,
        )
        return held.refused.get(request.reference, request)

    @property
    def sent(self) -> list[tuple[str, int]]:
        """The events so far, with their percent."""
        rows = OutboxMessage.objects.filter(kind__startswith="budget.").order_by("id")
        return [(row.kind.removeprefix("budget.threshold_"), row.payload["percent"]) for row in rows]


@pytest.mark.parametrize("level", ["project", "tenant", "person"])
def test_a_rung_refuses_new_bookings_and_goes_back_by_itself(level: str) -> None:
    lab = Ladder(Rung("committed", 80, "no_bookings"), level=level)
    first = lab.book("800")
    assert isinstance(first, HoldRequest)
    no = lab.book("1")
    assert isinstance(no, Refused)
    assert (no.code, no.numbers["level"], no.numbers["share"]) == (
        "bookings_stopped",
        level,
        "80.00",
    )
    assert "no new bookings from 80 % on, and no longer ones" in no.sentence
    # What is not a new booking, such as an extension, is still held.
    lab.hold("1")
    lab.settle(first, "500")
    assert isinstance(lab.book("1"), HoldRequest)


def test_each_crossing_is_announced_once_and_its_end_too() -> None:
    lab = Ladder(Rung("spent", 50, "notify"), Rung("committed", 80, "no_bookings"))
    hold = lab.hold("900")
    assert [guardrails_evaluate(NOW) for _ in range(2)] == [1, 0]
    lab.settle(hold, "600")
    assert guardrails_evaluate(NOW) == 2
    assert lab.sent == [("reached", 80), ("reached", 50), ("cleared", 80)]
    assert guardrails_evaluate(NOW + timedelta(days=60)) == 0


def test_rungs_to_mark_are_those_that_an_evaluation_changes() -> None:
    """Beat asks for them without the figures. A question that is always yes or never fails here."""
    percents = (1, 40, 60, 100, 150)
    lab = Ladder(*(Rung(name, each, "notify") for name in ("spent", "committed") for each in percents))
    nothing = lab.limit("person", "0")
    ladder_set(
        actor_id=None,
        budget=nothing,
        now=NOW,
        rungs=[Rung("forecast", 100, "notify"), Rung("spent", 101, "notify")],
    )
    limit = lab.limit("tenant", "1000")
    ladder_set(actor_id=None, budget=limit, rungs=[Rung("forecast", 100, "notify")], now=NOW)
    changed: list[int] = []

    def evaluate() -> None:
        expected = set(rungs_to_mark(NOW).values_list("id", flat=True))
        before = dict(Guardrail.objects.values_list("id", "reached_at"))
        changed.append(guardrails_evaluate(NOW))
        after = dict(Guardrail.objects.values_list("id", "reached_at"))
        assert {name for name in before if before[name] != after[name]} == expected
        assert not rungs_to_mark(NOW).exists()

    hold = lab.hold("600", person=lab.jonas)
    evaluate()
    lab.settle(hold, "400")
    evaluate()
    charge_refund(
        tenant_id=lab.project.tenant_id,
        reference=hold.reference,
        amount=Decimal(395),
        note="",
        now=NOW,
    )
    evaluate()
    Budget.objects.filter(id=limit.id).update(forecast=Decimal(1_000))
    evaluate()
    assert changed == [3, 3, 4, 1]
    assert not rungs_to_mark(NOW + timedelta(days=60)).exists()


def test_a_booking_that_reaches_a_rung_is_made_and_the_next_one_is_not() -> None:
    lab = Ladder(Rung("committed", 10, "no_bookings"))
    assert isinstance(lab.book("999"), HoldRequest)
    assert isinstance(lab.book("0.01"), Refused)
    stopped = would_have_stopped(lab.budget, "committed", 10)
    assert (stopped.bookings, stopped.first) == (0, None)
    lab.hold("1", now=NOW + timedelta(seconds=1))
    stopped = would_have_stopped(lab.budget, "committed", 99)
    assert (stopped.bookings, stopped.amount) == (1, Decimal(1))


def test_the_next_period_has_the_same_ladder() -> None:
    lab = Ladder(level="tenant")
    lab.limit("tenant", "1000", is_repeated=True)
    ladder_set(actor_id=None, budget=lab.budget, rungs=[Rung("spent", 50, "notify")], now=NOW)
    budgets_renew(NOW)
    rungs = Guardrail.objects.order_by("budget__starts")
    assert [rung.budget_id == lab.budget.id for rung in rungs] == [True, False]


def test_a_ladder_takes_no_nonsense() -> None:
    lab = Ladder()
    for rungs, code in [
        ([Rung("spent", 0, "notify")], "bad_percent"),
        ([Rung("spent", 201, "notify")], "bad_percent"),
        ([Rung("spent", 50, "stop")], "unknown_choice"),
        ([Rung("spent", 50, "notify"), Rung("spent", 50, "notify", "leads")], "rung_twice"),
        ([Rung("spent", number, "notify") for number in range(1, 14)], "too_many_rungs"),
    ]:
        with pytest.raises(Refused) as refusal:
            ladder_set(actor_id=None, budget=lab.budget, rungs=rungs, now=NOW)
        assert refusal.value.code == code
    with pytest.raises(IntegrityError), transaction.atomic():
        Guardrail.objects.create(
            tenant_id=lab.project.tenant_id,
            budget=lab.budget,
            measure="luck",
            percent=5,
            action="notify",
        )


@pytest.fixture
def helix() -> Tenant:
    return a_tenant("helix", name="Helix Institute")


def test_leads_and_admins_get_a_mail_and_programs_an_event(helix: Tenant, settings: Settings) -> None:
    settings.MAIL_ON = True
    project = a_project(helix, "folding", name="Protein folding")
    lead, admin = a_member(project, Role.LEAD), a_tenant_admin(helix)
    a_member(project, Role.RESEARCHER)
    for person in (lead, admin):
        person.user.email = f"{person.user.username}@example.org"
        with as_owner():
            person.user.save()
    budget = a_budget(project, "100")
    ladder_set(
        actor_id=None,
        budget=budget,
        rungs=[Rung("committed", 90, "no_bookings"), Rung("spent", 90, "notify", "admins")],
        now=NOW,
    )
    request = HoldRequest(budget.id, Decimal(95), NOW, NOW + timedelta(hours=6))
    holds_place(tenant_id=helix.id, project_id=project.id, requests=[request], now=NOW)
    guardrails_evaluate(NOW)
    outbox_relay(NOW)
    mails = Mail.objects.filter(kind="budget.threshold_reached")
    assert {mail.user_id for mail in mails} == {lead.user_id, admin.user_id}
    section = section_of(mails[0], NOW)
    assert section is not None
    assert section.headline == "Budget of Protein folding: 90 % spent or held"
    assert "€95.00 held by bookings, €5.00 left of €100.00" in section.sentences[0]
    assert "no new bookings" in section.sentences[1]
    event = PublishedEvent.objects.get()
    assert (event.type, event.data["budget"]["left"]) == ("budget.threshold_reached", "5.000000")


def test_an_admin_sees_what_a_rung_would_stop_before_it_is_set(helix: Tenant) -> None:
    project = a_project(helix, "folding")
    now = timezone.now()
    terms = BudgetTerms(month_of(now.date()), Decimal(100))
    budget = budget_put(actor_id=None, owner=BudgetOwner(helix.id, project.id), terms=terms, now=now)
    client = Client()
    client.force_login(a_tenant_admin(helix).user)
    page = f"/t/helix/budgets/{budget.id}"
    rung = {
        "add": "1",
        "measure": "committed",
        "percent": "90 %",
        "action": "no_bookings",
        "audience": "both",
    }
    asked = client.post(page, rung).content.decode()
    assert "would have stopped no booking so far" in asked
    assert not Guardrail.objects.exists()
    assert client.post(page, {**rung, "sure": "1"}).status_code == 302
    assert "90 % spent or held" in client.get(page).content.decode()
    assert client.post(page, {**rung, "percent": "x"}).status_code == 422
    used = Decimal(10)
    for spend, low, high, words in (
        (used, used, used, ("€10.00", "already spent or held")),
        (Decimal(20), Decimal(20), Decimal(20), ("€20.00", "no range: recent days cost the same")),
        (Decimal(20), Decimal(9), Decimal(30), ("€20.00", "€9.00 to €30.00 in 8 of 10 cases")),
    ):
        figures = replace(budget_figures_of([budget.id])[budget.id], held=used)
        forecast = Forecast(spend, low, high, Decimal(1), None)
        assert forecast_words(BudgetForecast(figures, 9, forecast)) == words
    viewer = Client()
    viewer.force_login(a_member(project, Role.VIEWER).user)
    assert viewer.post(page, rung).status_code == 403
    assert 'name="add"' not in viewer.get(page).content.decode()
    (row,) = Guardrail.objects.all()
    client.post(page, {"remove": str(row.id)})
    assert not Guardrail.objects.exists()
