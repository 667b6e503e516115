"""Unusual spend is found once, explained to the last digit, and announced."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from allocation.models import Booking, Gpu, SpendVariance
from allocation.services.record.variances import variances_store
from billing.models import Budget
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import (
    Rung,
    budget_put,
    budget_set,
    charge_refund,
    hold_place,
    hold_settle,
    ladder_set,
)
from portal.integrations.mail.message import section_of
from portal.integrations.relay import outbox_relay
from tenants.models import Mail, Notification, OutboxMessage, PublishedEvent, Role
from tests.api.builders import Api, a_token, said
from tests.builders import (
    a_member,
    a_project,
    a_tenant,
    a_tenant_admin,
    actor_now,
    an_operator,
)
from tests.builders_allocation import an_allocation
from tests.roles import as_owner, as_system
from tests.web.fleet_builders import a_booking, a_node

pytestmark = pytest.mark.turn

# A Tuesday at noon; the day that is compared is Monday the 23rd.
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
MONDAY = date(2026, 11, 23)
AUTUMN = Period(date(2026, 10, 1), date(2026, 12, 1))


class Lab:
    """A project with a run on each Monday of four weeks."""

    def __init__(self) -> None:
        self.tenant = a_tenant("helix", name="Helix Institute")
        self.project = a_project(self.tenant, "folding", name="Protein folding")
        self.lead = a_member(self.project, Role.LEAD)
        self.outsider = a_member(a_project(self.tenant, "other"), Role.LEAD)
        self.admin = a_tenant_admin(self.tenant)
        with as_system():
            self.budget: Budget = budget_set(
                actor_id=None, project=self.project, period=AUTUMN, amount=Decimal(6100), now=NOW
            )
            for weeks in range(1, 5):
                self.run("10", weeks=weeks)

    def run(self, amount: str, *, weeks: int = 0, hour: int = 10, price: str = "2") -> Booking:
        """A booking that was charged on a Monday."""
        at = datetime(2026, 11, 23, hour, tzinfo=UTC) - timedelta(weeks=weeks)
        booking = a_booking(self.lead, now=at)
        Booking.objects.filter(id=booking.id).update(price_per_hour=Decimal(price), planned_class="h100")
        hold_place(
            tenant_id=self.tenant.id,
            project_id=self.project.id,
            reference=booking.id,
            amount=Decimal(amount),
            starts=at,
            ends=at + timedelta(hours=1),
            now=at,
        )
        hold_settle(tenant_id=self.tenant.id, reference=booking.id, amount=Decimal(amount), now=at)
        return booking

    def client(self, *, admin: bool = False) -> Client:
        """A browser."""
        client = Client()
        client.force_login((self.admin if admin else self.outsider).user)
        return client


@pytest.fixture
def lab(db: None) -> Lab:
    return Lab()


def test_an_unusual_day_is_announced_once_with_causes_that_add_up(lab: Lab, settings: Settings) -> None:
    settings.MAIL_ON = True
    for person in (lab.lead, lab.admin):
        person.user.email = f"{person.user.username}@example.org"
        with as_owner():
            person.user.save()
    with as_system():
        big = lab.run("60", hour=11)
        dear = lab.run("30", hour=12, price="3")
        charge_refund(
            tenant_id=lab.tenant.id,
            reference=big.id,
            amount=Decimal("1.5"),
            note="slow",
            now=NOW - timedelta(days=1),
        )
        assert variances_store(NOW) == 2
        assert variances_store(NOW + timedelta(hours=3)) == 0
        day = SpendVariance.objects.get(against="weekday")
        assert (day.day, day.actual, day.expected) == (MONDAY, Decimal("88.5"), Decimal(10))
        assert day.is_unusual
        parts = {part["cause"]: part for part in day.parts}
        # 40 hours instead of 5, each at the usual 2.00; ten of them at 3.00 instead.
        assert {name: Decimal(part["amount"]) for name, part in parts.items()} == {
            "volume": Decimal(70),
            "price": Decimal(10),
            "corrections": Decimal("-1.5"),
        }
        assert parts["volume"]["bookings"][0]["booking"] == big.label
        assert parts["price"]["bookings"] == [{"booking": dear.label, "amount": "10.000000"}]
        plan = SpendVariance.objects.get(against="plan")
        # 54 of 61 days of the period.
        assert (plan.expected, plan.is_unusual) == (Decimal(5400), False)
        assert sum(Decimal(part["amount"]) for part in plan.parts) == plan.actual - plan.expected
        outbox_relay(NOW)
        notified = Notification.objects.filter(kind="budget.variance")
        assert {each.user_id for each in notified} == {lab.lead.user_id, lab.admin.user_id}
        section = section_of(Mail.objects.filter(kind="budget.variance")[0], NOW)
        event = PublishedEvent.objects.get(type="budget.variance")
    assert section is not None
    assert section.headline == "Protein folding spent €78.50 more than on usual Mondays"
    assert f"More GPU-hours €70.00 ({big.label}, {dear.label})" in section.sentences[1]
    assert event.data["budget"]["expected"] == "10.000000"
    assert event.project_id == lab.project.id


def test_hours_are_of_whole_gpus_and_a_slice_counts_by_its_size(lab: Lab) -> None:
    gpu = Gpu.objects.filter(node=a_node(now=NOW)).first()
    assert gpu is not None
    quarter = "2g.20gb"
    mixed = [{"count": 1, "gpu_class": "h100"}, {"count": 2, "gpu_class": "h100", "profile": quarter}]
    asks: list[tuple[dict[str, Any], str, tuple[str | None, ...]]] = [
        ({"count": 2, "classes": ["h100"], "profile": quarter}, "40", (quarter, quarter)),
        ({"groups": mixed}, "12", (None, quarter, quarter)),
    ]
    starts = NOW
    with as_system():
        for ask, amount, profiles in asks:
            booking = lab.run(amount, hour=11)
            Booking.objects.filter(id=booking.id).update(ask=ask)
            for profile in profiles:
                starts += timedelta(hours=2)
                an_allocation(booking, gpu, profile=profile, starts=starts, state="ended")
        lab.run("10")
        variances_store(NOW)
        day = SpendVariance.objects.get(against="weekday")
    (volume,) = (part for part in day.parts if part["cause"] == "volume")
    # 20 hours of two quarters, 6 of one GPU and two quarters, and 5 of one GPU.
    assert volume["facts"] == {"before": "5.0", "after": "24.0"}


def test_thresholds_say_what_is_unusual_and_a_plan_is_announced_once(lab: Lab) -> None:
    with as_system():
        Budget.objects.update(variance_percent=900, variance_amount=Decimal(20))
        budget_set(actor_id=None, project=lab.project, period=AUTUMN, amount=Decimal(110), now=NOW)
        lab.run("60", hour=11)
        variances_store(NOW - timedelta(days=1))
        variances_store(NOW)
        assert not SpendVariance.objects.filter(is_unusual=True).exists()
        with as_owner():
            SpendVariance.objects.all().delete()
        Budget.objects.update(variance_percent=1, variance_amount=Decimal(0))
        for days in (0, 1, 2):
            variances_store(NOW + timedelta(days=days))
        unusual = SpendVariance.objects.filter(is_unusual=True).order_by("day")
        assert [each.against for each in unusual] == ["weekday", "plan"]
        assert OutboxMessage.objects.filter(kind="budget.variance").count() == 2


def test_the_page_and_rest_show_causes_to_those_who_see_the_budget(lab: Lab) -> None:
    with as_system():
        big = lab.run("60", hour=11)
        variances_store(NOW)
    page = f"/t/helix/budgets/{lab.budget.id}/variance"
    shown = lab.client(admin=True).get(page).content.decode()
    assert "€50.00 more than on usual Mondays" in shown
    assert f"/t/helix/bookings/{big.label}" in shown
    assert "30.0 GPU-hours instead of 5.0" in shown
    assert lab.client().get(page).status_code == 404
    assert lab.client(admin=True).post(page, {"percent": "0", "amount": "5"}).status_code == 422
    assert lab.client(admin=True).post(page, {"percent": "", "amount": "5"}).status_code == 302
    with as_system():
        budget = Budget.objects.get()
    assert (budget.variance_percent, budget.variance_amount) == (None, Decimal(5))

    api = Api(a_token(actor_now(lab.admin.user_id, "helix")))
    (row,) = said(api.get("variances", day="2026-11-23", unusual="true"))["items"]
    assert (row["expected"], row["is_unusual"], row["project"]) == ("10.000000", True, "folding")
    assert sum(Decimal(part["amount"]) for part in row["parts"]) == Decimal(50)
    rule = f"budgets/{lab.budget.id}/variance-rule"
    assert said(api.get(rule)) == {"percent": None, "amount": "5.000000"}
    assert said(api.put(rule, {"percent": 30, "amount": "7"}))["percent"] == 30
    assert api.put(rule, {"percent": 5000, "amount": "7"}).status_code == 422


def test_bookings_of_other_projects_are_counted_and_not_named(lab: Lab) -> None:
    """The budget of an organisation is there for all of its members."""
    with as_system():
        whole = BudgetTerms(AUTUMN, Decimal(9000))
        budget = budget_put(actor_id=None, owner=BudgetOwner(lab.tenant.id), terms=whole, now=NOW)
        mine = lab.run("60", hour=11)
        variances_store(NOW)
    elsewhere = lab.outsider.user
    api = Api(a_token(actor_now(elsewhere.id, "helix")))
    rows = said(api.get("variances", day="2026-11-23"))["items"]
    assert any(part["count"] for row in rows for part in row["parts"])
    assert not any(part["bookings"] for row in rows for part in row["parts"])
    client = Client()
    client.force_login(elsewhere)
    for path in ("variance", "days/2026-11-23"):
        shown = client.get(f"/t/helix/budgets/{budget.id}/{path}")
        assert shown.status_code == 200
        assert mine.label not in shown.content.decode()
    assert "in projects that you are not in" in shown.content.decode()
    admin = Api(a_token(actor_now(lab.admin.user_id, "helix")))
    parts = [part for row in said(admin.get("variances", day="2026-11-23"))["items"] for part in row["parts"]]
    assert mine.label in {each["booking"] for part in parts for each in part["bookings"]}


def test_operators_hear_of_the_platforms_rungs_and_unusual_days(lab: Lab, settings: Settings) -> None:
    """In their inbox and by mail; no tenant has a message, an event or an entry."""
    settings.MAIL_ON = True
    otto, client = an_operator("otto"), Client()
    client.force_login(otto)
    otto.email = "otto@example.org"
    with as_owner():
        otto.save()
        platform = budget_put(
            actor_id=None, owner=BudgetOwner(None), terms=BudgetTerms(AUTUMN, Decimal(100)), now=NOW
        )
    page = f"/ops/budgets/{platform.id}"
    assert client.post(page, {"rule": "1", "percent": "x", "amount": "5"}).status_code == 422
    assert client.post(page, {"rule": "1", "percent": "50", "amount": "5"}).status_code == 302
    with as_system():
        big = lab.run("60", hour=11)
        ladder_set(actor_id=None, budget=platform, rungs=[Rung("spent", 90, "notify")], now=NOW)
        OutboxMessage.objects.exclude(tenant=None).delete()
        for _ in range(2):
            variances_store(NOW)
        outbox_relay(NOW)
        mine = Notification.objects.filter(tenant=None)
        kinds = set(mine.values_list("user", "kind", "path"))
        assert kinds == {
            (otto.pk, "budget.threshold_reached", page),
            (otto.pk, "budget.variance", page),
        }
        assert not PublishedEvent.objects.filter(data__budget__level="platform").exists()
        rung, *_ = Mail.objects.filter(user=otto, kind="budget.threshold_reached")
        section = section_of(rung, NOW)
    assert section is not None
    assert section.headline.endswith("90 % spent")
    assert section.href.endswith(page)
    shown = client.get(page).content.decode()
    assert f"helix/BK-{big.number}" in shown
    inbox = client.get("/ops/inbox").content.decode()
    assert "The platform" in inbox


def test_the_platforms_comparisons_are_for_operators_over_rest(lab: Lab) -> None:
    with as_system():
        terms = BudgetTerms(AUTUMN, Decimal(100))
        platform = budget_put(actor_id=None, owner=BudgetOwner(None), terms=terms, now=NOW)
        variances_store(NOW)
    otto = an_operator("otto")
    operator = Api(a_token(actor_now(a_tenant_admin(lab.tenant, user=otto).user_id, "helix")))
    rows = said(operator.get("platform-variances"))["items"]
    assert {row["level"] for row in rows} == {"platform"}
    path = f"platform-budgets/{platform.id}/variance-rule"
    rule = {"percent": 50, "amount": "5.000000"}
    assert said(operator.put(path, rule)) == said(operator.get(path)) == rule
    member = Api(a_token(actor_now(lab.admin.user_id, "helix")))
    for refused in (member.get("platform-variances"), member.get(path), member.put(path, rule)):
        assert refused.status_code == 403
