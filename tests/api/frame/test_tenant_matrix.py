"""Every route that names something, with somebody else's names: as if it were not there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.db.transaction import savepoint, savepoint_rollback
from django.urls import URLPattern, URLResolver
from django.utils import timezone
from pytest_django import Settings

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.models import BookingEvent
from allocation.rules.approvals import Step
from allocation.rules.states import State
from portal.api.urls import api_urlpatterns
from tenants.models import Membership, Notification
from tenants.platform.rest.schema import takes_body
from tenants.services import invitation_create
from tests.api.builders import Api, Site, a_token, row_counts, said
from tests.api.frame.route_names import NOBODYS, OPEN, UNGUARDED, filled
from tests.builders import a_member, a_session, actor_now
from tests.builders_allocation import a_booking
from tests.builders_pauses import a_decision, a_limit_cut, an_open_appeal
from tests.features.capacity.builders import a_capacity_plan
from tests.roles import as_system

REVISED = {"if-match": '"1"'}
GOOD = {"project": "folding", "request": "1 h100 for 10m"}
HOOK = {"name": "ci", "url": "http://127.0.0.1:9/hook", "events": ["*"], "project": "folding"}
JIRA_SITE = {"name": "Jira", "url": "http://127.0.0.1:9", "flavour": "data_center", "token": "x"}
DATED = {
    "project": "folding",
    "gpu_class": "h100",
    "guaranteed_units": 1,
    "ends": f"{timezone.now() + timedelta(days=9):%Y-%m-%dT%H:00:00Z}",
}
VIEW = {"list": "bookings", "name": "Waits", "query": "state=waiting"}
_RULE = {"mode": "off", "gpu_class": "h100", "count": 1, "most_cost": "5"}
_PLAN = {"project": "folding", "gpu_class": "h100", "count": 1}
BODIES: dict[str, Any] = {
    "backlog-rules": _RULE | {"wait_minutes": 60, "hours": 4},
    "forecast-rules": _RULE | {"hours": 8, "days": 7},
    "sprint-rule": _RULE,
    "jira/<uuid:connection_id>/projects": {
        "project": "folding",
        "owner": "mara",
        "tier": "standard",
        "act": "book",
        "request": "1 h100 1h",
    },
    "/dry-run": {"message": {"issue": {"key": "GPU-7"}}},
    "/rotate": {},
    "notifications": {"is_read": True},
    "people": {"is_active": False},
    "service-accounts": {"name": "CI", "scopes": ["read"]},
    "/secret": {},
    "/test": {},
    "/deliveries/<int:delivery_id>/resend": {},
    "webhook_id>/resend": {"since": "2026-01-01T00:00:00Z"},
    "/enabled": {"is_enabled": True},
    "webhook_id": HOOK,
    "view_id": {"name": "Waits"},
    "connection_id": JIRA_SITE,
    "change": {"tier": "standard", "request": "1 h100 10m", "starts": "2030-01-01T00:00:00Z"},
    "extend": {"by": "PT1H"},
    "guardrails/preview": {},
    "guardrails": {"rungs": []},
    "variance-rule": {"percent": 50, "amount": "5"},
    "budgets": {"amount": "5"},
    "/costs": {"most": "5"},
    "campaigns": {"is_open": False},
    "labs/<slug:lab>/leads": {"username": "vera"},
    "labs/<slug:lab>": {"name": "Physics"},
    "/diversion": {"mode": "off"},
    "/spare-cores": {"on": True},
    "projects": {"is_open": False},
    "members": {"role": "viewer"},
    "result": {"result": "success"},
    "override_id>/decline": {"reason": "no"},
    "override_id>/grant": {"amount": "1"},
    "tier-versions": {"tier": "spot"},
    "/counter/decline": {},
    "/counter/accept": {"hash": "0" * 64},
    "/counter": {"hash": "0" * 64, "request": "1 h100 10m"},
    "/alternative": {"hash": "0" * 64},
    "rule_id>": {"version": 1},
    "approval-rules": {"name": "Costly", "min_cost": "5", "steps": [{"role": "lead"}]},
    "/progress": {"step": 1},
    "/notebook": {},
    "reference>/hand-over": {"person": "jonas"},
    "pauses/<int:number>/appeal": {"reason": "x"},
    "pause-appeals/<uuid:appeal_id>/answer": {"outcome": "accepted", "answer": "x"},
    "/workload": {"name": "fold"},
    "calendars": {"what": "mine"},
    "capacity/plans": _PLAN | {"until": "2030-01-01T00:00:00Z", "most_cost": "5"},
    "stand-ins": {"person": "vera", "until": "2030-01-01T00:00:00Z"},
    "acceptances": {"user": "mara", "day": "2026-01-01"},
    "approve": {"hash": "0" * 64},
    "decline": {"hash": "0" * 64, "reason": "no"},
}


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


def routes() -> list[str]:
    """Every address of the API, as it is declared."""
    found: list[URLPattern | URLResolver] = list(api_urlpatterns)
    return [str(route.pattern) for route in found]


NAMED = [route for route in routes() if "<" in route and route not in OPEN | UNGUARDED]


def theirs(site: Site) -> dict[str, Callable[[], str]]:
    """Real names of things in Helix, by the parameter that takes them."""
    booking = said(site.researcher.post("bookings", GOOD))
    line = "1 h100 1h at 9 every day 2 times"
    series = said(site.researcher.post("series", GOOD | {"request": line}))
    array = said(site.researcher.post("bookings", GOOD | {"array": 2}))
    with as_system():
        member = Membership.objects.get(user=site.people["viewer"])
        session = a_session(site.people["researcher"])
        notification = Notification.objects.create(
            tenant=site.tenant,
            user=site.people["researcher"],
            message=1,
            kind="booking.paused",
            at=timezone.now(),
        )
        invitation = invitation_create(
            actor=site.actor("admin"),
            to="mara",
            role="viewer",
            project="folding",
            now=timezone.now(),
        )
        rule = approval_rule_set(
            actor=site.actor("admin"),
            terms=ApprovalRuleTerms(
                name="Costly", steps=[Step("lead")], project="folding", min_seconds=1_200
            ),
            now=timezone.now(),
        )
    site.researcher.post("bookings", GOOD | {"request": "1 h100 for 20m"})
    (approval,) = said(site.lead.get("approvals"))["items"]
    more = {"kind": "quota", "gpu_class": "h100", "project": "folding", "amount": "1"}
    later = (timezone.now() + timedelta(days=9)).isoformat()
    version = said(site.admin.post("tier-versions", {"tier": "spot", "starts": later}))
    override = said(site.researcher.post("overrides", more))
    until = (timezone.now() + timedelta(days=2)).isoformat()
    stand_in = said(site.lead.post("stand-ins", {"person": "mara", "until": until}))
    campaign = said(site.lead.post("campaigns", {"project": "folding", "name": "Ablation"}))
    note = {"project": "folding", "note": "Too much."}
    dispute = said(site.lead.post(f"statements/{timezone.now():%Y-%m}/dispute", note))
    webhook = said(site.lead.post("webhooks", HOOK))
    robot = {"name": "CI", "project": "folding"}
    account = said(site.lead.post("service-accounts", robot))
    jira = said(site.admin.post("jira", JIRA_SITE))
    site.admin.put(f"jira/{jira['id']}/projects/GPU", BODIES["jira/<uuid:connection_id>/projects"])
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    dated = {"lab": "physics", "gpu_class": "h100", "limit_units": 1}
    window = said(site.admin.post("quota-windows", dated))
    return {
        "guarantee_id": lambda: said(site.admin.put("dated-guarantees", DATED))["id"],
        "lab": lambda: "physics",
        "window_id": lambda: window["id"],
        "connection_id": lambda: jira["id"],
        "jira_key": lambda: "GPU",
        "account_id": lambda: account["id"],
        "username": lambda: site.people["viewer"].username,
        "webhook_id": lambda: webhook["id"],
        "view_id": lambda: said(site.researcher.put("views", VIEW))["id"],
        "channel_id": a_channel(site),
        "delivery_id": lambda: "1",
        "approval_id": lambda: approval["id"],
        "override_id": lambda: override["id"],
        "rule_id": lambda: str(rule.id),
        "stand_in_id": lambda: stand_in["id"],
        "capacity_plan_id": lambda: a_capacity_plan(site.project, site.people["lead"].pk),
        "calendar_id": lambda: said(site.lead.post("calendars", {"what": "mine"}))["id"],
        "version_id": lambda: version["id"],
        "requirement_id": a_requirement(site),
        "campaign_id": lambda: campaign["id"],
        "dispute_id": lambda: dispute["id"],
        "appeal_id": lambda: str(an_open_appeal(site.project, site.people["lead"].pk, timezone.now()).id),
        "cut_id": lambda: str(a_limit_cut(site.project, timezone.now()).id),
        "report_id": a_report(site),
        "export_id": an_export(site),
        "offer_id": an_offer(site),
        "entry_id": an_entry(site),
        "number": a_decision_of(site),
        "reference": lambda: booking["number"],
        "slug": lambda: "folding",
        "budget_id": lambda: str(site.budget.id),
        "token_id": lambda: said(site.researcher.get("me"))["token_id"],
        "member_id": lambda: str(member.id),
        "session_id": lambda: str(session.id),
        "notification_id": lambda: str(notification.id),
        "invitation_id": lambda: str(invitation.id),
        "series": lambda: series["id"],
        "array": lambda: array["array"],
    }


def a_requirement(site: Site) -> Callable[[], str]:
    """A training that a tier of Helix demands."""
    text = {"of": "tier", "target": "spot", "kind": "training", "name": "Safety", "text": "Ask."}
    made = said(site.admin.post("requirements", text))
    return lambda: str(made["id"])


def a_report(site: Site) -> Callable[[], str]:
    """A statement that the lead gets by mail."""
    report = said(site.lead.post("reports", {"project": "folding", "cadence": "weekly"}))
    return lambda: str(report["id"])


def an_export(site: Site) -> Callable[[], str]:
    """A file that the lead asked for."""
    body = {"project": "folding", "month": "2026-11", "file": "pdf"}
    export = said(site.lead.post("exports", body))
    return lambda: str(export["id"])


def a_channel(site: Site) -> Callable[[], str]:
    """A chat channel of a project of Helix."""
    url = "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"
    channel = said(site.lead.post("chat-channels", {"url": url, "project": "folding"}))
    return lambda: str(channel["id"])


def an_entry(site: Site) -> Callable[[], str]:
    """An entry of Helix on the waiting list."""
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.WAITLISTED)
    times = {"windows": [], "until": now, "created_at": now}
    with as_system():
        entry = WaitEntry.objects.create(
            tenant=site.tenant, booking=booking, owner=booking.owner, mode="auto", slot=1, cost=0, **times
        )
    return lambda: str(entry.id)


def a_decision_of(site: Site) -> Callable[[], str]:
    """A decision that changed a booking of Helix."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.QUEUED)
    decision = a_decision(timezone.now())
    with as_system():
        BookingEvent.objects.create(
            tenant=site.tenant,
            booking=booking,
            at=timezone.now(),
            kind="queued",
            state="queued",
            sentence="Waits.",
            detail={"decision": decision.id},
        )
    return lambda: str(decision.id)


