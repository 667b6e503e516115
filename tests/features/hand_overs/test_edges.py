"""Hand-overs over REST and on the pages of a booking."""

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from allocation.models import Booking
from allocation.rules.states import State
from tenants.platform.wall import tenant_tx
from tenants.services import TokenLimits, token_create
from tests.api.builders import Api, Site, said, some_money
from tests.builders_allocation import a_booking
from tests.roles import as_system
from tests.web.flat import flat


@pytest.fixture
def booking(site: Site) -> Booking:
    """A booking of the researcher that waits."""
    return a_booking(site.project, site.people["researcher"].id, state=State.QUEUED, starts=timezone.now())


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def page_of(site: Site, booking: Booking, who: str, after: str = "/hand-over") -> str:
    answer = reader(site, who).get(f"/t/helix/bookings/{booking.label}{after}")
    assert answer.status_code == 200
    return flat(answer.content.decode())


def code(answer: HttpResponse, status: int) -> str:
    assert answer.status_code == status, answer.content
    return str(said(answer)["code"])


def test_a_hand_over_by_rest(site: Site, booking: Booking) -> None:
    at = f"bookings/{booking.label}/hand-over"
    body: dict[str, Any] = {"person": "jonas", "note": "Please take it", "days": 2}
    assert code(site.researcher.get(at), 404) == "not_found"
    assert code(site.outsider.post(at, body), 404) == "not_found"
    assert code(site.viewer.post(at, body), 403) == "not_allowed"
    for wrong in (
        {"person": "stefan"},
        {"person": "vera"},
        {"person": ""},
        {"days": 0},
        {"days": 99},
        {"note": "a\nb"},
    ):
        assert site.researcher.post(at, body | wrong).status_code in (400, 404, 422), wrong
    made = site.researcher.post(at, body)
    assert made.status_code == 201, made.content
    row = said(made)
    assert (row["booking"], row["giver"], row["taker"], row["state"]) == (
        booking.label,
        "mara",
        "jonas",
        "open",
    )
    assert said(site.lead.get("hand-overs"))["items"] == [row]
    assert (
        said(site.viewer.get("hand-overs"))["items"] == said(site.outsider.get("hand-overs"))["items"] == []
    )
    assert code(site.outsider.post(f"{at}/accept"), 404) == "not_found"
    assert code(site.researcher.post(f"{at}/accept"), 403) == "not_allowed"
    assert code(site.viewer.post(f"{at}/decline"), 409) == "hand_over_none"
    assert said(site.lead.post(f"{at}/accept"))["state"] == "accepted"
    with as_system():
        assert Booking.objects.get(id=booking.id).owner_id == site.people["lead"].id
    assert code(site.lead.post(f"{at}/decline"), 409) == "hand_over_none"
    assert said(site.lead.get(at))["state"] == "accepted"


def test_a_token_of_one_project_hands_over_there_only(site: Site, booking: Booking) -> None:
    some_money(site.hidden, "100")
    with as_system():
        other = a_booking(site.hidden, site.people["admin"].id, state=State.QUEUED, starts=timezone.now())
    with tenant_tx(site.tenant.id):
        limits = TokenLimits(project=site.hidden.slug)
        _, clear = token_create(
            actor=site.actor("admin"), name="one", days=1, now=timezone.now(), limits=limits
        )
    limited, body = Api(clear), {"person": "ada"}
    assert code(limited.post(f"bookings/{booking.label}/hand-over", body), 404) == "not_found"
    assert site.researcher.post(f"bookings/{booking.label}/hand-over", body).status_code == 201
    assert said(limited.get("hand-overs"))["items"] == []
    assert code(limited.post(f"bookings/{booking.label}/hand-over/accept"), 404) == "not_found"
    assert code(limited.post(f"bookings/{other.label}/hand-over", body), 422) == "hand_over_self"


def test_a_hand_over_on_pages(site: Site, booking: Booking) -> None:
    own = f"/t/helix/bookings/{booking.label}/hand-over"
    assert "Hand it over" in page_of(site, booking, "researcher", "")
    assert "Hand it over" not in page_of(site, booking, "viewer", "")
    form = page_of(site, booking, "researcher")
    assert '<option value="jonas">' in form
    assert "vera" not in form.split("<select")[1].split("</select>")[0]
    assert "<select" not in page_of(site, booking, "viewer")
    mara, jonas = reader(site, "researcher"), reader(site, "lead")
    faulty = mara.post(own, {"act": "offer", "person": "jonas", "days": "many"})
    assert faulty.status_code == 422
    assert (
        mara.post(own, {"act": "offer", "person": "jonas", "days": "2", "note": "Yours?"}).status_code == 302
    )
    shown = page_of(site, booking, "lead", "")
    assert "offers you this booking" in shown
    assert "Yours?" in shown
    assert 'value="accept"' not in page_of(site, booking, "admin", "")
    assert 'value="withdraw"' in page_of(site, booking, "researcher")
    assert reader(site, "viewer").post(own, {"act": "accept"}).status_code == 422
    assert mara.post(own, {"act": "accept"}).status_code == 403
    done = jonas.post(own, {"act": "accept"}, follow=True)
    assert "is yours now." in flat(done.content.decode())
    assert "was accepted" in page_of(site, booking, "lead")
    assert reader(site, "outsider").get(own).status_code == 404
    assert mara.post(own, {"act": "offer", "person": "ada", "days": "1"}).status_code == 403


def test_what_can_t_be_handed_over_says_why(site: Site) -> None:
    running = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=timezone.now())
    assert "before that, because its account" in page_of(site, running, "researcher")
    assert "Hand it over" not in page_of(site, running, "researcher", "")
