"""What a booking's page says of GPUs that it borrows."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.test import Client

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.ask.words.document import AskGroup
from allocation.rules.states import State
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import booking_summary
from tenants.models import Membership, Tier
from tests.builders import UNITS_PER_GPU, a_member, a_project
from tests.builders_allocation import a_model
from tests.roles import as_system
from tests.web.fleet_builders import a_booking

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
SCENE = PageContext(NOW, UTC, "/t/x/", {"h100": "H100 80 GB"})


def _page(member: Membership, booking: Booking) -> str:
    client = Client()
    client.force_login(member.user)
    url = f"/t/{booking.tenant.slug}/bookings/{booking.label}"
    return client.get(url).content.decode()


def _change(booking: Booking, **values: object) -> Booking:
    with as_system():
        Booking.objects.filter(id=booking.id).update(**values)
        found = Booking.objects.select_related("tenant", "project", "tier", "owner")
        return found.get(id=booking.id)


def test_what_is_borrowed_is_said_and_from_when_on_it_is_at_risk() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=NOW, state=State.ACTIVE)
    with as_system():
        Tier.objects.update(pausable=True)
    ask = {**booking.ask, "count": 10}
    booking = _change(booking, ask=ask, planned_class="h100", borrowed_units=2 * UNITS_PER_GPU)
    scene = replace(SCENE, units=10 * UNITS_PER_GPU)
    story = booking_summary(booking, scene, may_change=True)
    assert story.borrowed.startswith("Borrows up to 2 of its 10 GPUs before it ends: can be")
    booking = _change(booking, at_risk_from=NOW.replace(hour=13, minute=40))
    story = booking_summary(booking, scene, may_change=True)
    assert story.borrowed == "Borrows up to 2 of its 10 GPUs: at risk from today 13:40."
    page = _page(member, booking)
    assert "GPUs: at risk from" in page
    all_of_it = booking_summary(booking, replace(SCENE, units=2 * UNITS_PER_GPU), may_change=True)
    assert all_of_it.borrowed.startswith("Borrows up to all its GPUs: at risk")


def test_what_is_never_paused_is_not_said_to_be_at_risk() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=NOW, state=State.SCHEDULED)
    booking = _change(booking, planned_class="h100", borrowed_units=UNITS_PER_GPU)
    booking.tier.pausable = False
    scene = replace(SCENE, units=4 * UNITS_PER_GPU)
    for risk in (None, NOW.replace(hour=13)):
        booking.at_risk_from = risk
        assert booking_summary(booking, scene, may_change=True).borrowed == (
            "Borrows up to 1 of its 4 GPUs before it ends: never paused, ends at its time."
        )


def test_a_mixed_booking_borrows_of_the_gpus_of_all_its_groups() -> None:
    member = a_member(a_project())
    a_model("h100-80gb")
    a_model("l40s-48gb", product="NVIDIA L40S", enrolled=False)
    booking = a_booking(member, now=NOW, state=State.QUEUED)
    ask = AskDocument.from_json(booking.ask)
    ask = replace(ask, groups=(AskGroup("l40s", 2),))
    _change(booking, ask=ask.to_json(), planned_class="h100", borrowed_units=2 * UNITS_PER_GPU)
    page = _page(member, booking)
    assert "Borrows up to 2 of its 3 GPUs" in page


def test_what_is_borrowed_is_not_said_to_be_in_the_way() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.QUEUED)
    reason: dict[str, object] = {
        "code": "borrowed",
        "check": "quota",
        "sentence": "1 own + 1 borrowed.",
        "numbers": {},
    }
    story = booking_summary(_change(booking, reasons=[reason]), SCENE, may_change=True)
    assert not any(check.blocks for check in story.checks)
