"""Calendars over REST: made, listed, read by their address, and revoked."""

from django.test import Client
from django.utils import timezone

from tenants.platform.wall import tenant_tx
from tenants.services import token_create, token_revoke
from tests.api.builders import Site, said


def test_a_calendar_is_made_listed_read_and_revoked(site: Site) -> None:
    made = said(site.researcher.post("calendars", {"what": "project:folding"}, idempotency_key="k"))
    assert (made["project"], made["gpu_class"], made["revoked"]) == ("folding", None, None)
    again = said(site.researcher.post("calendars", {"what": "project:folding"}, idempotency_key="k"))
    assert again == made | {"address": None}, "the address is shown once"
    path = made["address"].removeprefix("http://localhost:8000")
    assert b"BEGIN:VCALENDAR" in Client().get(path[path.index("/calendar/") :]).content
    (listed,) = said(site.researcher.get("calendars"))["items"]
    assert listed == {name: value for name, value in made.items() if name != "address"}
    assert said(site.lead.get("calendars"))["items"] == []
    assert site.lead.post(f"calendars/{made['id']}/revoke").status_code == 404
    assert said(site.researcher.post(f"calendars/{made['id']}/revoke"))["revoked"]
    assert said(site.researcher.get("calendars"))["items"] == []
    assert Client().get(path[path.index("/calendar/") :]).status_code == 404


def test_a_calendar_ends_with_the_token_that_made_it_and_those_before(site: Site) -> None:
    now, mara = timezone.now(), site.actor()
    with tenant_tx(site.tenant.id):
        parent, _ = token_create(actor=mara, name="leaked", days=9, now=now)
        _, clear = token_create(actor=mara, name="child", days=9, now=now, made_with=parent.id)
    made = Client().post(
        "/api/v1/calendars",
        {"what": "mine"},
        content_type="application/json",
        headers={"Authorization": f"Bearer {clear}"},
    )
    assert made.status_code == 201, made.content
    address = made.json()["address"]
    path = address[address.index("/calendar/") :]
    assert Client().get(path).status_code == 200
    with tenant_tx(site.tenant.id):
        token_revoke(actor=mara, token_id=parent.id, now=timezone.now())
    assert Client().get(path).status_code == 404
    assert said(site.researcher.get("calendars"))["items"] == []


def test_a_calendar_of_nothing_is_refused(site: Site) -> None:
    for what, status in (("", 400), ("all", 422), ("pool:none", 422), ("project:hidden", 404)):
        answer = site.researcher.post("calendars", {"what": what})
        assert answer.status_code in (status, 422), (what, answer.content)
    assert said(site.researcher.get("calendars"))["items"] == []
