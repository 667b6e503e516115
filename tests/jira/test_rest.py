"""Connections to Jira over REST: the same acts as on the page, for the same people."""

from ipaddress import ip_network

import pytest
from django.urls import resolve
from pytest_django import Settings

from tenants.models import Webhook
from tenants.platform.costly import costly_of
from tests.api.builders import Site, a_site, said
from tests.jira.connected import TERMS, ms
from tests.jira.stub import ACCOUNT, TOKEN, webhook_of
from tests.roles import as_system

SITE = {
    "name": "Helix Jira",
    "url": "http://127.0.0.1:9",
    "flavour": "cloud",
    "account": ACCOUNT,
    "token": TOKEN,
}
MAPPING = {name: value for name, value in TERMS.items() if name != "key"}


@pytest.fixture
def site(db: None, settings: Settings) -> Site:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    return a_site()


def test_a_connection_s_life(site: Site) -> None:
    made = site.admin.post("jira", SITE, idempotency_key="one")
    shown = said(made)
    assert made.status_code == 201, made.content
    assert shown.pop("secret").startswith("whsec_")
    assert TOKEN not in made.content.decode()
    assert said(site.admin.post("jira", SITE, idempotency_key="one"))["secret"] is None
    assert said(site.admin.get("jira"))["items"] == [shown]
    address = f"jira/{shown['id']}"
    put = site.admin.put(f"{address}/projects/GPU", MAPPING)
    assert put.status_code == 200, put.content
    (project,) = said(site.admin.get(address))["projects"]
    unset = {"approver": None, "approve_status": "", "decline_status": ""}
    assert project == {**TERMS, **unset, "board": None, "sprint_request": ""}
    tried = said(site.admin.post(f"{address}/dry-run", {"message": webhook_of("GPU-7", ms())}))
    assert (tried["state"], tried["subject"]) == ("done", "GPU-7")
    declared = costly_of(resolve(f"/api/v1/{address}/dry-run").func)
    assert declared is not None
    assert declared.meets("POST", {}, b""), "it computes a booking or a quote, and writes nothing"
    assert said(site.admin.get("bookings"))["items"] == []
    assert site.admin.post(f"{address}/test", {}).status_code == 202
    (call,) = said(site.admin.get(f"{address}/calls"))["items"]
    assert call["type"] == "webhook.test"
    assert said(site.admin.get(f"{address}/messages"))["items"] == []
    assert said(site.admin.post(f"{address}/secret", {}))["secret"].startswith("whsec_")
    assert said(site.admin.put(address, {**SITE, "name": "J", "token": ""}))["name"] == "J"
    off = said(site.admin.put(f"{address}/enabled", {"is_enabled": False}))
    assert off["is_enabled"] is False
    assert site.admin.delete(f"{address}/projects/GPU").status_code == 204
    assert site.admin.delete(address).status_code == 204
    assert site.admin.get(address).status_code == 404


def test_bad_bodies_and_other_people_are_refused(site: Site) -> None:
    bad: list[tuple[dict[str, object], str, str]] = [
        ({"url": "http://10.0.0.1"}, "bad_url", "url"),
        ({"flavour": "server"}, "unknown_choice", "flavour"),
        ({"events": ["nothing.such"]}, "unknown_event", "events"),
        ({"account": ""}, "missing_field", "account"),
    ]
    for changes, code, param in bad:
        problem = said(site.admin.post("jira", {**SITE, **changes}))
        assert (problem["code"], problem["param"]) == (code, param), problem
    address = f"jira/{said(site.admin.post('jira', SITE))['id']}"
    for name, value in (("board", 3), ("owner", "vera")):
        problem = said(site.admin.put(f"{address}/projects/GPU", {**MAPPING, name: value}))
        assert problem["param"] == name, problem
    tried = site.admin.post(f"{address}/dry-run", {"message": {"issue": 7}})
    assert said(tried)["code"] == "bad_message", tried.content
    assert site.lead.get("jira").status_code == 403
    assert site.lead.post("jira", SITE).status_code == 403
    assert site.lead.get(address).status_code == 404


@pytest.mark.parametrize("other", [{"token": "another"}, {"account": "other@example.org"}])
def test_another_account_or_token_ends_with_the_token_that_set_it(site: Site, other: dict[str, str]) -> None:
    address = f"jira/{said(site.admin.post('jira', SITE))['id']}"
    with as_system():
        Webhook.objects.update(made_with=None)
    assert site.admin.put(address, {**SITE, "name": "J", "token": ""}).status_code == 200
    with as_system():
        assert Webhook.objects.get(kind="jira").made_with_id is None, "a name changes nothing of it"
    assert site.admin.put(address, {**SITE, "token": "", **other}).status_code == 200
    with as_system():
        maker = Webhook.objects.get(kind="jira").made_with
        assert maker is not None
        assert maker.user_id == site.people["admin"].id
