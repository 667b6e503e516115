"""The capacity report: what is missing by class and week, and what more GPUs would change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from allocation.features.demand.booking_times import USUAL_TIER
from allocation.features.demand.headroom import HeadroomUse, headroom_uses
from allocation.features.demand.heat import shortage
from allocation.features.demand.model import WEEK
from allocation.features.demand.models import DemandKind
from allocation.features.demand.services import gpus_of_classes, hours_of, newest_forecasts
from billing.price_books import PriceShelf
from billing.rules import UNITS_PER_GPU

MORE = (1, 2, 4, 8)
PAST_WEEKS = 4


@dataclass(frozen=True, slots=True)
class WeekShort:
    """GPU-hours that are missing in a week, and the most GPUs at once. Of a past week both are
    what was; of a coming one `p90` is exceeded in one of ten hours."""

    starts: datetime
    hours: int
    p50: float
    p90: float
    peak_p50: float
    peak_p90: float
    is_past: bool


@dataclass(frozen=True, slots=True)
class More:
    """What `gpus` more would change in the coming two weeks: the GPU-hours that are missing then,
    how much of their time they are used, and the most that an hour of one may cost to pay off."""

    gpus: int
    p50: float
    p90: float
    used_percent: float
    break_even: Decimal | None


@dataclass(frozen=True, slots=True)
class ClassCapacity:
    """The report of a class."""

    gpu_class: str
    label: str
    gpus: int
    price: Decimal | None
    currency: str
    weeks: list[WeekShort] = field(default_factory=list)
    more: list[More] = field(default_factory=list)
    headroom: HeadroomUse | None = None


def capacity_report(now: datetime) -> list[ClassCapacity]:
    """The report of each class with a forecast. Runs inside `operator_tx`."""
    gpus, shelf, uses = gpus_of_classes(), PriceShelf.read(now), headroom_uses(now)
    found = []
    for name, kinds in newest_forecasts().items():
        forecast, there = kinds[DemandKind.WANTED], gpus.get(name, 0)
        past = [(row.at.astimezone(UTC), row.wanted) for row in hours_of(name, forecast.at)][
            -PAST_WEEKS * WEEK :
        ]
        price = shelf.on(now).get((name, USUAL_TIER))
        plain = price.rate(UNITS_PER_GPU).plain if price else None
        found.append(
            ClassCapacity(
                name,
                forecast.gpu_class.label,
                there,
                plain,
                price.currency if price else "",
                [
                    *_past_weeks(past, there),
                    *_coming_weeks(forecast.at.astimezone(UTC), forecast.middle, forecast.high, there),
                ],
                [_more(each, forecast.middle, forecast.high, there, plain) for each in MORE],
                uses.get(name),
            )
        )
    return found


def _past_weeks(past: Sequence[tuple[datetime, float]], gpus: int) -> list[WeekShort]:
    found = []
    for first in range(len(past) % WEEK if len(past) > WEEK else 0, len(past), WEEK):
        part = past[first : first + WEEK]
        missing = shortage([value for _, value in part], gpus)
        total, peak = sum(missing), max(missing)
        found.append(WeekShort(part[0][0], len(part), total, total, peak, peak, is_past=True))
    return found


def _coming_weeks(at: datetime, middle: Sequence[float], high: Sequence[float], gpus: int) -> list[WeekShort]:
    found = []
    for first in range(0, len(middle), WEEK):
        usual = shortage(middle[first : first + WEEK], gpus)
        most = shortage(high[first : first + WEEK], gpus)
        found.append(
            WeekShort(
                at + timedelta(hours=first),
                len(usual),
                sum(usual),
                sum(most),
                max(usual),
                max(most),
                is_past=False,
            )
        )
    return found


def _more(
    count: int, middle: Sequence[float], high: Sequence[float], gpus: int, price: Decimal | None
) -> More:
    before, after = sum(shortage(middle, gpus)), sum(shortage(middle, gpus + count))
    used = (before - after) / (count * len(middle))
    return More(
        count,
        after,
        sum(shortage(high, gpus + count)),
        100 * used,
        None if price is None else (price * Decimal(str(round(used, 4)))).quantize(Decimal("0.01")),
    )
