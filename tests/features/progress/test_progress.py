"""Programs say how far they are: over REST, on the page, and by the command."""

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.progress import page as page_of_progress
from allocation.features.progress.models import Progress
from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.quotes.changes import LaterEnds
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking
from tests.roles import as_owner, as_system
from tests.web.flat import flat

HOUR = timedelta(hours=1)


@pytest.fixture
def running(site: Site) -> Booking:
    """A booking of the researcher that began an hour ago and ends in three."""
    now = timezone.now().replace(microsecond=0)
    with as_system():
        booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE)
        Booking.objects.filter(id=booking.id).update(
            ready_at=now - HOUR,
            planned_starts=now - HOUR,
            planned_ends=now + 3 * HOUR,
            price_per_hour=Decimal(6),
            hold_amount=Decimal(24),
        )
        booking.refresh_from_db()
    return booking


def sent(site: Site, booking: Booking, **body: object) -> Any:  # noqa: ANN401 (the test client's response)
    return site.researcher.put(f"bookings/{booking.label}/progress", body)


def aged(booking: Booking, by: timedelta) -> None:
    """Makes the last report older."""
    with as_system():
        row = Progress.objects.get(booking=booking)
    with as_owner():
        Progress.objects.filter(booking=booking).update(
            at=row.at - by, anchor_at=row.anchor_at - by, mark_at=row.mark_at - by
        )


def test_a_report_is_kept_and_the_next_has_a_rate_an_end_and_a_cost(site: Site, running: Booking) -> None:
    first = said(sent(site, running, step=0, of=1_000, unit="epoch", metrics={"loss": 2.5}))
    assert (first["per_hour"], first["expected_end"], first["cost_per_step"]) == (None, None, None)
    aged(running, timedelta(minutes=30))
    second = said(sent(site, running, step=100))
    assert (second["of"], second["unit"], second["metrics"]) == (1_000, "epoch", {"loss": 2.5})
    assert second["per_hour"] == pytest.approx(200, rel=0.01)
    # 200 an hour, which costs 6.
    assert Decimal(second["cost_per_step"]) == pytest.approx(Decimal("0.03"), rel=Decimal("0.01"))
    shown = said(site.researcher.get(f"bookings/{running.label}"))
    assert shown["progress"] == second
    listed = said(site.researcher.get("bookings"))["items"]
    assert [each["progress"] for each in listed if each["number"] == running.label] == [second]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_field"),
        ({"step": "7"}, "wrong_type"),
        ({"step": True}, "wrong_type"),
        ({"step": -1}, "progress_number"),
        ({"step": 1e16}, "progress_number"),
        ({"step": 5, "of": 4}, "progress_number"),
        ({"step": 0, "of": 0}, "progress_number"),
        ({"step": 1, "metrics": {"loss": "0.3"}}, "wrong_type"),
        ({"step": 1, "metrics": {"a b": 0.3}}, "progress_metrics"),
        ({"step": 1, "metrics": [1]}, "wrong_type"),
        ({"step": 1, "unit": "u" * 25}, "too_long"),
        ({"step": 1, "at": "2026-01-01T00:00:00Z"}, "unknown_field"),
    ],
    ids=str,
)
def test_what_is_no_progress_changes_nothing(
    site: Site, running: Booking, body: dict[str, object], code: str
) -> None:
    answer = sent(site, running, **body)
    assert (answer.status_code in (400, 422), said(answer)["code"]) == (True, code)
    with as_system():
        assert not Progress.objects.exists()


def test_numbers_that_json_can_not_have_and_huge_ones_are_refused(site: Site, running: Booking) -> None:
    for raw in (b'{"step": NaN}', b'{"step": 1e999}', b'{"step": 1, "metrics": {"x": Infinity}}', b"[1]"):
        answer = site.researcher.send("put", f"bookings/{running.label}/progress", raw)
        assert answer.status_code in (400, 422), raw
    with as_system():
        assert not Progress.objects.exists()


