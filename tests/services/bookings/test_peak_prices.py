"""A booking over a boundary of peak hours: quoted, held, charged and shown in its parts."""

from datetime import datetime, timedelta
from decimal import Decimal
from operator import itemgetter

import pytest

from allocation.queries.bookings.money.statements import StatementOf, statement_lines
from allocation.services.bookings.checks.admission import Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import offer_price
from allocation.services.bookings.checks.terms import longer_terms, shorter_terms
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quote_options import Market
from allocation.services.quotes.quotes import quote_make
from allocation.web.bookings.request_panel.options import price_parts
from billing.models import PriceBook, Transfer
from billing.price_books import PriceShelf
from billing.rates import peak_hours
from billing.rules import month_of
from billing.services import DraftTerms, Peaks, price_draft_create
from tests.builders import a_gpu_class, a_quota, an_operator
from tests.builders_allocation import HOUR, Lab, a_lab, a_model, an_ask
from tests.prices import price_book_publish
from tests.roles import as_role, as_system
from tests.services.paused import all_is_well
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

KEY = ("h100", "standard")
PLAIN, PEAK = Decimal(2), Decimal(5)
MINUTE = timedelta(minutes=1)


def published(at: datetime, plain: Decimal, *, until: int, now: datetime) -> None:
    """Prices whose peak hours of each day end at `until` o'clock UTC."""
    hours = peak_hours("UTC", [(day, 0, until) for day in range(7)])
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=at,
            prices={KEY: plain},
            peaks=Peaks(hours, {KEY: plain + 3}),
            now=now,
        )


@pytest.fixture
def lab(plant: Plant) -> Lab:
    """Half an hour before the end of the peak hours."""
    lab = a_lab("helix", gpus=0, money="1000")
    plant.later(30 * MINUTE)
    published(plant.now, PLAIN, until=plant.now.hour + 1, now=plant.now)
    return lab


def test_a_run_over_the_boundary_is_charged_by_its_parts(plant: Plant, lab: Lab) -> None:
    with as_system():
        request = BookingRequest(lab.project.slug, "standard", an_ask(1, hours=2))
        quote = quote_make(actor=lab.actor, request=request, now=plant.now)
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    option = quote.options[0]
    assert option.starts == plant.now
    assert option.price == PEAK / 2 + PLAIN * 3 / 2
    assert option.most == 2 * PEAK == booking.hold_amount
    assert price_parts(option) == (
        "30 min peak at €5.00/h, 1 h 30 min off-peak at €2.00/h, at most €10.00 at another start"
    )
    plant.round()
    with as_system():
        active = fresh(booking)
        # The last hour is outside of peak hours.
        assert shorter_terms(active, 3600).hold_amount == 2 * PEAK - PLAIN
        # 22 hours more end at 10:30 on the next day.
        longer = longer_terms(active, 22 * 3600, plant.now).hold_amount
        assert longer == 2 * PEAK + 22 * PLAIN + Decimal("10.5") * (PEAK - PLAIN)
    plant.later(70 * MINUTE)
    with as_system():
        booking_release(actor=lab.actor, booking=fresh(booking), now=plant.now)
    plant.round()
    over = fresh(booking)
    assert over.state == "ended"
    assert over.charged is not None
    with as_system():
        (charge,) = Transfer.objects.filter(reference=booking.id, kind="settle")
        (line,) = statement_lines(StatementOf(over.tenant_id, month_of(plant.now.date())))
    assert charge.surcharge == (PEAK - PLAIN) / 2
    assert over.charged == charge.amount == charge.surcharge + Decimal("2.333333")
    assert (line.peak_hours, line.hours) == (Decimal("0.5"), Decimal("1.166666"))
    assert all_is_well()


def test_a_later_booking_has_the_price_of_its_day_and_keeps_it(plant: Plant, lab: Lab) -> None:
    tomorrow = plant.now + 24 * HOUR
    published(tomorrow, Decimal(20), until=24, now=plant.now)
    at = (tomorrow + HOUR).replace(minute=0)
    with as_system():
        # A draft is in no quote.
        terms = DraftTerms({KEY: Decimal(700)}, valid_from=tomorrow + MINUTE)
        author = an_operator()
        with as_role("portal_ops"):
            price_draft_create(author_id=author.pk, terms=terms, now=plant.now)
        assert PriceBook.objects.count() == 3
        window = BookingRequest(lab.project.slug, "standard", an_ask(1, hours=1, starts=at))
        quote = quote_make(actor=lab.actor, request=window, now=plant.now)
        booking = booking_request(actor=lab.actor, request=window, now=plant.now)
        now = booking_request(
            actor=lab.actor,
            request=BookingRequest(lab.project.slug, "standard", an_ask(1, hours=1)),
            now=plant.now,
        )
    assert quote.options[0].price == booking.hold_amount == 23
    assert (booking.price_version - now.price_version, now.hold_amount) == (1, PEAK)
    # What is published after a quote is not known to it, even for its day.
    locked = plant.now
    plant.later(MINUTE)
    published(tomorrow + 30 * MINUTE, Decimal(30), until=24, now=plant.now)
    with as_system():
        kept = booking_request(
            actor=lab.actor,
            request=BookingRequest(
                lab.project.slug,
                "standard",
                an_ask(1, hours=1, starts=at + HOUR),
                priced_at=locked,
            ),
            now=plant.now,
        )
    assert kept.hold_amount == 23
    assert fresh(booking).hold_amount == 23


def test_peak_prices_decide_which_of_several_classes_is_cheapest(plant: Plant, lab: Lab) -> None:
    a_model("b200-180gb", product="NVIDIA B200")
    a_quota(lab.tenant, a_gpu_class("b200"), guaranteed=8, limit=8)
    plant.later(MINUTE)
    hours = peak_hours("UTC", [(day, 0, 12) for day in range(7)])
    prices = {KEY: Decimal(2), ("b200", "standard"): Decimal(3)}
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=plant.now,
            prices=prices,
            peaks=Peaks(hours, {KEY: Decimal(9)}),
            now=plant.now,
        )
    midnight = (plant.now + 24 * HOUR).replace(hour=0, minute=0, second=0)
    for starts, cheapest in ((midnight, "b200"), (midnight + 13 * HOUR, "h100")):
        ask = an_ask(
            classes=("h100", "b200"),
            hours=2,
            not_before=starts,
            starts=starts,
            deadline=starts + 2 * HOUR,
        )
        with as_system():
            admission = admission_check(
                project=lab.project,
                tier_slug="standard",
                ask=ask,
                now=plant.now,
                asker=Asker(lab.actor.user_id),
            )
            offer = offer_price(admission, PriceShelf.read(plant.now))
            market = Market.read(plant.now)
            assert offer.lengths[0][0] == cheapest
            assert min(market.costs(admission).items(), key=itemgetter(1))[0] == cheapest
            rates = market.rates("standard", admission)
        assert min(rates.items(), key=itemgetter(1))[0] == cheapest
