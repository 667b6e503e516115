"""Approvals over the API and on their pages."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.models import Booking
from allocation.rules.approvals import Step
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, row_counts, said
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.turn

LONG = {"project": "folding", "request": "1 h100 for 20m"}


@pytest.fixture
def asked(site: Site) -> dict[str, Any]:
    """A booking that waits for a lead, as the lead reads it."""
    with tenant_tx(site.tenant.id):
        terms = ApprovalRuleTerms(name="Long runs", steps=[Step("lead")], min_seconds=1_200)
        approval_rule_set(actor=site.actor("admin"), terms=terms, now=timezone.now())
    answer = site.researcher.post("bookings", LONG)
    assert (answer.status_code, said(answer)["state"]) == (201, "awaiting_approval")
    (found,) = said(site.lead.get("approvals", show="to_decide"))["items"]
    assert isinstance(found, dict)
    return found


def page(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def shown(response: Any) -> str:  # noqa: ANN401 (the test client's response)
    return flat(response.content.decode())


def posted(client: Client, asked: dict[str, Any], act: str, **more: str) -> Any:  # noqa: ANN401 (a response)
    form = {"act": act, "approval": asked["id"], "digest": asked["hash"], **more}
    return client.post("/t/helix/approvals", form)


def test_a_lead_approves_once_with_the_hash_and_a_retry_answers_the_same(
    site: Site, asked: dict[str, Any]
) -> None:
    assert asked["rules"][0]["name"] == "Long runs"
    assert said(site.researcher.get("approvals", show="to_decide"))["items"] == []
    (mine,) = said(site.researcher.get("approvals", show="mine"))["items"]
    assert mine == asked

    path, body = f"approvals/{asked['id']}/approve", {"hash": asked["hash"]}
    refusals: list[tuple[Api, str, Any, int, str]] = [
        (site.researcher, path, body, 403, "not_allowed"),
        (site.viewer, path, body, 404, "not_found"),
        (site.outsider, path, body, 404, "not_found"),
        (site.lead, path, {}, 400, "missing_field"),
        (site.lead, path, {"hash": "0" * 64}, 409, "approval_changed"),
        (site.lead, path, {"hash": asked["hash"], "state": "approved"}, 400, "unknown_field"),
        (site.lead, f"approvals/{asked['id']}/decline", body, 422, "bad_reason"),
    ]
    client = page(site, "lead")
    before = row_counts()
    for api, where, sent, status, code in refusals:
        answer = api.post(where, sent)
        assert answer.status_code == status, (where, sent, answer.content)
        assert not code or said(answer)["code"] == code
    # A mail scanner follows links, and decides nothing.
    assert site.lead.get(path).status_code == 405
    link = {"act": "approve", "approval": asked["id"], "digest": asked["hash"]}
    assert "Long runs" in shown(client.get("/t/helix/approvals", link))
    assert row_counts() == before

    first = site.lead.post(path, body, idempotency_key="once")
    again = site.lead.post(path, body, idempotency_key="once")
    assert (first.status_code, said(first)["state"]) == (200, "approved")
    assert again.content == first.content
    over = site.admin.post(path, body)
    assert (over.status_code, said(over)["code"]) == (409, "approval_over")
    booking = said(site.researcher.get(f"bookings/{asked['booking']}"))
    assert booking["state"] == "requested"


def test_a_declined_booking_is_rejected_with_its_reason(site: Site, asked: dict[str, Any]) -> None:
    sent = {"hash": asked["hash"], "reason": "Use a slice"}
    answer = said(site.admin.post(f"approvals/{asked['id']}/decline", sent))
    assert (answer["state"], answer["reason"]) == ("declined", "Use a slice")
    text = shown(page(site, "researcher").get(f"/t/helix/bookings/{asked['booking']}"))
    assert "Not approved" in text
    assert "Use a slice" in text


def test_the_page_shows_what_a_lead_needs_and_get_changes_nothing(site: Site, asked: dict[str, Any]) -> None:
    lead, asker, viewer = (page(site, who) for who in ("lead", "researcher", "viewer"))
    one = f"/t/helix/approvals/{asked['id']}"
    before = row_counts()
    for address in ("/t/helix/approvals", one):
        text = shown(lead.get(address))
        for words in ("Long runs", "1.60", "left of", "No earlier booking", "A lead of"):
            assert words in text, (address, words)
        assert "Approve for €" in text
        assert lead.head(address).status_code == 200
    assert "Who approves: 1 rule in force" in shown(lead.get("/t/helix/approvals"))
    assert "1 booking waits for your approval" in shown(lead.get("/t/helix/"))
    # A link that reached somebody else, or the person who asked.
    own = shown(asker.get(one))
    assert "You requested this booking, so another person decides" in own
    assert 'value="approve"' not in own
    assert viewer.get(one).status_code == 404
    assert row_counts() == before

    refused = posted(lead, asked, "decline")
    assert refused.status_code == 422
    assert "Say why you decline" in shown(refused)
    assert posted(lead, asked, "approve").status_code == 302
    twice = posted(lead, asked, "approve")
    assert twice.status_code == 409
    assert "has approved this already" in shown(twice)
    assert re.search(r"Approved by .*today", shown(lead.get(one)))


def test_an_approver_reads_the_effect_on_others_and_what_needs_no_approval(
    site: Site, asked: dict[str, Any]
) -> None:
    big = said(site.researcher.post("bookings", LONG | {"request": "4 h100 for 30m"}))
    other = said(site.lead.post("bookings", LONG | {"request": "4 h100 for 10m"}))
    with as_system():
        # Requests of one second have no order that a test knows.
        number = int(other["number"].removeprefix("BK-"))
        later = timezone.now() + timedelta(seconds=5)
        Booking.objects.filter(number=number).update(submitted=later, not_before=later)
    found = next(
        each
        for each in said(site.lead.get("approvals", show="to_decide"))["items"]
        if each["booking"] == big["number"]
    )
    seen = said(site.lead.get(f"approvals/{found['id']}"))
    (delay,) = seen["effect"]["delays"]
    assert delay["booking"] == other["number"]
    assert delay["after"] > delay["before"]
    assert seen["effect"]["starts"]
    assert seen["history"]["bookings"] == 0
    assert seen["alternative"]["request"] == "4 h100 15m"
    text = shown(page(site, "lead").get(f"/t/helix/approvals/{found['id']}"))
    for words in (
        "Delays 1 booking of your organisation",
        f"{other['number']} by",
        "4 × H100 80 GB for 15 min, ",
    ):
        assert words in text, words

    mine = page(site, "researcher")
    assert "Book this instead" in shown(mine.get("/t/helix/approvals"))
    path, sent = f"approvals/{found['id']}/alternative", {"hash": found["hash"]}
    assert site.lead.post(path, sent).status_code == 403
    made = site.researcher.post(path, sent, idempotency_key="instead")
    assert (made.status_code, said(made)["state"]) == (200, "requested")
    assert site.researcher.post(path, sent, idempotency_key="instead").content == made.content
    assert said(site.researcher.get(f"bookings/{big['number']}"))["state"] == "cancelled"


def test_a_counter_offer_is_accepted_with_one_click_and_its_hash(site: Site, asked: dict[str, Any]) -> None:
    path = f"approvals/{asked['id']}/counter"
    body = {"hash": asked["hash"], "request": "1 h100 for 15m", "reason": "Enough"}
    refusals: list[tuple[Api, str, Any, int, str]] = [
        (site.researcher, path, body, 403, "not_allowed"),
        (site.outsider, path, body, 404, "not_found"),
        (site.lead, path, body | {"hash": "0" * 64}, 409, "approval_changed"),
        (site.lead, path, body | {"request": "1 h100 for 20m"}, 422, "counter_same"),
        (site.lead, path, body | {"request": "9 bananas"}, 422, "not_understood"),
        (site.researcher, f"{path}/accept", {"hash": asked["hash"]}, 409, "counter_over"),
    ]
    before = row_counts()
    for api, where, sent, status, code in refusals:
        answer = api.post(where, sent)
        assert (answer.status_code, said(answer)["code"]) == (status, code), (where, sent)
    assert row_counts() == before

    # By the lead's page: a GET of a scanner changes nothing.
    form = {"act": "counter", "approval": asked["id"], "digest": asked["hash"]}
    sent = form | {"request": "1 h100 for 15m", "reason": "Enough"}
    assert page(site, "lead").post("/t/helix/approvals", sent).status_code == 302
    counter = said(site.researcher.get(f"approvals/{asked['id']}"))["counter"]
    assert (counter["by"], counter["reason"]) == ("jonas", "Enough")
    asker = page(site, "researcher")
    before = row_counts()
    assert "jonas would approve" in shown(asker.get(f"/t/helix/approvals/{asked['id']}"))
    assert row_counts() == before
    accept = {"act": "accept", "approval": asked["id"], "counter": counter["hash"]}
    assert page(site, "admin").post("/t/helix/approvals", accept).status_code == 403
    assert asker.post("/t/helix/approvals", accept).status_code == 302
    booking = said(site.researcher.get(f"bookings/{asked['booking']}"))
    assert booking["state"] == "requested"
    again = site.researcher.post(f"{path}/accept", {"hash": counter["hash"]})
    assert (again.status_code, said(again)["code"]) == (409, "approval_over")


def test_rules_and_stand_ins_over_the_api(site: Site) -> None:
    rule: dict[str, Any] = {
        "name": "Nights",
        "project": "folding",
        "min_cost": "12.5",
        "outside": {"weekdays": ["Mon"], "begins": "08:00", "ends": "18:00"},
        "steps": [{"role": "lead", "hours": 24, "escalates": True}],
    }
    before = row_counts()
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"steps": []}, 422, "bad_steps"),
        ({"min_cost": "0"}, 422, "out_of_range"),
        ({"outside": {"weekdays": ["Mon"], "begins": "8", "ends": "18:00"}}, 400, "wrong_type"),
        ({"classes": ["none"]}, 422, "unknown_class"),
        ({"project": "hidden"}, 422, "not_found"),
        ({"project": "climate"}, 422, "not_found"),
    ]
    for change, status, code in bad:
        answer = site.lead.post("approval-rules", rule | change)
        assert (answer.status_code, said(answer)["code"]) == (status, code), change
    assert site.researcher.post("approval-rules", rule).status_code == 403
    assert row_counts() == before
    made = said(site.lead.post("approval-rules", rule))
    assert made["outside"] == rule["outside"] | {"zone": "Europe/Berlin"}
    assert said(site.researcher.get("approval-rules"))["items"] == [made]
    assert said(site.lead.post(f"approval-rules/{made['id']}/end"))["ended"]
    assert said(site.lead.get("approval-rules"))["items"] == []

    until = (timezone.now() + timedelta(days=3)).isoformat()
    assert site.researcher.post("stand-ins", {"person": "ada", "until": until}).status_code == 403
    named = said(site.lead.post("stand-ins", {"person": "vera", "until": until}))
    assert said(site.viewer.get("stand-ins"))["items"] == [named]
    assert said(site.researcher.get("stand-ins"))["items"] == []
    assert site.researcher.post(f"stand-ins/{named['id']}/end").status_code == 404
    assert said(site.viewer.post(f"stand-ins/{named['id']}/end"))["ended"]
    lead = page(site, "lead")
    form = {"act": "name", "person": "vera", "until": until[:10]}
    assert lead.post("/t/helix/approvals/stand-ins", form | {"until": "soon"}).status_code == 422
    assert lead.post("/t/helix/approvals/stand-ins", form).status_code == 302
    assert "vera" in shown(lead.get("/t/helix/approvals/stand-ins"))
