"""Money on a project's page: unused time, proposals that make it last, and labels."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, Gpu, GpuUse
from allocation.queries.bookings.money.forecasts import BudgetHistory
from allocation.queries.bookings.money.projects import Forecast
from allocation.web.home.remedies import remedies_of
from billing.queries import budget_figures
from tenants.models import Project
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import an_allocation
from tests.roles import as_system

pytestmark = pytest.mark.turn

PAGE = "/t/helix/p/folding"


@pytest.fixture
def site(db: None) -> Site:
    return a_site(budget="10")


def test_a_budget_that_runs_out_has_proposals_that_act(site: Site) -> None:
    now = timezone.now()
    made = said(site.lead.post("bookings", {"project": "folding", "request": "1 h100 for 2h"}))
    with as_system():
        project = Project.objects.get(slug="folding")
        Booking.objects.update(price_per_hour=Decimal("1.5"))
        booking = Booking.objects.get()
        figures = budget_figures(project_id=project.id, at=now)
        assert figures is not None
        soon = now.date() + timedelta(days=2)
        lasts = Forecast(Decimal(25), Decimal(20), Decimal(30), Decimal(2), None, tests=20)
        money = BudgetHistory(figures, now.date(), (), 30, replace(lasts, runs_out=soon))
        actor = site.actor("lead")
        found = {each.title: each for each in remedies_of(project, money, actor, now)}
        assert remedies_of(project, replace(money, forecast=lasts), actor, now) == ()
        assert list(remedies_of(project, money, site.actor("viewer"), now)) == [found["Ask for more"]]
    half = found[f"Make {booking.label} half as long"]
    assert half.sentence == "It saves €1.50."
    assert half.href.endswith(f"/{made['number']}/change?grow=-3600")
    client = Client()
    client.force_login(site.people["lead"])
    assert client.get(half.href).status_code == 200
    more = found["Ask for more"]
    assert "15.00" in more.href
    assert "15.00" in client.get(more.href).content.decode()
    # A link can propose another class: the page shows what it would do and changes nothing.
    proposed = client.get(f"/t/helix/bookings/{made['number']}/change?classes=h100")
    assert proposed.status_code == 200


def test_unused_time_of_the_last_days_is_on_the_page(site: Site) -> None:
    client = Client()
    client.force_login(site.people["viewer"])
    assert "Reserved but unused" not in client.get(PAGE).content.decode()
    said(site.lead.post("bookings", {"project": "folding", "request": "1 h100 for 1h"}))
    with as_system():
        booking = Booking.objects.get()
        place = an_allocation(booking, Gpu.objects.order_by("id")[0], state="active")
        for number, busy in enumerate((80.0, 1.0, 0.0, 0.0)):
            GpuUse.objects.create(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                slot=None,
                at=timezone.now() - timedelta(minutes=5 * number + 5),
                seconds=300,
                measured=300,
                busy_avg=busy,
                processes_max=1,
                energy_mj=None,
            )
    shown = client.get(PAGE).content.decode()
    assert "Reserved but unused" in shown
    assert "75 % of" in shown
    assert "kWh" in shown


def test_leads_set_labels_on_the_page(site: Site) -> None:
    client = Client()
    client.force_login(site.people["lead"])
    assert client.post(PAGE, {"labels": "Bad Key"}).status_code == 422
    form = {"labels": "team=vision", "external_ref": "LAB-1"}
    assert client.post(PAGE, form).status_code == 302
    assert "team=vision" in client.get(PAGE).content.decode()
    client.force_login(site.people["researcher"])
    assert client.post(PAGE, form | {"labels": "team=audio"}).status_code == 403
    with as_system():
        assert Project.objects.get(slug="folding").labels == {"team": "vision"}
    budget = f"/t/helix/budgets/{site.budget.id}"
    client.force_login(site.people["admin"])
    assert client.post(budget, {"labels": "grant=a1", "external_ref": "x y"}).status_code == 422
    assert client.post(budget, {"labels": "grant=a1"}).status_code == 302
    assert "grant=a1" in client.get(budget).content.decode()
