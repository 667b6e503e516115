"""Pauses for programs: the notice in the booking's document, and the two answers to it."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from allocation.models import Booking, BookingEvent, Pause, PauseCause
from allocation.rules.states import State
from tenants.models import Membership, OutboxMessage
from tenants.platform.wall import tenant_tx
from tests.api.bookings.test_bookings import running
from tests.api.builders import Site, row_counts, said
from tests.builders import a_tier
from tests.builders_pauses import GRACE, a_pause
from tests.roles import as_system
from tests.web.fleet_builders import a_booking

LINE = {"project": "folding", "request": "1 h100 for 10m"}


def pausing(site: Site, *, more_times: int = 1) -> Pause:
    """BK-1 of Helix runs and has the notice of a pause for a booking of North Lab."""
    made = said(site.researcher.post("bookings", {**LINE, "request": "1 h100 2h"}))
    running(made["id"])
    now = timezone.now().replace(microsecond=0)
    with as_system():
        members = Membership.objects.select_related("project", "tenant", "user")
        outsider = members.get(user=site.people["outsider"])
    strong = a_booking(outsider, now=now, state=State.QUEUED)
    a_tier("standard", pausable=True, more_times=more_times, more_time_seconds=300)
    with as_system():
        booking = Booking.objects.get(number=1, tenant=site.tenant)
    return a_pause(booking, strong, now=now, ready=now - timedelta(minutes=5), ends=now + timedelta(hours=2))


def test_a_booking_tells_its_pause_and_never_for_whom_of_another_tenant(site: Site) -> None:
    pause = pausing(site)
    booking = said(site.researcher.get("bookings/BK-1"))
    (pause_data,) = booking["pauses"]
    assert (pause_data["number"], pause_data["rule"], pause_data["preemptor"]) == (1, "R46", "")
    assert pause_data["deadline"] == (pause.notified_at + GRACE).isoformat().replace("+00:00", "Z")
    assert pause_data["resumed_at"] is None
    with as_system():
        strong = PauseCause.objects.get().beneficiary_id
    assert strong is not None
    listed = site.researcher.get("bookings")
    assert said(listed)["items"][0]["pauses"] == [pause_data]
    for answer in (site.researcher.get("bookings/BK-1"), listed):
        assert strong.hex.encode() not in answer.content
        assert str(strong).encode() not in answer.content


def test_the_database_itself_keeps_for_whom_from_the_web(site: Site) -> None:
    pausing(site)
    with tenant_tx(site.tenant.id):
        assert Pause.objects.count() == 1
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            list(PauseCause.objects.all())
    with tenant_tx(site.other_project.tenant_id):
        assert Pause.objects.count() == 0


def test_the_web_can_change_no_receipt(site: Site) -> None:
    pausing(site)
    for change in ({"charged": 0}, {"deadline": timezone.now()}, {"emptied_at": timezone.now()}):
        with (
            tenant_tx(site.tenant.id),
            pytest.raises(DatabaseError, match="permission denied"),
            transaction.atomic(),
        ):
            Pause.objects.update(**change)


def test_acknowledging_ends_the_grace_and_twice_is_once(site: Site) -> None:
    pausing(site)
    first = site.researcher.post("bookings/BK-1/acknowledge")
    assert first.status_code == 200, first.content
    (pause_data,) = said(first)["pauses"]
    assert pause_data["acknowledged_at"] is not None
    again = said(site.researcher.post("bookings/BK-1/acknowledge"))
    assert again["pauses"][0]["acknowledged_at"] == pause_data["acknowledged_at"]
    with as_system():
        assert BookingEvent.objects.filter(kind="saved").count() == 1
        assert OutboxMessage.objects.filter(kind="booking.saved").count() == 1


def test_more_time_is_asked_for_once_and_answered_by_the_cycle(site: Site) -> None:
    pausing(site)
    asked = site.researcher.post("bookings/BK-1/more-time")
    assert said(asked)["pauses"][0]["more_asked_at"] is not None
    again = site.researcher.post("bookings/BK-1/more-time")
    assert (again.status_code, said(again)["code"]) == (409, "more_time_pending")


def test_a_tier_without_more_time_names_its_rule(site: Site) -> None:
    pausing(site, more_times=0)
    before = row_counts()
    refused = site.researcher.post("bookings/BK-1/more-time")
    assert (refused.status_code, said(refused)["code"]) == (409, "no_more_time")
    assert said(refused)["rule"] == "R51"
    assert row_counts() == before


@pytest.mark.parametrize("act", ["acknowledge", "more-time"])
def test_only_who_may_change_it_answers(site: Site, act: str) -> None:
    pausing(site)
    refused = site.viewer.post(f"bookings/BK-1/{act}")
    assert (refused.status_code, said(refused)["code"]) == (403, "not_allowed")
    assert site.outsider.post(f"bookings/BK-1/{act}").status_code in (404, 409)
    with as_system():
        pause = Pause.objects.get()
    assert (pause.acknowledged_at, pause.more_asked_at) == (None, None)


def test_an_extension_of_what_pauses_is_refused_with_a_sentence(site: Site) -> None:
    pausing(site)
    refused = site.researcher.post("bookings/BK-1/extend", {"by": "PT1H"})
    assert (refused.status_code, said(refused)["code"]) == (409, "extension_while_paused")
    assert said(refused)["rule"] == "R50"


def test_what_waits_to_go_on_says_when_it_is_expected(site: Site) -> None:
    pausing(site)
    with as_system():
        Booking.objects.filter(number=1, tenant=site.tenant).update(state=State.PAUSED)
    assert said(site.researcher.get("bookings/BK-1"))["waiting"]["expected_start"] is None
