"""The waiting list over the API: waiting for a window, offers, and bad input."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.waiting_list.models import WaitOffer
from allocation.models import Booking
from allocation.services.decide.cycle import cycle_run
from portal.integrations.mail.message import section_of
from tenants.models import Mail
from tests.api.builders import Site, a_site, row_counts, said
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

ASK = {"project": "folding", "ask": {"count": 1, "classes": ["h100"], "duration": 3600}}


def window(since: int, until: int) -> dict[str, str]:
    """A window so many days from now."""
    day = timezone.now().replace(microsecond=0)
    return {
        "since": (day + timedelta(days=since)).isoformat(),
        "until": (day + timedelta(days=until)).isoformat(),
    }


@pytest.fixture
def site(real_db: Servers) -> Site:
    """A site whose transactions end: a cycle has its own."""
    return a_site()


@pytest.fixture
def offer(site: Site) -> dict[str, Any]:
    """An offer to the researcher, for any hour of tomorrow. It is never night in this test."""
    sent = ASK | {"windows": [window(1, 2)], "zone": _zone_of_day()}
    answer = site.researcher.post("waitlist", sent)
    assert (answer.status_code, said(answer)["state"]) == (201, "waitlisted"), answer.content
    assert said(answer)["price"]["held"] == "0.000000"
    with as_system():
        cycle_run(timezone.now())
    (found,) = said(site.researcher.get("offers"))["items"]
    assert isinstance(found, dict)
    return found


def _zone_of_day() -> str:
    """A zone in which it is about noon now. Etc/GMT-2 is two hours ahead of UTC."""
    ahead = 12 - timezone.now().hour
    return f"Etc/GMT{-ahead:+d}" if ahead else "UTC"


def test_an_offer_is_accepted_once_by_who_may_with_a_retry_that_answers_the_same(
    site: Site, offer: dict[str, Any]
) -> None:
    (entry,) = said(site.researcher.get("waitlist"))["items"]
    assert (entry["booking"], entry["mode"], entry["cost"][:4]) == (
        offer["booking"],
        "offer",
        "4.80",
    )
    assert (offer["state"], offer["cost"]) == ("open", "4.80")
    assert said(site.lead.get("offers"))["items"] == [offer]
    assert said(site.viewer.get("offers"))["items"] == []
    path = f"offers/{offer['id']}/accept"
    before = row_counts()
    for api, status in ((site.viewer, 404), (site.outsider, 404)):
        assert api.post(path, {}).status_code in (status, 403)
    assert row_counts() == before

    first = site.researcher.post(path, {}, idempotency_key="once")
    again = site.researcher.post(path, {}, idempotency_key="once")
    assert first.status_code == 200, first.content
    assert said(first)["state"] == "accepted"
    assert again.content == first.content
    twice = site.researcher.post(path, {})
    assert (twice.status_code, said(twice)["code"]) == (409, "offer_over")
    booking = said(site.researcher.get(f"bookings/{offer['booking']}"))
    assert (booking["state"], booking["price"]["held"]) == ("scheduled", "4.800000")
    assert said(site.researcher.get("waitlist"))["items"] == []


def test_a_late_answer_and_bad_windows_change_nothing(site: Site, offer: dict[str, Any]) -> None:
    late = timezone.now() - timedelta(seconds=1)
    with as_owner():
        WaitOffer.objects.update(made_at=late - timedelta(minutes=5), until=late)
    before = row_counts()
    answer = site.researcher.post(f"offers/{offer['id']}/accept", {})
    assert (answer.status_code, said(answer)["code"]) == (409, "offer_expired")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        (ASK, "wait_needs_window"),
        (ASK | {"windows": []}, "bad_windows"),
        (ASK | {"windows": [window(2, 1)]}, "bad_windows"),
        (ASK | {"windows": [window(-3, -2)]}, "wait_too_late"),
        (ASK | {"windows": [window(1, 2) | {"zone": "UTC"}]}, "unknown_field"),
        (ASK | {"windows": [window(1, 2)] * 51}, "bad_windows"),
        (ASK | {"if_full": "maybe", "windows": [window(1, 2)]}, ""),
    )
    for sent, code in cases:
        answer = site.researcher.post("waitlist", sent)
        assert answer.status_code in (400, 422), (sent, answer.content)
        assert not code or said(answer)["code"] == code, answer.content
    assert row_counts() == before


def test_the_start_page_offers_the_place_with_its_deadline(site: Site, offer: dict[str, Any]) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    text = client.get("/t/helix/").content.decode()
    assert "A place is offered to you" in text
    answer = client.post("/t/helix/offers", {"act": "accept", "offer": offer["id"]}, follow=True)
    assert "Accepted" in answer.content.decode()
    (found,) = said(site.researcher.get("offers"))["items"]
    assert found["state"] == "accepted"
    assert "offered to you" not in client.get("/t/helix/").content.decode()
    client.force_login(site.people["viewer"])
    again = client.post("/t/helix/offers", {"act": "accept", "offer": offer["id"]})
    assert again.status_code in (403, 404, 409, 422)


def test_the_timeline_says_for_which_hours_how_many_of_the_organisation_wait(site: Site) -> None:
    for first, last in ((1, 3), (2, 4)):
        sent = ASK | {"windows": [window(first, last)], "zone": _zone_of_day()}
        assert site.researcher.post("waitlist", sent).status_code == 201
    client = Client()
    client.force_login(site.people["viewer"])
    page = client.get("/t/helix/timeline?span=2w").content.decode()
    assert re.search(r"1 waits for [^,]+ – [^,]+, 2 for [^,]+, 1 for ", page)
    # Another time, and another organisation.
    past = client.get("/t/helix/timeline?span=6h").content.decode()
    assert "waits for" not in past


def test_the_mail_of_an_offer_leads_to_the_page_that_asks(site: Site, offer: dict[str, Any]) -> None:
    with as_system():
        booking = Booking.objects.get(tenant__slug="helix", state="offered")
        mail = Mail(
            tenant_id=booking.tenant_id,
            user_id=booking.owner_id,
            message=1,
            kind="booking.offered",
            booking=booking.id,
            at=timezone.now(),
            due=timezone.now(),
        )
        section = section_of(mail, timezone.now())
    assert section is not None
    assert section.href.endswith("/t/helix/offers")
    client = Client()
    client.force_login(site.people["researcher"])
    before = row_counts()
    # As a scanner of mail does: to open the page accepts nothing.
    assert "Accept" in client.get("/t/helix/offers?act=accept").content.decode()
    assert row_counts() == before
    assert said(site.researcher.get("offers"))["items"] == [offer]


def test_entries_exclude_each_other_over_rest_and_on_the_page(site: Site) -> None:
    for day in (3, 5):
        sent: Any = site.researcher.post("waitlist", ASK | {"windows": [window(day, day + 1)]})
        assert sent.status_code == 201
    rows = said(site.researcher.get("waitlist"))["items"]
    ids = [row["id"] for row in rows]
    assert [row["any_of"] for row in rows] == [None, None]
    both: Any = site.researcher.post("waitlist/any-of", {"entries": ids})
    groups = {row["any_of"] for row in both.json()}
    assert (both.status_code, len(groups)) == (200, 1)
    client = Client()
    client.force_login(site.people["researcher"])
    page = client.get(f"/t/{site.tenant.slug}/offers").content.decode()
    assert page.count("Only one of ") == 2
    asked = {"act": "exclude", "entries": ids[:1]}
    assert client.post(f"/t/{site.tenant.slug}/offers", asked).status_code == 302
    rows = said(site.researcher.get("waitlist"))["items"]
    assert {row["id"]: row["any_of"] for row in rows}[ids[0]] is None
    for entries in ([], ids * 3, ["x"], ids[:1] * 2):
        bad: Any = site.researcher.post("waitlist/any-of", {"entries": entries})
        assert bad.status_code in (400, 422), entries
    foreign: Any = site.viewer.post("waitlist/any-of", {"entries": ids})
    assert foreign.status_code in (403, 404)


def test_several_windows_of_which_one_is_wanted_are_asked_for_in_one_request(site: Site) -> None:
    day = timezone.now().replace(microsecond=0, minute=0, second=0)

    def item(days: int, if_full: str = "wait") -> dict[str, Any]:
        starts = (day + timedelta(days=days)).isoformat()
        ask = {"count": 1, "classes": ["h100"], "duration": 3600, "starts": starts}
        return {"project": "folding", "ask": ask, "if_full": if_full}

    before = row_counts()
    for items in ([item(1)], [item(1), item(2, "refuse")], [item(n) for n in range(1, 7)]):
        bad: Any = site.researcher.post("bookings/batch", {"items": items, "any_of": True})
        assert bad.status_code in (409, 422), bad.content
    assert row_counts() == before
    body = {"items": [item(1), item(2), item(3)], "any_of": True}
    made: Any = site.researcher.post("bookings/batch", body)
    assert made.status_code == 201, made.content
    rows = said(site.researcher.get("waitlist"))["items"]
    assert (len(rows), len({row["any_of"] for row in rows})) == (3, 1)
    with as_system():
        cycle_run(timezone.now())
        cycle_run(timezone.now())
        states = sorted(Booking.objects.values_list("state", flat=True))
    assert states == ["cancelled", "cancelled", "scheduled"]
