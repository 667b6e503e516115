"""The page of chat channels: added with a test message, tried and deleted."""

import re

from django.test import Client

from tenants.models import ChatChannel, ChatMessage
from tests.api.builders import Site
from tests.roles import as_system
from tests.web.flat import flat

PAGE = "/t/helix/settings/chat"
URL = "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"
FORM = {"act": "create", "url": URL, "project": "folding", "events": ["budget", "hardware"]}


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_a_lead_adds_tries_and_deletes_a_channel_of_a_project(site: Site) -> None:
    lead = reader(site, "lead")
    ticked = re.findall(r'value="(\w+)" checked', flat(lead.get(PAGE).content.decode()))
    assert ticked == ["hardware", "refused", "budget"]
    assert lead.post(PAGE, FORM).status_code == 302
    with as_system():
        row = ChatChannel.objects.get()
        assert (row.name, row.events) == ("Discord", ["hardware", "budget"])
        assert ChatMessage.objects.count() == 1
    assert lead.post(PAGE, {"act": "test", "channel": str(row.id)}).status_code == 302
    assert reader(site, "researcher").post(PAGE, {"act": "test", "channel": str(row.id)}).status_code == 404
    shown = flat(lead.post(PAGE, {"act": "delete", "channel": str(row.id)}, follow=True).content.decode())
    assert "Channel deleted." in shown
    assert "No channels yet" in shown


def test_a_fault_stands_at_its_field_and_what_was_typed_stays(site: Site) -> None:
    lead = reader(site, "lead")
    for url, fault in (
        ("", "This is needed."),
        ("gopher://x", "An address begins with one of the services"),
        ("discord://4174216298", "The address is not complete."),
    ):
        answer = lead.post(PAGE, FORM | {"url": url, "name": "Ops"})
        text = flat(answer.content.decode())
        assert (answer.status_code, fault in text, 'value="Ops"' in text) == (422, True, True), url
        assert re.findall(r'value="(\w+)" checked', text) == ["hardware", "budget"]
    assert reader(site, "researcher").post(PAGE, FORM).status_code == 403
    with as_system():
        assert not ChatChannel.objects.exists()
