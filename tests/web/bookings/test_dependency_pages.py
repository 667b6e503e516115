"""What a booking waits for, on its page, and what a cancellation does to those that wait."""

import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from allocation.models import Booking
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.dependencies import dependencies_add, dependencies_advance
from allocation.services.bookings.release import booking_cancel
from tenants.models import Role
from tenants.platform.wall import tenant_tx
from tests.builders import a_member
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.web.flat import flat


@pytest.mark.turn
@pytest.mark.django_db
def test_a_booking_says_what_it_waits_for_and_what_if_that_fails() -> None:
    lab = a_lab("helix")
    parent, other, child, last = (_booked(lab) for _ in range(4))
    with tenant_tx(lab.tenant_id):
        dependencies_add(lab.actor, child, [(parent.label, "success"), (other.label, "end")])
        dependencies_add(lab.actor, last, [(child.label, "end")])
    with as_system():
        dependencies_advance(NOW)
    assert "No start can be estimated yet" in _page(lab, child.label)
    with as_system():
        # Far ahead, because the page reads the real clock.
        ends = datetime(2090, 5, 4, 12, tzinfo=UTC)
        Booking.objects.filter(id__in=(parent.id, other.id)).update(
            state="queued", planned_starts=ends - HOUR, planned_ends=ends
        )
    page = _page(lab, child.label)
    assert "Estimated start: not before Thu 4 May 2090 14:00, the planned end of what it waits for." in page
    # The one behind it starts after its hour.
    listed = _page(lab, "")
    waits = (
        f"{parent.label}, not before Thu 4 May 2090 14:00",
        f"{child.label}, not before Thu 4 May 2090 15:00",
    )
    assert all(f"Waits for {each}" in listed for each in waits)
    assert all(each in page for each in ("Starts after 2 bookings", "has to succeed"))
    assert "has reported no success 10 minutes after its end, this booking is cancelled" in page
    said = (f"Starts after {child.label} ends", f"Waits for {parent.label}, not before Thu 4 May")
    assert all(each in _page(lab, last.label) for each in said)
    assert "Starts after" not in _page(lab, parent.label)
    asked = _page(lab, f"{parent.label}/cancel")
    assert f"{child.label} depends on it and is cancelled, too." in asked

    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=parent, now=NOW)
    with as_system():
        dependencies_advance(NOW)
    over = _page(lab, child.label)
    assert "Starts after 2 bookings" in over
    assert "this booking is cancelled" not in over


def _booked(lab: Lab) -> Booking:
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=1))
        return booking_request(actor=lab.actor, request=request, now=NOW)


def _page(lab: Lab, path: str) -> str:
    client = Client()
    client.force_login(a_member(lab.project, Role.LEAD).user)
    page = client.get(f"/t/{lab.tenant.slug}/bookings/{path}".rstrip("/")).content.decode()
    return flat(re.sub(r"</?a[^>]*>", "", page))
