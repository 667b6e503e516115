"""When to book: expected wait, price and risk of a pause for each hour of the coming week."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from allocation.features.demand.heat import HOUR, hours_from, waits
from allocation.features.demand.models import DemandForecast, DemandKind
from allocation.features.demand.services import gpus_of_classes, newest_forecasts
from allocation.queries.bookings.outcomes import pause_record
from allocation.words.refusals import refusal_text
from billing.price_books import PriceShelf
from billing.rules import UNITS_PER_GPU
from solver import QUARTER
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, missing

SHOWN_HOURS = 168
DAY_SECONDS = 86_400
USUAL_TIER = "standard"


@dataclass(frozen=True, slots=True)
class BookingTime:
    """What a start of `count` GPUs in an hour is expected to be like.

    `wait_hours` is None if none is expected to be free within the forecast; in one of ten cases it
    is longer than `wait_hours_high`. `price` is of a GPU-hour, None without a price. `pause_risk` is
    in thousandths; None: too few past bookings to tell.
    """

    at: datetime
    wait_hours: int | None
    wait_hours_high: int | None
    free: float
    price: Decimal | None
    currency: str
    pause_risk: int | None


def tier_of(slug: str) -> Tier:
    """The tier that is asked for; without a name the usual one, or the first.

    Raises:
        Refused: `not_found`.
    """
    tiers = {each.slug: each for each in Tier.objects.order_by("-priority", "slug")}
    name = slug or (USUAL_TIER if USUAL_TIER in tiers else next(iter(tiers), ""))
    if name not in tiers:
        raise missing("tier", "tier")
    return tiers[name]


def class_of(slug: str) -> GpuClass:
    """The class that is asked for.

    Raises:
        Refused: `not_found`.
    """
    found = GpuClass.objects.filter(slug=slug).first()
    if found is None:
        raise missing("GPU class", "class")
    return found


def booking_times(gpu_class: GpuClass, tier: Tier, count: int, now: datetime) -> list[BookingTime]:
    """The coming week by hour; empty while the class has no forecast. Run inside a tenant's
    transaction, whose past bookings say the risk of a pause.

    Raises:
        Refused: `demand_count`.
    """
    gpus = gpus_of_classes().get(gpu_class.slug, 0)
    if gpus and count > gpus:
        raise Refused("demand_count", refusal_text("demand_count", gpus=str(gpus)), "invalid", "count")
    forecast = newest_forecasts(gpu_class.slug).get(gpu_class.slug, {}).get(DemandKind.WANTED)
    if forecast is None:
        return []
    return _rows(forecast, gpus, count, tier, now)


def _rows(forecast: DemandForecast, gpus: int, count: int, tier: Tier, now: datetime) -> list[BookingTime]:
    first = max(0, int((now - forecast.at) / HOUR))
    shown = range(first, min(first + SHOWN_HOURS, len(forecast.middle)))
    usual, longer = waits(forecast.middle, gpus, count), waits(forecast.high, gpus, count)
    at = hours_from(forecast.at.astimezone(UTC), len(forecast.middle))
    prices = _prices(forecast.gpu_class_id, tier.slug, [at[number] for number in shown], now)
    record = pause_record()
    risks = [
        record.risk(tier.slug, forecast.gpu_class_id, borrowed=False, quarter=quarter).thousandths
        if tier.pausable
        else 0
        for quarter in range(DAY_SECONDS // QUARTER)
    ]
    return [
        BookingTime(
            at[number],
            usual[number],
            longer[number],
            round(max(0.0, gpus - forecast.middle[number]), 2),
            price,
            currency,
            risks[at[number].hour * 3_600 // QUARTER],
        )
        for number, (price, currency) in zip(shown, prices, strict=True)
    ]


def _prices(
    gpu_class: str, tier: str, hours: Sequence[datetime], now: datetime
) -> list[tuple[Decimal | None, str]]:
    """The price of a GPU in each hour, and its currency."""
    shelf = PriceShelf.read(now)
    found: list[tuple[Decimal | None, str]] = []
    for at in hours:
        price = shelf.on(at).get((gpu_class, tier))
        if price is None:
            found.append((None, ""))
            continue
        rate = price.rate(UNITS_PER_GPU)
        found.append((rate.cost(rate.between(at, at + HOUR)), price.currency))
    return found


def best_times(rows: Sequence[BookingTime], most: int = 3) -> list[BookingTime]:
    """The hours without an expected wait with the lowest price and risk, at most one of each day."""
    found: list[BookingTime] = []
    known = [row for row in rows if row.wait_hours == 0]
    for row in sorted(
        known, key=lambda each: (each.price or Decimal(0), each.pause_risk or 0, -each.free, each.at)
    ):
        if all(row.at.date() != other.at.date() for other in found):
            found.append(row)
        if len(found) == most:
            break
    return found
