"""Stops over REST and on pages: who may, what others read, and what is wrong with a form."""

import pytest
from django.test import Client

from allocation.models import Stop
from tests.api.builders import Site, said
from tests.roles import as_system

A_BOOKING = {"project": "folding", "tier": "standard", "request": "1 h100 1h"}
A_STOP = {"scope": "tier", "name": "standard", "reason": "Audit <b>"}


def test_an_operator_stops_and_members_read_why(site: Site) -> None:
    before = said(site.operator.post("stops/preview", A_STOP))
    assert before == {"waiting": 0, "planned": 0, "running": 0, "paused": 0}
    made = site.operator.post("stops", A_STOP)
    assert made.status_code == 201
    refused = site.lead.post("bookings", A_BOOKING)
    assert (refused.status_code, said(refused)["code"]) == (409, "stopped")
    assert "Choose another tier" in said(refused)["detail"]
    assert said(site.lead.post("quotes", A_BOOKING))["code"] == "stopped"
    assert [each["name"] for each in said(site.lead.get("stops"))["items"]] == ["standard"]
    member = Client()
    member.force_login(site.people["lead"])
    page = member.get(f"/t/{site.tenant.slug}/bookings").content.decode()
    assert "Audit &lt;b&gt;" in page
    assert "Audit &lt;b&gt;" in Client().get("/sign-in").content.decode()
    ended = site.operator.post(f"stops/{said(made)['id']}/end")
    assert said(ended)["ended_at"] is not None
    assert said(site.operator.post(f"stops/{said(made)['id']}/end"))["code"] == "stop_over"
    assert said(site.lead.post("bookings", A_BOOKING)).get("code") != "stopped"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"scope": "planet"}, "scope"),
        ({"name": "nothing"}, "name"),
        ({"scope": "tenant", "name": "nobody"}, "name"),
        ({"reason": "  "}, "reason"),
        ({"length": "P91D"}, "for"),
        ({"began_by": "me"}, "began_by"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(site: Site, more: dict[str, str], param: str) -> None:
    answer = site.operator.post("stops", A_STOP | more)
    assert (answer.status_code // 100, said(answer)["param"]) == (4, param)


@pytest.mark.parametrize("path", ["stops", "stops/preview"])
def test_members_may_not(site: Site, path: str) -> None:
    answer = site.admin.post(path, A_STOP)
    assert (answer.status_code, said(answer)["code"]) == (403, "not_allowed")
    with as_system():
        assert not Stop.objects.exists()


def test_the_page_asks_with_numbers_first(site: Site) -> None:
    client = Client()
    client.force_login(site.people["operator"])
    form = {"what": "tier:standard", "reason": "x", "for": "2h"}
    assert client.post("/ops/stops", form | {"reason": ""}).status_code == 422
    assert client.post("/ops/stops", form | {"what": "tier:none"}).status_code == 422
    assert "Nothing is stopped" in client.get("/ops/stops").content.decode()
    assert "0 waiting bookings" in client.post("/ops/stops", form).content.decode()
    with as_system():
        assert not Stop.objects.exists()
    assert client.post("/ops/stops", form | {"sure": "1"}).status_code == 302
    with as_system():
        stop = Stop.objects.get()
    page = client.get("/ops/stops").content.decode()
    assert "the tier Standard" in page
    assert "Nothing is stopped" not in page
    assert client.post(f"/ops/stops/{stop.id}/end").status_code == 302
    assert "History" in client.get("/ops/stops").content.decode()
    member = Client()
    member.force_login(site.people["admin"])
    assert member.get("/ops/stops").status_code == 404
