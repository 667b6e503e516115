"""The price of an admitted request."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.services.bookings.admission import Admission
from allocation.services.record.workloads import classes_by_cost, is_cheapest_first
from billing.queries import CurrentPrice, price_at, price_of
from billing.rules import UNITS_PER_GPU, cost_of


@dataclass(frozen=True, slots=True)
class Offer:
    """The price per hour on the dearest class and the highest total cost of a booking.

    `lengths`: (class, seconds) in order of cost, where cost decides.
    """

    price: CurrentPrice
    most: Decimal
    lengths: tuple[tuple[str, int], ...]


def offer_price(admission: Admission, at: datetime) -> Offer:
    """Returns the offer at the prices of a time. Raises Refused: `no_price`."""
    hourly = {
        gpu_class: _for_units(
            price_of(gpu_class=gpu_class, tier=admission.tier.slug, now=at), units
        )
        for gpu_class, units in admission.units.items()
    }
    costs = [
        cost_of(
            per_gpu_hour=price.per_gpu_hour,
            units=UNITS_PER_GPU,
            seconds=admission.seconds_on(gpu_class),
        )
        for gpu_class, price in hourly.items()
    ]
    order = classes_by_cost(
        admission.ask,
        admission.lengths,
        {name: price.per_gpu_hour for name, price in hourly.items()},
    )
    return Offer(
        price=max(hourly.values(), key=lambda price: price.per_gpu_hour),
        most=max(costs),
        lengths=tuple((name, admission.seconds_on(name)) for name in order)
        if is_cheapest_first(admission.ask)
        else (),
    )


def price_of_class(booking: Booking, gpu_class: str) -> Decimal:
    """Returns the booking's price per hour on a class, in the price book it was booked with."""
    units = ask_units(AskDocument.from_json(booking.ask))[gpu_class]
    price = price_at(version=booking.price_version, gpu_class=gpu_class, tier=booking.tier_id)
    return _for_units(price, units).per_gpu_hour


def _for_units(price: CurrentPrice, units: int) -> CurrentPrice:
    hourly = cost_of(per_gpu_hour=price.per_gpu_hour, units=units, seconds=3600)
    return CurrentPrice(version=price.version, currency=price.currency, per_gpu_hour=hourly)
