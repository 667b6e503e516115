"""The price of an admitted request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.services.bookings.checks.admission import Admission
from allocation.services.record.workloads import classes_by_cost, is_cheapest_first
from billing.price_books import CurrentPrice, PriceShelf, price_at
from billing.rates import Rate


@dataclass(frozen=True, slots=True)
class Offer:
    """The rate on the most expensive class and the highest cost of a booking, with its set-up fee.

    `lengths`: (class, seconds) in order of cost, where cost decides.
    """

    price: CurrentPrice
    rate: Rate
    most: Decimal
    lengths: tuple[tuple[str, int], ...]


def offer_price(admission: Admission, shelf: PriceShelf) -> Offer:
    """Returns the offer at the prices of the requested day. Raises Refused: `no_price`."""
    day = priced_from(admission.ask, shelf.at)
    prices = {gpu_class: shelf.price(gpu_class, admission.tier.slug, day) for gpu_class in admission.units}
    rates = {
        name: rate_for(price, admission.ask.on(name), admission.units[name]) for name, price in prices.items()
    }
    costs = {
        name: most_of(rate, admission.ask.starts, admission.seconds_on(name)) for name, rate in rates.items()
    }
    if admission.ask.groups:
        return _offer_of_all(admission, prices, rates)
    order = classes_by_cost(admission.ask, costs)
    most_expensive = max(rates, key=lambda name: rates[name].plain)
    # A class of a lower price can have more expensive peak hours.
    rate = replace(rates[most_expensive], peak=max(rate.peak for rate in rates.values()))
    return Offer(
        price=prices[most_expensive],
        rate=rate,
        most=max(costs.values()) + prices[most_expensive].setup,
        lengths=tuple((name, admission.seconds_on(name)) for name in order)
        if is_cheapest_first(admission.ask)
        else (),
    )


def _offer_of_all(
    admission: Admission, prices: Mapping[str, CurrentPrice], rates: Mapping[str, Rate]
) -> Offer:
    """The offer of a mixed booking: it costs what its groups cost together."""
    rate = rate_of_all(list(rates.values()))
    price = prices[admission.ask.classes[0]]
    most = most_of(rate, admission.ask.starts, admission.ask.duration) + price.setup
    return Offer(price, rate, most, ())


def rate_of_all(rates: Sequence[Rate]) -> Rate:
    """The rate of several groups together."""
    plain = sum((rate.plain for rate in rates), Decimal(0))
    hours = next((rate.hours for rate in rates if rate.peak != rate.plain), rates[0].hours)
    return Rate(plain, sum((rate.peak for rate in rates), Decimal(0)), hours)


def priced_from(ask: AskDocument, now: datetime) -> datetime:
    """Returns the time whose price book counts: the requested start, if that is later."""
    return max(filter(None, (now, ask.starts, ask.not_before)))


def most_of(rate: Rate, starts: datetime | None, seconds: int) -> Decimal:
    """Returns the most that a booking of this length costs; `starts` is that of a fixed window."""
    if starts is None:
        return rate.most(seconds)
    return rate.cost(rate.between(starts, starts + timedelta(seconds=seconds)))


def peak_facts(rate: Rate) -> dict[str, Any]:
    """Returns the fields of a booking with this rate."""
    if rate.peak == rate.plain or not rate.hours.weekly:
        return {"peak_surcharge": Decimal(0), "peak_zone": "", "peak_weekly": []}
    return {
        "peak_surcharge": rate.peak - rate.plain,
        "peak_zone": rate.hours.zone,
        "peak_weekly": [list(each) for each in rate.hours.weekly],
    }


def rate_of_class(booking: Booking, gpu_class: str) -> Rate:
    """Returns the booking's rate on a class, in the price book it was booked with."""
    ask = AskDocument.from_json(booking.ask)
    price = price_at(version=booking.price_version, gpu_class=gpu_class, tier=booking.tier_id)
    return rate_for(price, ask, ask_units(ask)[gpu_class])


def rate_for(price: CurrentPrice, ask: AskDocument, units: int) -> Rate:
    """Returns the rate of a request that has so many units on the class of the price."""
    return price.of(ask.profile, ask.count, units).rate(units)
