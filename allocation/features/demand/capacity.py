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
from billing.rules import UNITS_PER_GPU, money_text, rate_text

MORE = (1, 2, 4, 8)
PAST_WEEKS = 4
LEAST_MISSING = 0.05
"""GPU-hours that are shown as more than none."""


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
    worth: str = ""


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
    noun: str = "GPU"
    """What one unit of it is called: `GPU`, or `core` of a host."""

    @property
    def is_short(self) -> bool:
        """Returns whether any of its units were or may be missing."""
        return max(self.was, self.upper) >= LEAST_MISSING

    @property
    def price_words(self) -> str:
        """Returns the price of a GPU-hour in the usual tier; "" without one."""
        return "" if self.price is None else rate_text(self.price, self.currency)

    @property
    def was(self) -> float:
        """Returns the GPU-hours that were missing in the weeks that are known."""
        return sum(week.p50 for week in self.weeks if week.is_past)

    @property
    def expected(self) -> float:
        """Returns the GPU-hours that are expected to be missing in the coming weeks."""
        return sum(week.p50 for week in self.weeks if not week.is_past)

    @property
    def upper(self) -> float:
        """Returns their upper estimate."""
        return sum(week.p90 for week in self.weeks if not week.is_past)

    @property
    def peak(self) -> float:
        """Returns the most GPUs that are expected to be missing at once."""
        return max((week.peak_p50 for week in self.weeks if not week.is_past), default=0.0)


def capacity_answer(rows: Sequence[ClassCapacity]) -> str:
    """Returns in a sentence of which classes GPUs are expected to be missing."""
    short = [row.label for row in rows if row.expected >= LEAST_MISSING]
    if not short:
        return "No shortage is expected in the next two weeks"
    return f"A shortage is expected in the next two weeks: {', '.join(short)}"


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
        currency = price.currency if price else ""
        found.append(
            ClassCapacity(
                name,
                forecast.gpu_class.label,
                there,
                plain,
                currency,
                [
                    *_past_weeks(past, there),
                    *_coming_weeks(forecast.at.astimezone(UTC), forecast.middle, forecast.high, there),
                ],
                [_more(each, forecast.middle, forecast.high, there, (plain, currency)) for each in MORE],
                uses.get(name),
                forecast.gpu_class.noun,
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
    count: int,
    middle: Sequence[float],
    high: Sequence[float],
    gpus: int,
    price: tuple[Decimal | None, str],
) -> More:
    before, after = sum(shortage(middle, gpus)), sum(shortage(middle, gpus + count))
    used = (before - after) / (count * len(middle))
    plain, currency = price
    even = None if plain is None else (plain * Decimal(str(round(used, 4)))).quantize(Decimal("0.01"))
    return More(
        count,
        after,
        sum(shortage(high, gpus + count)),
        100 * used,
        even,
        "" if even is None else money_text(even, currency),
    )
