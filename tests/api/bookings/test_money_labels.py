"""Labels and tickets of projects and budgets: on their charges, in filters, and for campaigns."""

from decimal import Decimal

from django.utils import timezone

from allocation.models import Booking
from allocation.queries.bookings.money.statements import StatementOf, spend_of, statement_lines
from billing.rules import month_of
from billing.services import hold_settle
from tests.api.builders import Site, said
from tests.roles import as_system

GOOD = {"project": "folding", "request": "1 h100 for 10m"}


def test_charges_have_the_labels_of_their_budget_and_project_unless_they_have_own(
    site: Site,
) -> None:
    project = {"labels": {"team": "vision", "grant": "a1"}, "external_ref": "LAB-1"}
    assert said(site.lead.put("projects/folding", project))["labels"] == project["labels"]
    assert site.researcher.put("projects/folding", project).status_code == 403
    assert site.lead.put("projects/folding", {"labels": {"Bad key": "x"}}).status_code == 422
    budget = {"amount": "1000", "labels": {"grant": "b2"}}
    assert said(site.admin.put(f"budgets/{site.budget.id}", budget))["labels"] == {"grant": "b2"}
    now = timezone.now()
    own = GOOD | {"labels": {"team": "audio"}, "external_ref": "JOB-7"}
    with as_system():
        for body, amount in ((GOOD, "1"), (own, "2")):
            number = said(site.researcher.post("bookings", body))["number"]
            booking = Booking.objects.get(number=int(number.removeprefix("BK-")))
            hold_settle(
                tenant_id=site.tenant.id,
                reference=booking.id,
                amount=Decimal(amount) / 100,
                now=now,
            )
        of = StatementOf(site.tenant.id, month_of(now.date()))
        found = {
            by: {name: sums.exact * 100 for name, sums in spend_of(of, by).items()}
            for by in ("label:team", "label:grant", "ticket")
        }
        lines = {line.ticket: dict(line.labels) for line in statement_lines(of)}
    assert found == {
        "label:team": {"vision": 1, "audio": 2},
        "label:grant": {"b2": 3},
        "ticket": {"LAB-1": 1, "JOB-7": 2},
    }
    assert lines == {
        "LAB-1": {"team": "vision", "grant": "b2"},
        "JOB-7": {"team": "audio", "grant": "b2"},
    }


def test_projects_and_budgets_are_found_by_label_and_reference(site: Site) -> None:
    site.admin.put("projects/folding", {"labels": {"team": "vision"}, "external_ref": "LAB-1"})
    site.admin.put(f"budgets/{site.budget.id}", {"amount": "900", "external_ref": "LAB-2"})
    for query, count in [
        ({"label": "team=vision"}, 1),
        ({"label": "team=audio"}, 0),
        ({"external_ref": "LAB-1"}, 1),
    ]:
        assert len(said(site.admin.get("projects", **query))["items"]) == count
    assert len(said(site.admin.get("budgets", external_ref="LAB-2"))["items"]) == 1
    assert len(said(site.admin.get("budgets", external_ref="LAB-1"))["items"]) == 0
    assert site.admin.get("budgets", label="nonsense").status_code == 422
    # What is left out stays.
    assert said(site.admin.put("projects/folding", {"is_open": True}))["external_ref"] == "LAB-1"


def test_a_campaign_takes_the_bookings_of_a_label_or_ticket(site: Site) -> None:
    new = {"project": "folding", "name": "Ablation", "match_labels": {"run": "abl"}}
    ablation = said(site.lead.post("campaigns", new))
    assert ablation["match_labels"] == {"run": "abl"}
    ticket = {"project": "folding", "name": "Paper", "match_ref": "LAB-9"}
    paper = said(site.lead.post("campaigns", ticket))

    def campaign_of(**more: object) -> str | None:
        booking = said(site.researcher.post("bookings", GOOD | more))
        with as_system():
            row = Booking.objects.get(number=int(booking["number"].removeprefix("BK-")))
            return row.campaign.slug if row.campaign else None

    assert campaign_of() is None
    assert campaign_of(labels={"run": "abl", "x": "y"}) == "ablation"
    assert campaign_of(labels={"run": "other"}) is None
    assert campaign_of(external_ref="LAB-9") == "paper"
    assert campaign_of(labels={"run": "abl"}, campaign="paper") == "paper"
    site.lead.put(f"campaigns/{ablation['id']}", {"is_open": False})
    assert campaign_of(labels={"run": "abl"}) is None
    changed = said(site.lead.put(f"campaigns/{paper['id']}", {"match_labels": {"run": "abl"}}))
    assert (changed["match_ref"], changed["is_open"]) == ("LAB-9", True)
    assert campaign_of(labels={"run": "abl"}) is None
    assert campaign_of(labels={"run": "abl"}, external_ref="LAB-9") == "paper"
