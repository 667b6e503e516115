"""Planned outages and freezes over REST and on pages: who may, what others read and are refused."""

import re

import pytest
from django.test import Client

from allocation.models import Node, PortalMode
from portal.web import outage
from tests.api.builders import Site, said
from tests.roles import as_system

A_BOOKING = {"project": "folding", "tier": "standard", "request": "1 h100 1h"}
OUTAGE = {"length": "PT20M", "reason": "Version 0.7 <b>"}


def test_an_operator_announces_closes_and_ends_an_outage(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0)
    assert said(site.operator.get("portal/outage")) == {"outage": None, "nodes": []}
    begun = said(site.operator.post("portal/outage", OUTAGE))
    assert (begun["kind"], begun["closed_at"], begun["ended_at"]) == ("outage", None, None)
    # An announced outage refuses nothing yet.
    assert site.lead.post("bookings", A_BOOKING).status_code != 503
    with as_system():
        Node.objects.update(link_digest=b"x" * 32)
    nodes = said(site.operator.get("portal/outage"))["nodes"]
    assert [(each["state"], each["is_safe"]) for each in nodes] == [("not_heard", True)]
    assert said(site.operator.post("portal/outage/close"))["closed_at"] is not None

    refused = site.lead.post("bookings", A_BOOKING)
    assert (refused.status_code, said(refused)["code"]) == (503, "portal_upgrading")
    assert refused["Content-Type"] == "application/problem+json"
    assert 1 <= int(refused["Retry-After"]) <= 600
    assert "is being upgraded until " in said(refused)["detail"]
    assert site.lead.get("bookings").status_code == 200

    assert said(site.operator.post("portal/outage/end"))["ended_at"] is not None
    after = site.lead.post("bookings", A_BOOKING)
    assert after.status_code != 503
    again = site.operator.post("portal/outage/end")
    assert (again.status_code, said(again)["code"]) == (409, "no_outage")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("portal/outage", {"length": "PT20M"}, "reason"),
        ("portal/outage", {"length": "20m", "reason": "x"}, "length"),
        ("portal/outage", {"length": "PT5H", "reason": "x"}, "for"),
        ("portal/freeze", {"reason": ""}, "reason"),
        ("portal/freeze", {"reason": "x", "length": "P31D"}, "for"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(site: Site, path: str, body: dict[str, str], param: str) -> None:
    answer = site.operator.post(path, body)
    assert (answer.status_code // 100, said(answer)["param"]) == (4, param)


@pytest.mark.parametrize("path", ["outage", "outage/close", "outage/end", "freeze", "freeze/end"])
def test_members_may_not(site: Site, path: str) -> None:
    body = OUTAGE if path == "outage" else {"reason": "x"} if path == "freeze" else {}
    answer = site.admin.post(f"portal/{path}", body)
    assert (answer.status_code, said(answer)["code"]) == (403, "not_allowed")
    with as_system():
        assert not PortalMode.objects.exists()


def test_a_freeze_stands_on_every_page_and_in_why(site: Site) -> None:
    made = site.lead.post("bookings", A_BOOKING)
    number = said(made)["number"]
    frozen = site.operator.post("portal/freeze", {"reason": "Power <i>works</i>"})
    assert said(frozen)["until"] is None
    checks = said(site.lead.get(f"bookings/{number}/why"))["checks"]
    (policy,) = [each for each in checks if each["check"] == "policy"]
    assert not policy["passed"]
    assert policy["reasons"][0]["rule"] == "R120"
    page = Client().get("/sign-in").content.decode()
    assert "Power &lt;i&gt;works&lt;/i&gt;" in page
    member = Client()
    member.force_login(site.people["lead"])
    page = member.get(f"/t/{site.tenant.slug}/bookings/{number}").content.decode()
    assert "Waiting: decisions are frozen" in page
    assert page.count("Decisions have been frozen by an operator since") >= 2
    # In the reader's zone, as all other times of the page.
    assert re.search(r"frozen by an operator since \d\d? \w+ \d\d:\d\d CES?T: Power", page)
    operator = Client()
    operator.force_login(site.people["operator"])
    # Once on the page, next to the two of the navigation.
    assert operator.get("/ops/tiers").content.decode().count('href="/ops/portal"') == 3
    assert said(site.operator.post("portal/freeze/end"))["ended_at"] is not None
    page = member.get(f"/t/{site.tenant.slug}/bookings/{number}").content.decode()
    assert "frozen" not in page


@pytest.mark.turn
def test_an_operators_page_does_all_of_it(site: Site) -> None:
    client = Client()
    client.force_login(site.people["operator"])

    def act(name: str, status: int = 302, *, length: str = "", reason: str = "") -> str:
        answer = client.post("/ops/portal", {"act": name, "for": length, "reason": reason})
        assert answer.status_code == status, answer.content.decode()
        return (client.get("/ops/portal") if status == 302 else answer).content.decode()

    assert "such as 20m" in act("begin", 422, reason="x")
    assert "Write the duration" in act("begin", 422, reason="x", length="soon")
    assert "Refuse changes now" in act("begin", reason="0.7", length="20m")
    assert "Members' changes have been refused" in act("close")
    # A form of a member is refused with the time; signing in and out is not.
    member = Client()
    member.force_login(site.people["lead"])
    answer = member.post(f"/t/{site.tenant.slug}/book", {"q": "1 h100"})
    assert (answer.status_code, "is being upgraded until" in answer.content.decode()) == (503, True)
    assert int(answer["Retry-After"]) > 0
    assert member.post("/sign-out").status_code == 302
    assert "Announce and extend" in act("end")
    assert "Resume decisions" in act("freeze", reason="x", length="2h")
    assert "Freeze decisions" in act("thaw")
    with as_system():
        assert PortalMode.objects.filter(ended_at=None).count() == 0
        assert PortalMode.objects.count() == 2


def test_a_process_asks_for_an_outage_four_times_a_second_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[bool]()

    def look() -> bool:
        looks.append(False)
        return False

    monkeypatch.setattr(outage, "outage_is_closed", look)
    monkeypatch.setattr(outage, "LOOK_SECONDS", 60)
    for _ in range(3):
        assert site.lead.post("bookings", {}).status_code == 400
    assert len(looks) == 1
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0)
    for _ in range(2):
        assert site.admin.post("bookings", {}).status_code == 400
    assert len(looks) == 3
