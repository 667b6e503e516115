"""A quote names the start that the cycle gives, also where others are asked to leave for it."""

from datetime import datetime, timedelta

import pytest
from django.db import connection

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings import booking_request
from allocation.services.quote_calendar import published_snapshot
from allocation.services.quotes import Quote, quote_make
from allocation.solver import Policy
from tenants.models import Quota, Tier
from tenants.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, a_wish, an_ask
from tests.roles import as_system
from tests.services.plant import Plant, fresh

GRACE = timedelta(minutes=10)


def requested(plant: Plant, lab: Lab, ask: AskDocument) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, wish=a_wish(lab.project, ask), now=plant.now)


def quoted(lab: Lab, ask: AskDocument, now: datetime) -> Quote:
    with tenant_tx(lab.tenant_id):
        return quote_make(actor=lab.actor, wish=a_wish(lab.project, ask), now=now)


@pytest.fixture
def labs(plant: Plant) -> tuple[Lab, Lab]:
    """Who is guaranteed both GPUs, and who has them, borrowed, for four hours; an hour has gone."""
    lender = a_lab("lender", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    borrower = a_lab("borrower", gpus=0, limit=2)
    with as_system():
        Quota.objects.filter(tenant=borrower.tenant).update(
            guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU
        )
        Tier.objects.update(pausable=True)
    weak = requested(plant, borrower, an_ask(2, hours=4))
    plant.round()
    assert fresh(weak).state == "active"
    plant.later(HOUR)
    return lender, borrower


def test_the_start_quoted_is_the_one_that_the_cycle_gives_and_says_who_is_asked_to_leave(
    plant: Plant, labs: tuple[Lab, Lab]
) -> None:
    lender, _ = labs
    option = quoted(lender, an_ask(2, hours=1), plant.now).options[0]
    assert (option.kind, option.starts) == ("as_asked", NOW + HOUR + GRACE)
    assert option.pauses == 1
    assert option.notes[0] == "1 running booking borrowing its GPUs will be asked to leave"
    assert "borrower" not in repr(option)
    strong = requested(plant, lender, an_ask(2, hours=1))
    plant.round()
    assert fresh(strong).planned_starts == option.starts


def test_who_borrows_is_not_offered_the_room_of_others(plant: Plant, labs: tuple[Lab, Lab]) -> None:
    _, borrower = labs
    option = quoted(borrower, an_ask(2, hours=1), plant.now).options[0]
    assert (option.starts, option.pauses) == (NOW + 4 * HOUR, 0)


def test_of_other_tenants_a_quote_reads_numbers_and_no_names(
    plant: Plant, labs: tuple[Lab, Lab]
) -> None:
    lender, borrower = labs
    secrets = [str(borrower.tenant_id), str(borrower.project.id)]
    with as_system():
        secrets += [str(each) for each in Booking.objects.values_list("id", flat=True)]
    with tenant_tx(lender.tenant_id):
        told = repr(published_snapshot(plant.now, Policy(1)))
        assert not [secret for secret in secrets if secret in told]
        with connection.cursor() as cursor:
            for hours in (0, 5):
                # What should have been out for an hour and is not is told, too.
                cursor.execute(
                    "SELECT tenant, count(*) FROM portal_beside(%s, %s) GROUP BY 1",
                    [plant.now + hours * HOUR, plant.now + (hours + 1) * HOUR],
                )
                assert [count for _, count in cursor.fetchall()] == [2], "nothing of one's own"
