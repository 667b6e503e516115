"""The pages of connections to Jira: made, mapped, tried and deleted by tenant admins only."""

import json
import re
from ipaddress import ip_network

import pytest
from django.test import Client
from pytest_django import Settings

from allocation.features.jira.models import JiraConnection, JiraProject
from allocation.models import Booking
from tests.api.builders import Site, a_site
from tests.jira.connected import ms
from tests.jira.stub import ACCOUNT, TOKEN, webhook_of
from tests.roles import as_system

BASE = "/t/helix/settings/jira"
CREATE = {
    "act": "create",
    "name": "Helix Jira",
    "url": "http://127.0.0.1:9",
    "flavour": "cloud",
    "account": ACCOUNT,
    "token": TOKEN,
}
MAP = {
    "act": "map",
    "key": "gpu",
    "act_of": "book",
    "project": "folding",
    "tier": "standard",
    "owner": "mara",
    "request": "{customfield_10050}",
    "labels": "team=vision",
    "transitions": "active=In Progress, ended=Done",
    "board": "3",
    "sprint": "1 h100 {remaining}",
}


@pytest.fixture
def site(db: None, settings: Settings) -> Site:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    return a_site()


def browser(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_an_admin_connects_maps_tries_and_deletes(site: Site) -> None:
    admin = browser(site, "admin")
    assert BASE in admin.get("/t/helix/organisation").content.decode()
    assert "No connections yet" in admin.get(BASE).content.decode()
    made = admin.post(BASE, CREATE).content.decode()
    assert re.search(r"whsec_[A-Za-z0-9+/=]{44}", made)
    with as_system():
        connection = JiraConnection.objects.get()
    one = f"{BASE}/{connection.id}"
    page = admin.get(one).content.decode()
    assert (f"/{site.tenant.id}/{connection.id}/messages" in page, TOKEN in page) == (True, False)
    mapped = admin.post(one, MAP, follow=True).content.decode()
    assert "GPU saved." in mapped
    with as_system():
        row = JiraProject.objects.get()
    assert (row.key, row.board, row.labels) == ("GPU", 3, {"team": "vision"})
    assert row.transitions == {"active": "In Progress", "ended": "Done"}
    assert 'value="active=In Progress, ended=Done"' in admin.get(f"{one}?project=GPU").content.decode()
    # A browser sends each end of a line as two characters.
    sample = json.dumps(webhook_of("GPU-7", ms()), indent=2).replace("\n", "\r\n")
    tried = admin.post(one, {"act": "dry-run", "sample": sample}).content.decode()
    assert "Requested BK-" in tried
    assert "1 h100 for 10m" in tried
    with as_system():
        assert not Booking.objects.exists()
    tested = admin.post(one, {"act": "test"}, follow=True).content.decode()
    assert "webhook.test" in tested
    assert admin.post(one, {"act": "unmap", "key": "GPU"}).status_code == 302
    assert "Delete Helix Jira?" in admin.post(one, {"act": "delete"}).content.decode()
    assert admin.post(one, {"act": "delete", "sure": "1"})["Location"] == BASE
    with as_system():
        assert not JiraConnection.objects.exists()


@pytest.mark.turn
def test_bad_input_is_shown_beside_its_field(site: Site) -> None:
    admin = browser(site, "admin")
    for changes, words in (
        ({"url": "http://10.0.0.1"}, "private or reserved"),
        ({"url": "http://127.0.0.1:9/?a=b"}, "has no query"),
        ({"flavour": "x"}, "Choose Cloud or Data Center."),
        ({"token": ""}, "Give the API token"),
        ({"account": ""}, "needs the e-mail address"),
    ):
        answer = admin.post(BASE, CREATE | changes)
        assert (answer.status_code, words in answer.content.decode()) == (422, True), words
    admin.post(BASE, CREATE)
    with as_system():
        one = f"{BASE}/{JiraConnection.objects.get().id}"
    for changes, words in (
        ({"key": "g p"}, "The key of a Jira project is like GPU."),
        ({"owner": "nobody"}, "can&#x27;t book in the project"),
        ({"request": ""}, "Write a request such as"),
        ({"transitions": "running=Now"}, "Write state=status"),
        ({"board": "three"}, "Enter the number of the board"),
        ({"sprint": ""}, "Give both a board"),
        ({"tier": "none"}, "There is no such tier."),
        ({"labels": "Team"}, "The label Team needs a value."),
    ):
        answer = admin.post(one, MAP | changes)
        assert (answer.status_code, words in answer.content.decode()) == (422, True), words
    for sample in ("", "[1]", '{"issue": 7}', "{" * 100_000):
        answer = admin.post(one, {"act": "dry-run", "sample": sample})
        assert answer.status_code == 422, sample[:20]


def test_only_admins_of_the_tenant_see_connections(site: Site) -> None:
    browser(site, "admin").post(BASE, CREATE)
    with as_system():
        one = f"{BASE}/{JiraConnection.objects.get().id}"
    for who, status in (("lead", 403), ("researcher", 403), ("outsider", 404)):
        assert browser(site, who).get(BASE).status_code == status, who
        assert browser(site, who).get(one).status_code == 404, who
    listed = browser(site, "admin").get("/t/helix/settings/webhooks").content.decode()
    assert "Helix Jira" not in listed
