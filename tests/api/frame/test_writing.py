"""What admins, leads and operators set over the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from allocation.models import Node
from tenants.models import Membership
from tests.api.builders import Api, Site, said
from tests.builders import an_operator
from tests.roles import as_system

TERMS = {
    "name": "Gold",
    "priority": 300,
    "pausable": False,
    "grace_seconds": 60,
    "protected_seconds": 0,
    "max_duration_seconds": 86_400,
    "advance_seconds": 86_400,
}


def test_a_tenant_admin_makes_and_closes_projects(site: Site) -> None:
    made = site.admin.post("projects", {"slug": "cryo-em", "name": "Cryo EM"})
    assert (made.status_code, said(made)["is_open"]) == (201, True)
    again = site.admin.post("projects", {"slug": "cryo-em", "name": "Cryo EM"})
    assert (again.status_code, said(again)["code"]) == (422, "slug_taken")
    closed = site.admin.put("projects/cryo-em", {"is_open": False})
    assert said(closed)["is_open"] is False


def test_a_lead_changes_and_ends_roles_in_the_own_project(site: Site) -> None:
    people = said(site.viewer.get("projects/folding/members"))["items"]
    vera = next(person["id"] for person in people if person["username"] == "vera")
    made = site.lead.put(f"members/{vera}", {"role": "researcher"})
    assert (made.status_code, said(made)["role"]) == (200, "researcher")
    gone = site.lead.delete(f"members/{vera}")
    assert (gone.status_code, gone.content) == (204, b"")


def test_the_last_admin_stays(site: Site) -> None:
    with as_system():
        admins = {
            member.user.username: member.id
            for member in Membership.objects.filter(tenant=site.tenant, role="tenant_admin").select_related(
                "user"
            )
        }
    assert site.admin.delete(f"members/{admins['otto']}").status_code == 204
    refused = site.admin.delete(f"members/{admins['ada']}")
    assert (refused.status_code, said(refused)["code"]) == (409, "last_admin")


def test_a_lead_invites_no_tenant_admins_and_nobody_elsewhere(site: Site) -> None:
    up = site.lead.post("invitations", {"to": "jonas", "role": "tenant_admin"})
    assert (up.status_code, said(up)["code"]) == (403, "not_allowed")
    for project in ("hidden", "climate"):
        asked = {"to": "jonas", "role": "lead", "project": project}
        away = site.lead.post("invitations", asked)
        assert (away.status_code, said(away)["code"]) == (422, "not_found")


def test_a_tenant_admin_splits_the_quota_and_not_more_than_there_is(site: Site) -> None:
    share = {"project": "hidden", "gpu_class": "h100", "guaranteed_units": 112_000}
    assert said(site.admin.put("quotas", share))["guaranteed_units"] == 112_000
    over = site.admin.put("quotas", {**share, "guaranteed_units": 112_001})
    assert (over.status_code, said(over)["code"]) == (409, "guarantees_exceeded")
    assert said(over)["numbers"]["over"] == 1


def test_what_a_project_borrows_and_lends_is_set_beside_its_guarantee(site: Site) -> None:
    share = {"project": "hidden", "gpu_class": "h100", "guaranteed_units": 56_000}
    more = {"borrow_limit_units": 112_000, "lend_limit_units": 14_000, "weight": 3}
    cap = {"cap_gpu_hours": 500, "cap_carries": True}
    made = said(site.admin.put("quotas", {**share, **more, **cap}))
    assert {key: made[key] for key in (*more, *cap)} == {**more, **cap}
    assert (made["limit_units"], made["cap_days"]) == (168_000, None)
    by_limit = said(site.admin.put("quotas", {**share, "limit_units": 70_000}))
    assert (by_limit["borrow_limit_units"], by_limit["cap_gpu_hours"]) == (14_000, None)
    for wrong in (
        {"limit_units": 55_999},
        {"limit_units": 70_000, "borrow_limit_units": 14_000},
        {"cap_days": 7},
        {"cap_gpu_hours": 5, "cap_days": 7, "cap_carries": True},
    ):
        assert site.admin.put("quotas", {**share, **wrong}).status_code == 422, wrong


def test_an_operator_sets_a_tenants_share(site: Site) -> None:
    share = {"tenant": "northlab", "gpu_class": "h100", "guaranteed_units": 56_000}
    assert said(site.operator.put("quotas", share))["guaranteed_units"] == 56_000
    mine = said(site.outsider.get("quotas"))["items"]
    assert [row["guaranteed_units"] for row in mine if row["project"] is None] == [56_000]


def test_a_tier_beyond_the_planning_horizon_says_so(site: Site) -> None:
    """The policy plans 28 days ahead, so a tier that allows a year promises too much."""
    day = 86_400
    inside, beyond = (
        said(site.operator.put("tiers/gold", {**TERMS, "advance_seconds": days * day})) for days in (28, 365)
    )
    assert (inside["hint"], beyond["advance_seconds"]) == ("", 365 * day)
    assert beyond["hint"].startswith("The policy plans no booking more than 28 days ahead")
    assert said(site.viewer.get("tiers/gold"))["hint"] == beyond["hint"]


def test_an_operator_makes_a_tier_and_publishes_prices_for_it(site: Site) -> None:
    made = site.operator.put("tiers/gold", TERMS)
    assert (made.status_code, said(made)["priority"]) == (200, 300)
    assert said(site.viewer.get("tiers/gold")) == said(made)
    prices = [
        {"gpu_class": "h100", "tier": tier, "per_gpu_hour": price}
        for tier, price in (("gold", "9.6"), ("standard", "4.8"), ("spot", "1.68"))
    ]
    ahead = (timezone.now() + timedelta(days=9)).isoformat()
    book = {"valid_from": ahead, "prices": prices}
    published = site.operator.post("price-books", book, idempotency_key="p1")
    assert published.status_code == 201, published.content
    assert site.operator.post("price-books", book, idempotency_key="p1").content == (published.content)
    version = said(published)["version"]
    assert said(site.viewer.get(f"price-books/{version}"))["prices"][0]["per_gpu_hour"] == "9.6000"
    assert len(said(site.viewer.get("price-books"))["items"]) == 2
    higher = [{**price, "per_gpu_hour": "20"} for price in prices]
    later = (timezone.now() + timedelta(days=10)).isoformat()
    refused = site.operator.post("price-books", {"valid_from": later, "prices": higher})
    assert (refused.status_code, said(refused)["code"]) == (422, "draft_needed")
    partial = site.operator.post("price-books/drafts", {"valid_from": later, "prices": prices[:1]})
    assert (partial.status_code, said(partial)["code"]) == (422, "price_missing")
    twice = site.operator.post("price-books/drafts", {"prices": [*prices, prices[0]]})
    assert said(twice)["code"] == "price_repeated"
    draft = said(site.operator.post("price-books/drafts", {"valid_from": later, "prices": higher}))
    assert [change["new"] for change in draft["changes"]] == ["20.0000"] * 3
    an_operator()
    mine = said(site.operator.post(f"price-books/drafts/{draft['id']}/publish", {"revision": 1}))
    assert (mine["status"], mine["code"]) == (409, "second_person_needed")
    unknown = said(
        site.operator.post("price-books/drafts", {"prices": [*higher, {**higher[1], "profile": "9g.9gb"}]})
    )
    assert (unknown["status"], unknown["code"]) == (422, "unknown_profile")
    effect = said(site.operator.get(f"price-books/drafts/{draft['id']}/effect"))
    assert (effect["charges"], effect["projects"]) == (0, [])
    assert site.viewer.get("price-books/drafts").status_code == 403


def test_a_draft_says_which_set_up_fees_it_changes(site: Site) -> None:
    prices = said(site.operator.get("price-books"))["items"][0]["prices"]
    fees = {"prices": prices, "setup_fees": [{"tier": "spot", "amount": "2"}]}
    draft = said(site.operator.post("price-books/drafts", fees))
    assert [(each["tier"], each["is_setup"]) for each in draft["changes"]] == [("spot", True)]
    wrong = {**fees, "setup_fees": [{"tier": "gold", "amount": "2"}]}
    assert said(site.operator.post("price-books/drafts", wrong))["code"] == "price_missing"


def test_a_tenant_admin_sets_a_new_budget_and_changes_it(site: Site) -> None:
    period = {"starts": "2040-01-01", "ends": "2040-02-01"}
    made = site.admin.post("budgets", {"project": "hidden", "amount": "250.50", **period})
    assert (made.status_code, said(made)["left"]) == (201, "250.500000")
    changed = site.admin.put(f"budgets/{said(made)['id']}", {"amount": "300", "warn_percent": 50})
    assert (said(changed)["amount"], said(changed)["warn_percent"]) == ("300.000000", 50)
    overlapping = site.admin.post(
        "budgets", {"project": "hidden", "amount": "1", **period, "ends": "2040-03-01"}
    )
    assert said(overlapping)["code"] == "budget_overlaps"


def test_labs_and_the_platform_have_budgets(site: Site) -> None:
    period = {"starts": "2040-01-01", "ends": "2040-02-01"}
    site.admin.post("labs", {"slug": "imaging", "name": "Imaging"})
    lab = site.admin.post("budgets", {"lab": "imaging", "amount": "70", **period})
    shown = said(site.admin.get("budgets?lab=imaging&starts=2040-01-01&ends=2040-02-01"))["items"]
    assert shown == [said(lab)]
    assert (shown[0]["level"], shown[0]["lab"], shown[0]["name"]) == ("lab", "imaging", "Imaging")
    both = site.admin.post("budgets", {"lab": "imaging", "project": "hidden", "amount": "1", **period})
    assert (both.status_code, said(both)["code"]) == (422, "bad_level")
    platform = site.operator.post("platform-budgets", {"amount": "900", **period})
    assert (platform.status_code, said(platform)["level"]) == (201, "platform")
    assert said(site.operator.get("platform-budgets"))["items"] == [said(platform)]
    rungs = {"rungs": [{"measure": "spent", "percent": 80, "action": "approval"}]}
    ladder = f"platform-budgets/{said(platform)['id']}/guardrails"
    assert site.operator.put(ladder, rungs).status_code == 422
    assert site.admin.get(f"budgets/{said(platform)['id']}").status_code == 404


def test_an_operator_drains_a_node_and_puts_it_back(site: Site) -> None:
    drained = site.operator.post("fleet/nodes/gpu-a1-01/drain", {"reason": "new fans"})
    assert (drained.status_code, said(drained)["state"]) == (200, "draining")
    assert "new fans" in said(drained)["state_reason"]
    assert said(site.viewer.get("availability", gpu_class="h100"))["free"][0]["whole_gpus"] == 0
    ready = site.operator.post("fleet/nodes/gpu-a1-01/ready")
    assert said(ready)["state"] == "ready"
    assert site.operator.post("fleet/nodes/nothing/ready").status_code == 404


@pytest.mark.parametrize("value", [777, 12.5, True, {}, [1]])
def test_a_number_is_no_text(site: Site, value: object) -> None:
    for path, body in (
        ("fleet/enrolments", {"node": value}),
        ("fleet/enrolments", {"node": "n9", "rack": value}),
        ("webhooks", {"name": "x", "url": value, "events": ["booking.created"]}),
        ("webhooks", {"name": "x", "url": "https://example.org", "events": [value]}),
    ):
        who = site.operator if path.startswith("fleet") else site.admin
        refused = who.post(path, body)
        assert (refused.status_code, said(refused)["code"]) == (400, "wrong_type"), (path, body)


def test_a_node_that_never_had_an_agent_is_not_made_ready(site: Site) -> None:
    assert site.operator.post("fleet/enrolments", {"node": "fresh-1", "rack": "a9"}).status_code == 201
    ready = site.operator.post("fleet/nodes/fresh-1/ready")
    assert (ready.status_code, said(ready)["code"]) == (409, "node_not_enrolled")
    assert "Install one first" in said(ready)["detail"]
    drained = site.operator.post("fleet/nodes/fresh-1/drain", {"reason": "not here yet"})
    assert drained.status_code in (200, 409)
    assert site.operator.post("fleet/nodes/fresh-1/ready").status_code == 409


def test_an_operator_locks_an_agent_out_and_nobody_else_does(site: Site) -> None:
    none = site.operator.post("fleet/nodes/gpu-a1-01/revoke")
    assert (none.status_code, said(none)["code"]) == (409, "node_not_enrolled")
    with as_system():
        Node.objects.filter(name="gpu-a1-01").update(link_digest=b"d" * 32)
    assert site.admin.post("fleet/nodes/gpu-a1-01/revoke").status_code == 403
    done = site.operator.post("fleet/nodes/gpu-a1-01/revoke")
    assert (done.status_code, said(done)["state"]) == (200, "quarantined")
    with as_system():
        assert Node.objects.get(name="gpu-a1-01").link_digest is None
    # Drained meanwhile, it is still locked out.
    assert site.operator.post("fleet/nodes/gpu-a1-01/drain", {"reason": "new fans"}).status_code
    ready = site.operator.post("fleet/nodes/gpu-a1-01/ready")
    assert (ready.status_code, said(ready)["code"]) == (409, "node_locked_out")
    assert "manage.py enrol_token --node gpu-a1-01" in said(ready)["detail"]
    assert "--enrol-again" in said(ready)["detail"]
    with as_system():
        assert Node.objects.get(name="gpu-a1-01").state != "ready"


def test_an_operator_rotates_a_nodes_key_once_at_a_time(site: Site) -> None:
    path = "fleet/nodes/gpu-a1-01/rotate-key"
    with as_system():
        Node.objects.filter(name="gpu-a1-01").update(link_digest=b"d" * 32, agent_version="0.2.0")
    assert site.admin.post(path).status_code == 403
    assert site.operator.post(path).status_code == 200
    again = site.operator.post(path)
    assert (again.status_code, said(again)["code"]) == (409, "rotation_running")
    with as_system():
        node = Node.objects.get(name="gpu-a1-01")
    assert (node.key_confirmed, node.key_version) == (1, 2)


def test_an_operator_gets_a_one_time_token_for_an_agent(site: Site) -> None:
    made = site.operator.post("fleet/enrolments", {"node": "gpu-z9-01", "rack": "z9"})
    assert made.status_code == 201, made.content
    assert said(made)["token"].startswith("gpup_enrol_")


def test_a_token_works_and_a_revoked_one_does_not(site: Site) -> None:
    made = said(site.researcher.post("tokens", {"name": "ci", "days": 7}))
    fresh = Api(made["token"])
    assert said(fresh.get("me"))["token_id"] == made["id"]
    assert made["id"] in {row["id"] for row in said(fresh.get("tokens"))["items"]}
    assert said(site.researcher.delete(f"tokens/{made['id']}"))["revoked"] is not None
    assert fresh.get("me").status_code == 401


def test_the_own_time_zone_is_set(site: Site) -> None:
    assert said(site.researcher.put("me", {"time_zone": "Asia/Kathmandu"}))["time_zone"] == ("Asia/Kathmandu")
    wrong = site.researcher.put("me", {"time_zone": "Mars"})
    assert (wrong.status_code, said(wrong)["code"]) == (422, "bad_zone")


def test_which_mails_one_gets_is_set_and_the_zone_stays(site: Site) -> None:
    zone = said(site.researcher.get("me"))["time_zone"]
    after = said(site.researcher.put("me", {"mails": "none"}))
    assert (after["mails"], after["time_zone"]) == ("none", zone)
    assert site.researcher.put("me", {"mails": "some"}).status_code == 422


def test_an_operator_without_a_membership_runs_the_platform_and_sees_no_project(
    site: Site,
) -> None:
    with as_system():
        membership = Membership.objects.get(user=site.people["operator"])
    assert site.admin.delete(f"members/{membership.id}").status_code == 204
    assert site.operator.put("tiers/gold", TERMS).status_code == 200
    assert said(site.operator.get("projects"))["items"] == []
    assert site.operator.get("projects/folding").status_code == 404
