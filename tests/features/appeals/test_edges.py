"""Contested pauses over REST and on pages."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from allocation.features.appeals.models import PauseAppeal
from allocation.models import Booking, Pause
from allocation.rules.states import State
from tests.api.builders import Site, said
from tests.builders_allocation import HOUR, a_booking
from tests.builders_pauses import a_pause
from tests.roles import as_system
from tests.web.flat import flat


@pytest.fixture
def paused(site: Site) -> Booking:
    """A booking of the researcher that another one of the project pauses."""
    now, person = timezone.now(), site.people["researcher"].pk
    booking = a_booking(site.project, person, state=State.ACTIVE, starts=now)
    ahead = a_booking(site.project, person, state=State.QUEUED, starts=now)
    pause = a_pause(booking, ahead, now=now, ready=now - HOUR, ends=now + HOUR, label=ahead.label)
    with as_system():
        pause.relation = "owner"
        pause.save()
        booking.refresh_from_db()
    return booking


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def shown(site: Site, who: str, path: str) -> str:
    answer = reader(site, who).get(path)
    assert answer.status_code == 200, answer.content
    return flat(answer.content.decode())


def test_an_appeal_by_rest(site: Site, paused: Booking) -> None:
    at = f"bookings/{paused.label}/pauses/1/appeal"
    assert site.outsider.post(at, {"reason": "x"}).status_code == 404
    assert site.viewer.post(at, {"reason": "x"}).status_code == 403
    assert site.researcher.post(at, {"reason": ""}).status_code == 422
    assert (
        site.researcher.post(
            f"bookings/{paused.label}/pauses/99999999999/appeal", {"reason": "x"}
        ).status_code
        == 404
    )
    made = site.researcher.post(at, {"reason": "It ran alone."})
    assert made.status_code == 201, made.content
    row = said(made)
    assert (row["booking"], row["pause"], row["decider"], row["state"]) == (paused.label, 1, "admin", "open")
    assert said(site.researcher.post(at, {"reason": "Again."}))["code"] == "appeal_twice"
    assert said(site.viewer.get("pause-appeals"))["items"] == []
    assert said(site.admin.get("pause-appeals"))["items"] == [row]
    assert said(site.operator.get("platform/pause-appeals"))["items"] == []
    answer = {"outcome": "declined", "answer": "It was yours."}
    by_id = f"pause-appeals/{row['id']}/answer"
    assert site.outsider.post(by_id, answer).status_code == 404
    assert site.researcher.post(by_id, answer).status_code == 403
    assert site.lead.post(by_id, answer).status_code == 403
    assert site.admin.post(by_id, answer | {"outcome": "perhaps"}).status_code == 422
    assert site.operator.post(f"platform/{by_id}", answer).status_code == 404
    assert site.lead.post(f"platform/{by_id}", answer).status_code in (403, 404)
    assert said(site.admin.post(by_id, answer))["answer"] == "It was yours."


@pytest.mark.turn
def test_an_appeal_on_pages(site: Site, paused: Booking) -> None:
    page = f"/t/helix/bookings/{paused.label}"
    assert "Contest pause 1" in shown(site, "researcher", page)
    with as_system():
        Pause.objects.update(notified_at=F("deadline") - timedelta(minutes=17))
        minute = Pause.objects.get().deadline.minute
    assert f":{minute:02}, if it should not have happened" in shown(site, "researcher", page)
    assert "Contest pause 1" not in shown(site, "viewer", page)
    form = f"{page}/pauses/1/contest"
    assert "It borrows what others are guaranteed" in shown(site, "researcher", form)
    assert reader(site, "viewer").get(form).status_code == 404
    assert reader(site, "outsider").get(form).status_code == 404
    mara, ada = reader(site, "researcher"), reader(site, "admin")
    assert mara.post(form, {"act": "raise", "reason": ""}).status_code == 422
    assert mara.post(form, {"act": "raise", "reason": "It ran alone."}).status_code == 302
    assert "It ran alone." in shown(site, "researcher", page)
    assert "It ran alone." in shown(site, "researcher", form)
    with as_system():
        row = PauseAppeal.objects.get()
    one = f"/t/helix/appeals/{row.id}"
    listed = shown(site, "admin", "/t/helix/appeals")
    assert one in listed.split("All</h2>")[0]
    assert one not in shown(site, "viewer", "/t/helix/appeals")
    assert 'name="outcome"' in shown(site, "admin", one)
    assert 'name="outcome"' not in shown(site, "researcher", one)
    assert ada.post(one, {"act": "answer", "outcome": "maybe", "answer": "x"}).status_code == 422
    said_no = {"act": "answer", "outcome": "declined", "answer": "It was your own."}
    assert mara.post(one, said_no).status_code == 403
    assert ada.post(one, said_no).status_code == 302
    assert "It was your own." in shown(site, "researcher", page)
    assert reader(site, "outsider").get(one).status_code == 404


def test_operators_answer_theirs_on_a_page(site: Site, paused: Booking) -> None:
    with as_system():
        paused.pauses.update(relation="", beneficiary_label="")
    site.researcher.post(f"bookings/{paused.label}/pauses/1/appeal", {"reason": "It ran alone."})
    with as_system():
        row = PauseAppeal.objects.get()
    one = f"/ops/appeals/{row.id}"
    assert one in shown(site, "operator", "/ops/appeals")
    assert "1 contested pause" in shown(site, "operator", "/ops/overview")
    assert 'name="outcome"' in shown(site, "operator", one)
    otto = reader(site, "operator")
    assert otto.post(one, {"act": "answer", "outcome": "accepted", "answer": "Sorry."}).status_code == 302
    assert "Sorry." in shown(site, "operator", one)
    assert 'name="outcome"' not in shown(site, "operator", one)
    assert "Sorry." in shown(site, "researcher", f"/t/helix/bookings/{paused.label}")
    assert reader(site, "admin").get("/ops/appeals").status_code in (403, 404)
