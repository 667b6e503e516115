"""A set-up fee: quoted, held, charged once at the first start, and shown as a line of its own."""

from datetime import timedelta
from decimal import Decimal

import pytest

from allocation.queries.bookings.money.statements import StatementOf, statement_lines
from allocation.services.bookings.checks.terms import longer_terms
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.costs import setup_charge
from allocation.web.bookings.request_panel.options import price_parts
from billing.focus import focus_rows
from billing.rules import month_of
from tests.builders_allocation import Lab, a_lab, an_ask
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.services.paused import all_is_well, money_of, requested
from tests.services.plant import Plant, fresh

FEE, PLAIN = Decimal("2.5"), Decimal(4)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0, money="1000")
    plant.later(timedelta(minutes=1))
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=plant.now,
            prices={("h100", "standard"): PLAIN},
            setup={"standard": FEE},
            now=plant.now,
        )
    return lab


def test_the_first_start_costs_the_fee_once(plant: Plant, lab: Lab) -> None:
    request = BookingRequest(lab.project.slug, "standard", an_ask(1, hours=2))
    with as_system():
        option = quote_make(actor=lab.actor, request=request, now=plant.now).options[0]
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    assert (option.price, option.most, option.setup) == (2 * PLAIN + FEE, 2 * PLAIN + FEE, FEE)
    assert price_parts(option) == "€2.50 of it for set-up"
    assert money_of(booking) == (2 * PLAIN + FEE, Decimal(0))
    plant.round()
    assert money_of(booking) == (2 * PLAIN, FEE)
    assert all_is_well()
    with as_system():
        assert setup_charge(fresh(booking), plant.now) == {}, "a later start costs nothing"
        # A change of its length keeps the fee in what it costs.
        assert longer_terms(fresh(booking), 3600, plant.now).hold_amount == 3 * PLAIN + FEE
    plant.later(timedelta(minutes=30))
    with as_system():
        booking_release(actor=lab.actor, booking=fresh(booking), now=plant.now)
    plant.round()
    assert fresh(booking).charged == PLAIN / 2 + FEE
    of = StatementOf(lab.project.tenant_id, month_of(plant.now.date()))
    with as_system():
        lines = list(statement_lines(of))
    assert {(each.fee_name, each.exact) for each in lines} == {("Set-up", FEE), ("", PLAIN / 2)}
    rows = list(focus_rows(lines, ("helix", "Helix"), plant.now.date().replace(day=1), {}))
    assert {(each["ChargeCategory"], each["SkuId"]) for each in rows} >= {("Purchase", "setup")}
    assert all_is_well()


def test_what_never_starts_costs_no_fee(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab, an_ask(1, hours=2))
    with as_system():
        booking_cancel(actor=lab.actor, booking=fresh(booking), now=plant.now)
    assert money_of(booking) == (Decimal(0), Decimal(0))