def an_offer(site: Site) -> Callable[[], str]:
    """An open offer to Helix."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.OFFERED, held="0")
    with as_system():
        now = timezone.now()
        offer = WaitOffer.objects.create(
            tenant=site.tenant,
            booking=booking,
            owner=site.people["researcher"],
            gpu_class="h100",
            starts=now + timedelta(days=1),
            ends=now + timedelta(days=2),
            made_at=now,
            until=now + timedelta(hours=1),
            decision=a_decision(now),
        )
    return lambda: str(offer.id)


def calls(route: str) -> Iterator[tuple[str, Any]]:
    """Each method that the route takes, with a body that is fine in itself; `scope` is in test_series."""
    view: Any = next(r for r in api_urlpatterns if str(r.pattern) == route).callback
    body: Any = next((body for word, body in BODIES.items() if word in route), {})
    for method in ("get", "post", "put", "patch", "delete"):
        if hasattr(view.view_class, method) and (method, route) != ("patch", "series/<series:series>"):
            is_sent = takes_body(getattr(view.view_class, method))
            yield method.upper(), body if is_sent and method in ("post", "put", "patch") else None


def test_every_route_is_guarded_by_a_token_or_listed_as_open(site: Site) -> None:
    for route in routes():
        if route in UNGUARDED:
            continue
        for method, body in calls(route):
            path = filled(route.replace("<int:version>", "1").replace(":name>", ":slug>"), NOBODYS)
            assert Api(None).send(method, path, body).status_code == 401, (method, route)


@contextmanager
def undone() -> Iterator[None]:
    """What happens inside is taken back."""
    mark = savepoint()
    yield
    savepoint_rollback(mark)


def test_an_outsider_finds_nothing_and_changes_nothing(site: Site) -> None:
    names = {name: find() for name, find in theirs(site).items()}
    before = row_counts()
    for route in NAMED:
        for method, body in calls(route):
            with undone():
                foreign = site.outsider.send(method, filled(route, names), body, headers=REVISED)
                missing = site.outsider.send(method, filled(route, NOBODYS), body, headers=REVISED)
                assert foreign.status_code == 404, (method, route, foreign.content)
                assert foreign.content == missing.content, (method, route)
                assert row_counts() == before, (method, route)


def test_a_member_of_another_project_finds_nothing_either(site: Site) -> None:
    names = {name: find() for name, find in theirs(site).items()}
    a_member(site.hidden, "lead", user=site.people["outsider"])
    neighbour = Api(a_token(actor_now(site.people["outsider"].id, "helix")))
    for route in NAMED:
        for method, body in calls(route) if "token" not in route else ():
            with undone():
                answer = neighbour.send(method, filled(route, names), body, headers=REVISED)
                assert answer.status_code == 404, (method, route, answer.content)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "bookings", GOOD),
        ("POST", "quotes", GOOD),
        (
            "POST",
            "budgets",
            {"project": "folding", "amount": "5", "starts": "2030-01-01", "ends": "2030-02-01"},
        ),
        ("PUT", "quotas", {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0}),
        ("PUT", "person-quotas", {"project": "folding", "gpu_class": "h100", "limit_units": 1}),
        ("POST", "quota-windows", {"project": "folding", "gpu_class": "h100", "limit_units": 1}),
        ("PUT", "dated-guarantees", DATED),
        ("POST", "invitations", {"to": "stefan", "role": "lead", "project": "folding"}),
    ],
)
def test_a_foreign_name_in_a_body_is_like_one_that_is_not_there(
    site: Site, method: str, path: str, body: dict[str, object]
) -> None:
    before = row_counts()
    foreign = site.outsider.send(method, path, body)
    missing = site.outsider.send(method, path, {**body, "project": "nothing"})
    assert (foreign.status_code, said(foreign)["code"]) == (422, "not_found")
    assert foreign.content == missing.content
    assert row_counts() == before


@pytest.mark.parametrize("path", ["bookings", "budgets"])
def test_a_foreign_name_in_a_filter_tells_nothing(site: Site, path: str) -> None:
    foreign = site.outsider.get(path, project="folding")
    assert foreign.content == site.outsider.get(path, project="nothing").content
    assert foreign.status_code == 422


def test_lists_of_an_outsider_hold_nothing_of_helix(site: Site) -> None:
    site.researcher.post("bookings", GOOD)
    for path in ("projects", "bookings", "approvals", "budgets", "quotas", "tokens"):
        text = site.outsider.get(path).content
        assert b"folding" not in text
        assert b"mara" not in text


def test_a_header_does_not_change_the_tenant(site: Site) -> None:
    headers = {"X-Tenant": "helix", "X-HTTP-Method-Override": "POST"}
    response = site.outsider.send("GET", "projects", headers=headers)
    assert [row["slug"] for row in said(response)["items"]] == ["climate"]
