"""What rules see of a person's last 24 hours: the same sums, however many bookings there are."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.approvals import Amounts
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval.facts import facts_of
from tests.builders_allocation import NOW, Lab, a_booking, an_ask
from tests.roles import as_system

pytestmark = pytest.mark.django_db


def recent(booking: Booking) -> Amounts:
    """What the bookings before this one add to what rules see."""
    with as_system():
        units = {booking.id: ask_units(AskDocument.from_json(booking.ask))}
        return facts_of([booking], units, NOW).past.recent


def test_bookings_add_up_by_state_length_and_size_in_as_many_queries(lab: Lab) -> None:
    owner = lab.actor.user_id
    asked = a_booking(lab.project, owner)
    a_booking(lab.project, owner, ask=an_ask(2), held="10")
    a_booking(lab.project, owner, ask=an_ask(2, hours=3), hours=3, held="15")
    # What is over counts its money and hours, but takes no GPU any more.
    a_booking(lab.project, owner, ask=an_ask(4), state=State.ENDED, held="1.25")
    a_booking(lab.project, owner, state=State.CANCELLED, held="99")
    a_booking(lab.project, owner, held="99", now=NOW - timedelta(hours=25))
    with CaptureQueriesContext(connection) as few:
        assert recent(asked) == Amounts(Decimal("26.25"), Decimal(18), Decimal(4))
    for _ in range(20):
        a_booking(lab.project, owner, ask=an_ask(2, starts=NOW + timedelta(days=1)), held="10")
    with CaptureQueriesContext(connection) as many:
        assert recent(asked) == Amounts(Decimal("226.25"), Decimal(98), Decimal(44))
    assert len(many) == len(few)
