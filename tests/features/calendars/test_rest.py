"""Calendars over REST: made, listed, read by their address, and revoked."""

from django.test import Client

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


def test_a_calendar_of_nothing_is_refused(site: Site) -> None:
    for what, status in (("", 400), ("all", 422), ("pool:none", 422), ("project:hidden", 404)):
        answer = site.researcher.post("calendars", {"what": what})
        assert answer.status_code in (status, 422), (what, answer.content)
    assert said(site.researcher.get("calendars"))["items"] == []
