"""Spend and forecasts over REST."""

from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.utils import timezone

from billing.models import Budget
from billing.rules import month_of
from billing.services import budget_set, hold_place, hold_settle
from tests.api.builders import Site, said
from tests.roles import as_system


def charged(site: Site, amount: int, days_ago: int) -> None:
    """An amount that was charged so many days ago."""
    at, key = timezone.now() - timedelta(days=days_ago), uuid4()
    whose = {"tenant_id": site.tenant.id, "project_id": site.project.id}
    with as_system():
        month = month_of(at.date())
        if not Budget.objects.filter(
            level="project", project=site.project, starts__lte=at.date(), ends__gt=at.date()
        ).exists():
            budget_set(actor_id=None, project=site.project, period=month, amount=Decimal(1000), now=at)
        ends = at + timedelta(minutes=1)
        hold_place(**whose, reference=key, amount=Decimal(amount), starts=at, ends=ends, now=at)
        hold_settle(tenant_id=site.tenant.id, reference=key, amount=Decimal(amount), now=at)


def test_spend_stands_next_to_that_of_as_many_days_before(site: Site) -> None:
    charged(site, 7, 0)
    charged(site, 5, 1)
    today = timezone.now().date()
    path = f"spend?by=project&starts={today}&ends={today + timedelta(days=1)}&project=folding"
    (row,) = said(site.lead.get(path))["items"]
    amounts = [Decimal(row["amount"]), Decimal(row["before"])]
    assert (row["name"], amounts) == ("folding", [Decimal(7), Decimal(5)])
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    site.admin.put("projects/folding", {"lab": "physics"})
    (row,) = said(site.lead.get(path.replace("by=project", "by=lab")))["items"]
    assert (row["name"], Decimal(row["amount"])) == ("physics", Decimal(7))
    # An outsider finds the project missing, and days are bounded.
    assert site.outsider.get(path).status_code in (404, 422)
    for bad in (f"starts={today}&ends={today}", "starts=2020-01-01&ends=2026-01-01", "by=luck"):
        assert site.lead.get(f"spend?{bad}").status_code in (400, 422)


@pytest.mark.parametrize("who", ["viewer", "lead"])
def test_forecasts_are_those_of_visible_budgets(site: Site, who: str) -> None:
    rows = said(getattr(site, who).get("forecasts?level=project"))["items"]
    assert {row["project"] for row in rows} == {"folding"}
    assert all(row["spend"] is None for row in rows)


LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}


def test_a_rung_tells_what_it_would_stop_and_a_quote_refuses_as_the_booking_does(
    site: Site,
) -> None:
    path = f"budgets/{site.budget.id}/guardrails"
    assert site.researcher.post("bookings", LINE).status_code == 201
    rungs = [
        {"measure": "committed", "percent": 200, "action": "no_bookings"},
        *({"measure": "spent", "percent": 1, "action": each} for each in ("drain", "pause")),
        {"measure": "spent", "percent": 1, "action": "no_borrowing"},
        {"measure": "spent", "percent": 1, "action": "cheaper"},
    ]
    found = said(site.admin.post(f"{path}/preview", {"rungs": rungs}))["rungs"]
    names = ("stopped", "kept", "paused", "runs_on", "gives_up", "moved", "acts")
    assert [[row[name] for name in names] for row in found] == [
        [0, 0, 0, 0, 0, 0, False],
        [0, 1, 0, 0, 0, 0, False],
        [0, 1, 0, 0, 0, 0, False],
        [0, 0, 0, 0, 0, 0, False],
        [0, 0, 0, 0, 0, 0, False],
    ]
    assert Decimal(found[1]["held"]) > 0
    assert said(site.admin.post(f"{path}/preview", {}))["rungs"] == []
    assert said(site.admin.get(path))["rungs"] == []
    assert site.researcher.post(f"{path}/preview", {}).status_code == 403

    # From 1 % on what is held already, a quote and a booking are refused in the same words.
    with as_system():
        whose = {"tenant_id": site.tenant.id, "project_id": site.project.id}
        now = timezone.now()
        ends = now + timedelta(minutes=1)
        hold_place(**whose, reference=uuid4(), amount=Decimal(500), starts=now, ends=ends, now=now)
    stops = {"rungs": [{"measure": "committed", "percent": 20, "action": "no_bookings"}]}
    assert site.admin.put(path, stops).status_code == 200
    quote = said(site.researcher.post("quotes", LINE))
    refused = said(site.researcher.post("bookings", LINE))
    assert refused["code"] == "bookings_stopped"
    assert (quote["options"], quote["waits"]) == ([], False)
    assert quote["blocking"] == refused["detail"]
