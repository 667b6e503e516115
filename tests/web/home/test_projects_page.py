"""The project's page: its figures agree, and who may see whose money."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking
from allocation.queries.bookings.money.forecasts import BudgetHistory, history_of_budget
from allocation.queries.bookings.money.projects import (
    Forecast,
    forecast_of,
    quota_of,
)
from allocation.rules.states import State
from allocation.web.home.projects import money_card, quota_bars
from billing.queries import BudgetFigures, project_budget
from billing.rules import midnight, month_of
from billing.services import budget_set, hold_place, hold_settle
from tenants.models import Membership, Project, Role
from tenants.platform.wall import tenant_tx
from tenants.services import gpus_text
from tests.builders import a_gpu_class, a_member, a_project, a_quota
from tests.roles import as_owner, as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)


def _effect(amount: str, spent: str, held: str = "0") -> BudgetFigures:
    total, used, kept = Decimal(amount), Decimal(spent), Decimal(held)
    return BudgetFigures(
        budget_id=uuid4(),
        project_id=uuid4(),
        amount=total,
        spent=used,
        held=kept,
        left=total - used - kept,
        currency="EUR",
        starts=date(2026, 11, 1),
        ends=date(2026, 12, 1),
        warn_percent=80,
    )


def _budget(project: Project, amount: str, now: datetime) -> None:
    with as_system():
        budget_set(
            actor_id=None,
            project=project,
            period=month_of(now.date()),
            amount=Decimal(amount),
            now=now,
        )


def _charge(member: Membership, amount: str, at: datetime, tier: str = "standard") -> None:
    """An ended booking of the member that was charged `amount` at `at`, for the first hour of that day."""
    booking, begins = a_booking(member, now=at, state=State.ENDED, tier=tier), midnight(at.date())
    with as_system():
        hold_place(
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            reference=booking.id,
            amount=Decimal(amount),
            starts=begins,
            ends=begins + timedelta(hours=1),
            now=at,
        )
        hold_settle(tenant_id=booking.tenant_id, reference=booking.id, amount=Decimal(amount), now=at)


def test_six_days_of_charges_make_no_forecast() -> None:
    assert (
        forecast_of(effect=_effect("1000", "60"), recent=[Decimal(10)] * 6, today=date(2026, 11, 17)) is None
    )


def test_an_even_pace_is_forecast_exactly() -> None:
    found = forecast_of(effect=_effect("1000", "160"), recent=[Decimal(10)] * 7, today=date(2026, 11, 17))
    assert found is not None
    assert found.spend == found.low == found.high == 300
    assert found.runs_out is None


def test_money_that_will_not_last_runs_out_on_a_day() -> None:
    recent = [Decimal(amount) for amount in (40, 60, 50, 45, 55, 50, 50)]
    found = forecast_of(effect=_effect("1000", "800"), recent=recent, today=date(2026, 11, 17))
    assert found is not None
    assert found.runs_out == date(2026, 11, 21)


def test_a_forecast_is_never_below_what_is_already_held() -> None:
    found = forecast_of(
        effect=_effect("1000", "10", held="500"),
        recent=[Decimal(1)] * 7,
        today=date(2026, 11, 29),
    )
    assert found is not None
    assert found.low == found.spend == 510


def test_the_days_of_the_chart_add_up_to_what_is_spent() -> None:
    member = a_member(a_project())
    assert member.project is not None
    _budget(member.project, "1000", NOW)
    for back in range(9):
        _charge(member, "20.50", NOW - timedelta(days=back))
    with tenant_tx(member.tenant_id):
        budget = project_budget(member.project.id, NOW)
        assert budget is not None
        money = history_of_budget(budget, NOW)
    assert money is not None
    assert sum(money.days) == money.effect.spent == Decimal("184.50")
    assert len(money.days) == 17
    assert money.observed == 8
    assert money.forecast is not None
    assert money.forecast.spend > money.effect.spent
    with as_owner():
        Project.objects.filter(id=member.project.id).update(is_open=False)
    with tenant_tx(member.tenant_id):
        closed = history_of_budget(budget, NOW)
    assert closed is not None
    assert closed.forecast is not None
    assert closed.forecast.high == money.effect.spent, "nothing is booked in a closed project"


def test_quota_in_use_counts_only_what_is_on_the_calendar_now() -> None:
    member = a_member(a_project())
    assert member.project is not None
    a_quota(member.tenant, limit=8)
    a_quota(member.tenant, project=member.project, guaranteed=2, limit=4)
    first, second = a_node(now=NOW).gpus.all()
    a_place(a_booking(member, now=NOW), first)
    a_place(a_booking(member, now=NOW, starts_in=timedelta(days=2)), second)
    with tenant_tx(member.tenant_id):
        (line,) = quota_of(project=member.project, now=NOW)
    (bar,) = quota_bars([line])
    assert (bar.words, bar.note) == ("1 of 4 GPUs", "2 guaranteed")
    assert (bar.u, bar.g, bar.l) == (25, 50, 100)


def test_without_a_limit_of_its_own_the_tenants_limit_is_named() -> None:
    member, colleague = a_member(a_project()), None
    assert member.project is not None
    a_quota(member.tenant, a_gpu_class("h100"), limit=8)
    colleague = a_member(a_project(member.tenant))
    a_place(a_booking(colleague, now=NOW), a_node(now=NOW).gpus.all()[0])
    with tenant_tx(member.tenant_id):
        (line,) = quota_of(project=member.project, now=NOW)
    (bar,) = quota_bars([line])
    assert bar.words == "0 of 8 GPUs"
    assert bar.note == "limit of the organisation, which uses 1"


@pytest.mark.parametrize(("units", "text"), [(56_000, "1"), (24_000, "0.429"), (0, "0"), (560_000, "10")])
def test_units_are_shown_as_gpus(units: int, text: str) -> None:
    assert gpus_text(units) == text


@pytest.mark.parametrize(("role", "sees"), [(Role.RESEARCHER, True), (Role.LEAD, True), (Role.VIEWER, False)])
def test_viewers_see_the_budget_but_not_who_spent_it(
    client: Client,
    role: str,
    sees: bool,  # noqa: FBT001
) -> None:
    now = timezone.now()
    spender = a_member(a_project())
    assert spender.project is not None
    _budget(spender.project, "1000", now)
    _charge(spender, "77.25", now)
    client.force_login(a_member(spender.project, role).user)
    page = client.get(f"/t/{spender.tenant.slug}/p/{spender.project.slug}").content.decode()
    assert "€922.75" in page
    assert ("By person" in page) is sees


def test_a_project_without_a_budget_says_what_to_do(client: Client) -> None:
    member = a_member(a_project())
    assert member.project is not None
    client.force_login(member.user)
    page = client.get(f"/t/{member.tenant.slug}/p/{member.project.slug}").content.decode()
    assert "No budget for today" in page
    assert f"/t/{member.tenant.slug}/budgets" in page


def test_a_young_budget_says_why_there_is_no_forecast(client: Client) -> None:
    member = a_member(a_project())
    assert member.project is not None
    _budget(member.project, "1000", timezone.now())
    client.force_login(member.user)
    page = client.get(f"/t/{member.tenant.slug}/p/{member.project.slug}").content.decode()
    assert "No forecast yet: it needs 7 days of charges; none so far." in page


def test_a_project_of_others_is_missing_even_in_the_same_tenant(client: Client) -> None:
    member = a_member(a_project())
    other = a_project(member.tenant)
    client.force_login(member.user)
    assert client.get(f"/t/{member.tenant.slug}/p/{other.slug}").status_code == 404


@pytest.mark.parametrize(
    ("spent", "held", "low", "high", "words"),
    [
        ("10", "500", "510", "510", "already spent or held"),
        ("160", "0", "300", "300", "no range: recent days cost the same"),
        ("160", "0", "250", "300", "€250.00 to €300.00 in 8 of 10 cases"),
    ],
)
def test_a_range_without_a_width_is_not_called_one(
    spent: str, held: str, low: str, high: str, words: str
) -> None:
    forecast = Forecast(Decimal(high), Decimal(low), Decimal(high), Decimal(1), None)
    effect = _effect("1000", spent, held=held)
    money = BudgetHistory(effect, date(2026, 11, 17), (Decimal(spent),), 9, forecast)
    card = money_card(money, "helix")
    assert card.forecast_range == words
    assert bool(card.chart.forecast_band) is (low != high)
    assert ("between" in card.chart.text) is (low != high)


def test_quota_at_an_instant_counts_what_is_planned_for_it() -> None:
    member = a_member(a_project())
    assert member.project is not None
    a_quota(member.tenant, limit=8)
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    later = NOW + timedelta(hours=3)
    booking = a_booking(member, now=NOW, state=State.QUEUED, starts_in=timedelta(hours=3))
    with as_system():
        booking.planned_places = [{"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8}]
        booking.planned_class = "h100"
        booking.save()
    with tenant_tx(member.tenant_id):
        counted = [
            quota_of(project=member.project, now=at, with_planned=True)[0].used / 56_000
            for at in (NOW, later, later + timedelta(hours=6))
        ]
    assert counted == [0, 1, 0]


def test_the_start_of_a_waiting_booking_is_worded_by_its_strength() -> None:
    project, now = a_project(), timezone.now()
    member = a_member(project)
    for name, strength in (("sure", "guaranteed"), ("soft", "expected")):
        booking = a_booking(member, now=now, state=State.QUEUED, name=name, starts_in=timedelta(days=2))
        with as_system():
            Booking.objects.filter(id=booking.id).update(planned_strength=strength)
    client = Client()
    client.force_login(member.user)
    page = flat(client.get(f"/t/{member.tenant.slug}/p/{project.slug}").content.decode())
    assert re.search(r">sure<.*?>by \w{3} \d", page)
    assert re.search(r">soft<.*?>≈ \w{3} \d", page)
