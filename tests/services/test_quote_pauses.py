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
from tests.services.moved import LATER, apart
from tests.services.plant import NAME, Plant, fresh

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


def test_what_another_has_asked_for_and_is_not_decided_is_waited_for(plant: Plant) -> None:
    mine, other = a_lab("mine", gpus=0, limit=2), a_lab("other", gpus=0, limit=2)
    theirs = requested(plant, other, an_ask(2, hours=3))
    plant.now += timedelta(seconds=5)
    option = quoted(mine, an_ask(1, hours=1), plant.now).options[0]
    assert (option.kind, option.starts) == ("as_asked", plant.now + 3 * HOUR)
    own = requested(plant, mine, an_ask(1, hours=1))
    plant.round()
    assert fresh(theirs).state == "active"
    assert fresh(own).planned_starts == option.starts


def test_windows_of_another_that_could_lie_elsewhere_are_not_in_the_way(plant: Plant) -> None:
    mine, other = a_lab("mine", gpus=0, limit=2), a_lab("other", gpus=0, limit=2)
    apart(plant, other)
    asked = an_ask(starts=LATER)
    option = quoted(mine, asked, plant.now).options[0]
    assert (option.kind, option.starts) == ("as_asked", LATER)
    own = requested(plant, mine, asked)
    plant.round()
    assert fresh(own).state == "scheduled"


@pytest.mark.parametrize("why", ["it is pinned", "it is being extended"])
def test_a_window_of_another_that_stays_where_it_is_is_in_the_way(plant: Plant, why: str) -> None:
    mine, other = a_lab("mine", gpus=0, limit=2), a_lab("other", gpus=0, limit=2)
    with as_system():
        for booking in map(fresh, apart(plant, other)):
            if why == "it is pinned":
                booking.ask |= {"pin": [NAME]}
            else:
                booking.extension_until = LATER + 9 * HOUR
            booking.save()
    assert quoted(mine, an_ask(starts=LATER), plant.now).blocking is not None


def test_of_other_tenants_a_quote_reads_numbers_and_no_names(
    plant: Plant, labs: tuple[Lab, Lab]
) -> None:
    lender, borrower = labs
    requested(plant, borrower, an_ask(1))
    secrets = [str(borrower.tenant_id), str(borrower.project.id)]
    with as_system():
        secrets += [str(each) for each in Booking.objects.values_list("id", flat=True)]
    with tenant_tx(lender.tenant_id):
        told = repr(published_snapshot(plant.now, Policy(1)))
        assert "asks-" in told
        assert not [secret for secret in secrets if secret in told]
        with connection.cursor() as cursor:
            for hours in (0, 5):
                # What should have been out for an hour and is not is told, too.
                cursor.execute(
                    "SELECT tenant, count(*) FROM portal_beside(%s, %s) GROUP BY 1",
                    [plant.now + hours * HOUR, plant.now + (hours + 1) * HOUR],
                )
                assert [count for _, count in cursor.fetchall()] == [2], "nothing of one's own"
