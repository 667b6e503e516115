"""A token for one project of a person who leads two: every route, with what is in the other one."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.urls import URLPattern
from django.utils import timezone

from portal.api.urls import api_urlpatterns
from tenants.api.project_tokens import IN_PROJECT, OPEN
from tenants.models import ChatChannel, KnownPerson, Notification
from tenants.platform.wall import tenant_tx
from tenants.services import TokenLimits, token_create
from tests.api.builders import Api, Site, row_counts, said
from tests.api.frame.route_names import NOBODYS, UNGUARDED, filled
from tests.api.frame.test_tenant_matrix import (
    BODIES,
    GOOD,
    REVISED,
    _loopback_is_allowed,
    calls,
    routes,
    theirs,
    undone,
)
from tests.builders import a_member, a_session
from tests.roles import as_system

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures(_loopback_is_allowed.__name__)]
UNTIL = (timezone.now() + timedelta(days=2)).isoformat()
MONTH = f"{timezone.now():%Y-%m}"
# What can be sent to the lists of a project, all of it about the other project.
ABOUT_FOLDING: dict[str, Any] = {
    "bookings": GOOD,
    "bookings/batch": {"items": [GOOD]},
    "quotes": GOOD,
    "series": GOOD | {"request": "1 h100 1h at 9 every day 2 times"},
    "waitlist": {
        "project": "folding",
        "ask": {"count": 1, "classes": ["h100"], "duration": 3600},
        "windows": [{"since": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}],
    },
    "tokens": {"name": "wider", "days": 1, "project": "folding"},
    "invitations": {"to": "stefan", "role": "lead", "project": "folding"},
    "webhooks": {"name": "x", "url": "http://127.0.0.1:9/", "events": ["*"], "project": "folding"},
    "chat-channels": {
        "url": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        "project": "folding",
    },
    "service-accounts": {"name": "x", "project": "folding"},
    "budgets": {
        "project": "folding",
        "person": "jonas",
        "amount": "5",
        "starts": "2030-01-01",
        "ends": "2030-02-01",
    },
    "campaigns": {"project": "folding", "name": "x"},
    "exports": {"project": "folding", "month": MONTH, "file": "pdf"},
    "reports": {"project": "folding", "cadence": "monthly"},
    "overrides": {"kind": "quota", "gpu_class": "h100", "project": "folding", "amount": "1"},
    "approval-rules": {
        "name": "x",
        "min_cost": "5",
        "steps": [{"role": "lead"}],
        "project": "folding",
    },
    "stand-ins": {"person": "mara", "until": UNTIL, "project": "folding"},
    "quota-windows": {"project": "folding", "gpu_class": "h100", "limit_units": 1},
    "person-quotas": {"project": "folding", "gpu_class": "h100", "limit_units": 1},
    "dated-guarantees": {
        "project": "folding",
        "gpu_class": "h100",
        "guaranteed_units": 1,
        "ends": f"{UNTIL[:14]}00:00Z",
    },
    f"statements/{MONTH}/dispute": {"project": "folding", "note": "x"},
}
# The same without a project: about all of the person's.
ABOUT_ALL: dict[str, Any] = {
    "stand-ins": {"person": "mara", "until": UNTIL},
    "overrides": {"kind": "person_quota", "gpu_class": "h100", "amount": "1"},
    "chat-channels": {"url": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"},
    "webhooks": {"name": "x", "url": "http://127.0.0.1:9/", "events": ["*"]},
    "reports": {"cadence": "monthly"},
    "exports": {"month": MONTH, "file": "pdf"},
    "approval-rules": {"name": "x", "min_cost": "5", "steps": [{"role": "lead"}]},
    "person-quotas": {"gpu_class": "h100", "limit_units": 1, "username": "mara"},
    "projects": {"name": "New", "slug": "new"},
}
PERSONAL = {
    ("DELETE", "sessions"): None,
    ("DELETE", "tokens"): None,
    ("PUT", "me"): {"mails": "none"},
    ("POST", "notifications/read"): {},
}


@pytest.fixture
def both(site: Site) -> Site:
    """The lead of folding leads `hidden`, too, and has something of their own in folding."""
    a_member(site.hidden, "lead", user=site.people["lead"])
    a_member(site.project, "lead")
    lead = site.people["lead"]
    until = (timezone.now() + timedelta(days=3)).isoformat()
    site.lead.post("stand-ins", {"person": "vera", "until": until, "project": "folding"})
    site.lead.post("overrides", {"kind": "person_quota", "gpu_class": "h100", "amount": "1"})
    with as_system():
        a_session(lead)
        Notification.objects.create(
            tenant=site.tenant,
            user=lead,
            message=9,
            kind="booking.paused",
            at=timezone.now(),
            title="Of folding",
        )
        ChatChannel.objects.create(
            tenant=site.tenant,
            user=lead,
            name="Of folding",
            service="discord",
            sealed="x",
            created=timezone.now(),
            created_by=lead,
        )
    return site


def _limited(site: Site) -> Api:
    actor = site.actor("lead")
    with tenant_tx(actor.tenant_id):
        limits = TokenLimits(project="hidden")
        return Api(token_create(actor=actor, name="t", days=1, now=timezone.now(), limits=limits)[1])


def _names(site: Site) -> dict[str, str]:
    """What is in folding, most of it of the lead's own project, some of it the lead's."""
    found = {name: find() for name, find in theirs(site).items()}
    booking = said(site.lead.post("bookings", GOOD | {"request": "1 h100 for 20m"}))
    found["reference"] = booking["number"]
    approvals = said(site.admin.get("approvals"))["items"]
    found["own_approval"] = next(each["id"] for each in approvals if each["booking"] == booking["number"])
    with as_system():
        found["notification_id"] = str(Notification.objects.get(message=9).id)
        found["session_id"] = str(a_session(site.people["lead"]).id)
        found["channel_id"] = str(ChatChannel.objects.get(name="Of folding").id)
    found["token_id"] = said(site.lead.get("me"))["token_id"]
    return found


def _is_person_wide(route: str) -> bool:
    name = next(str(each.name) for each in api_urlpatterns if str(each.pattern) == route)
    return name not in IN_PROJECT | OPEN


def test_every_route_that_names_something_answers_as_if_it_were_not_there(both: Site) -> None:
    names, limited = _names(both), _limited(both)
    here = NOBODYS | {"slug": "nothing", "username": "nobody"}
    before = row_counts()
    tried = 0
    for route in routes():
        if "<" not in route or route in UNGUARDED or ":name>" in route or "version>" in route:
            continue
        for method, body in calls(route):
            for key in ["approval_id", "own_approval"] if "approval_id" in route else [""]:
                given = names | ({"approval_id": names[key]} if key else {})
                with undone():
                    there = limited.send(method, filled(route, {**here, **given}), body, headers=REVISED)
                    nowhere = limited.send(method, filled(route, here), body, headers=REVISED)
                    assert there.status_code in (400, 403, 404, 422), (method, route)
                    assert there.content == nowhere.content, (method, route, there.content)
                    if _is_person_wide(route):
                        assert there.status_code == 403, (method, route, there.content)
                    assert row_counts() == before, (method, route)
                    tried += 1
    assert tried > 150


def test_no_list_shows_anything_of_the_other_project(both: Site) -> None:
    names, limited = _names(both), _limited(both)
    marks = {"folding", "Folding", "Ablation", "mara", names["reference"]}
    seen_in_full = 0
    for route in routes():
        if "<" in route or route in UNGUARDED or not hasattr(_view(route), "get"):
            continue
        query = {"month": MONTH} if "statement" in route or route == "exports/focus" else {}
        answer = limited.get(route, **query)
        assert answer.status_code < 500, route
        text = _text(answer)
        assert not {mark for mark in marks if mark in text}, (route, text[:3000])
        full = both.lead.get(route, **query)
        seen_in_full += "olding" in _text(full)
    assert seen_in_full > 15, "a token without limit does see them"


@pytest.mark.parametrize("path", ABOUT_FOLDING)
def test_nothing_is_written_in_the_other_project(both: Site, path: str) -> None:
    limited, before = _limited(both), row_counts()
    method = "PUT" if path in ("person-quotas", "dated-guarantees") else "POST"
    answer = limited.send(method, path, ABOUT_FOLDING[path])
    assert answer.status_code in (403, 404, 409, 422), (path, answer.content)
    assert row_counts() == before


@pytest.mark.parametrize("path", ABOUT_ALL)
def test_nothing_is_written_for_all_projects(both: Site, path: str) -> None:
    limited, before = _limited(both), row_counts()
    method = "PUT" if path in ("person-quotas", "dated-guarantees") else "POST"
    answer = limited.send(method, path, ABOUT_ALL[path])
    assert answer.status_code == 403, (path, answer.content)
    assert row_counts() == before


def test_what_is_the_persons_own_is_refused(both: Site) -> None:
    limited = _limited(both)
    for (method, path), body in PERSONAL.items():
        before = row_counts()
        assert limited.send(method, path, body).status_code == 403, path
        assert row_counts() == before
    for path in ("sessions", "notifications", "notifications/count", "me/data", "me/invitations"):
        assert limited.get(path).status_code == 403, path
    me = said(limited.get("me"))
    assert me["roles"] == [{"project": "hidden", "role": "lead"}]


def test_it_works_in_its_own_project(both: Site) -> None:
    limited = _limited(both)
    until = (timezone.now() + timedelta(days=2)).isoformat()
    mine = {"person": "mara", "until": until, "project": "hidden"}
    named = limited.post("stand-ins", mine)
    assert named.status_code == 201, named.content
    shown = said(limited.get("stand-ins"))["items"]
    assert [each["project"] for each in shown] == ["hidden"]
    assert limited.post(f"stand-ins/{shown[0]['id']}/end").status_code == 200
    assert [each["slug"] for each in said(limited.get("projects"))["items"]] == ["hidden"]
    tokens = said(limited.get("tokens"))["items"]
    assert {each["project"] for each in tokens} == {"hidden"}
    child = {"name": "child", "days": 1, "project": "hidden"}
    assert limited.post("tokens", child).status_code == 201
    assert limited.post("webhooks", BODIES["webhook_id"] | {"project": "hidden"}).status_code == 201
    with as_system():
        assert KnownPerson.objects.filter(user=both.people["lead"]).exists()


def _text(answer: Any) -> str:  # noqa: ANN401 (a response of any kind)
    if answer.status_code != 200:
        return ""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return str(content.decode(errors="replace"))


def _view(route: str) -> Any:  # noqa: ANN401 (a view class)
    found: Iterator[URLPattern] = (each for each in api_urlpatterns if str(each.pattern) == route)
    return getattr(next(found).callback, "view_class", None)