def test_it_goes_forward_and_after_a_pause_from_a_checkpoint(site: Site, running: Booking) -> None:
    assert sent(site, running, step=500).status_code == 200
    back = sent(site, running, step=499)
    assert (back.status_code, said(back)["code"]) == (422, "progress_backwards")
    assert said(back)["detail"] == "The run has reached 500 steps already, so this changes nothing."
    assert sent(site, running, step=500).status_code == 200
    aged(running, 2 * HOUR)
    with as_system():
        Booking.objects.filter(id=running.id).update(ready_at=timezone.now() - timedelta(minutes=1))
    resumed = said(sent(site, running, step=400))
    assert (resumed["step"], resumed["per_hour"]) == (400, None)


def test_only_the_owners_account_says_it_and_only_while_it_runs(site: Site, running: Booking) -> None:
    path, body = f"bookings/{running.label}/progress", {"step": 1}
    assert site.lead.put(path, body).status_code == 403
    assert site.viewer.put(path, body).status_code == 403
    assert site.researcher.put("bookings/BK-999999/progress", body).status_code == 404
    with as_system():
        waiting = a_booking(site.project, site.people["researcher"].id, state=State.QUEUED)
    answer = sent(site, waiting, step=1)
    assert (answer.status_code, said(answer)["code"]) == (409, "progress_not_running")
    assert said(site.researcher.get(f"bookings/{waiting.label}"))["progress"] is None


def shown(site: Site, booking: Booking, who: str = "researcher") -> str:
    client = Client()
    client.force_login(site.people[who])
    return flat(client.get(f"/t/helix/bookings/{booking.label}").content.decode())


def possible(monkeypatch: pytest.MonkeyPatch, *hours: int, limit: str = "") -> None:
    """The solver allows ends so many hours after the planned one, and says why none is later."""

    def ends(*, booking: Booking, **_: object) -> LaterEnds:
        assert booking.planned_ends is not None
        return LaterEnds(tuple(booking.planned_ends + each * HOUR for each in hours), limit)

    monkeypatch.setattr(page_of_progress, "later_ends", ends)


def test_an_extension_that_is_not_possible_is_not_offered(
    site: Site, running: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(site, running, step=0, of=1_000)
    aged(running, timedelta(minutes=30))
    sent(site, running, step=100)
    possible(monkeypatch, limit="A higher-priority booking needs its GPUs.")
    page = unescape(shown(site, running))
    assert "Extend by" not in page
    assert "It can't be extended now: A higher-priority booking needs its GPUs." in page
    possible(monkeypatch, 1, limit="A higher-priority booking needs its GPUs.")
    page = unescape(shown(site, running))
    assert "Extend by 1 h, €6.00" in page
    assert "It can't be extended further: A higher-priority" in page


def test_the_page_shows_a_bar_and_offers_what_the_end_asks_for(
    site: Site, running: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    possible(monkeypatch, 1, 2)
    assert "<h2>Progress</h2>" not in shown(site, running)
    sent(site, running, step=0, of=1_000, metrics={"loss": 0.25})
    aged(running, timedelta(minutes=30))
    sent(site, running, step=100)
    # 900 are left at 200 an hour: 4.5 h, and 3 h are booked.
    page = shown(site, running)
    assert 'aria-valuenow="10"' in page
    assert "100 of 1,000 (10 %)" in page
    assert "At this rate it ends 1 h 30 min after the booking." in page
    assert re.search(r"Extend by 1 h (35 min, €9\.50|40 min, €10\.00)", page)
    assert "Extend by" not in shown(site, running, "viewer")
    sent(site, running, step=700)
    page = shown(site, running)
    assert "before the booking." in page
    assert "Give the rest back" in page
    aged(running, timedelta(minutes=61))
    assert "has said nothing for a while" in shown(site, running)


def test_the_card_alone_is_what_an_open_page_asks_for(site: Site, running: Booking) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    path = f"/t/helix/bookings/{running.label}/progress"
    assert client.get(path).content.strip() == b""
    sent(site, running, step=3)
    part = flat(client.get(path).content.decode())
    assert part.strip().startswith('<section class="card"')
    assert "not known yet" in part
    assert client.post(path).status_code == 405
