"""Series as pages and REST show them: their dates, and the dates that failed."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from allocation.models import Booking, Series
from allocation.rules.ask.when.recurrence_words import recurrence_words
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import OPEN, State
from allocation.words.reasons import sentence_for

UNSUCCESSFUL = (State.REFUSED, State.REJECTED, State.EXPIRED)


@dataclass(frozen=True, slots=True)
class SeriesDate:
    """One date: its booking, or the reason why there is none."""

    starts: datetime
    booking: Booking | None
    code: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class SeriesShown:
    """A series with its dates in order. `held` is the highest possible cost of its open dates."""

    series: Series
    words: str
    dates: tuple[SeriesDate, ...]
    held: Decimal
    currency: str

    @property
    def accepted(self) -> int:
        """The number of dates that were not refused."""
        return sum(1 for each in self.dates if not each.code)

    @property
    def is_open(self) -> bool:
        """Whether any date can still be cancelled."""
        return any(each.booking and each.booking.state in OPEN for each in self.dates)


def series_shown(series: Series) -> SeriesShown:
    """The series with its bookings. Runs inside a transaction of its tenant."""
    rows = list(
        Booking.objects.filter(series=series)
        .select_related("project", "tier", "owner")
        .order_by("starts", "id")
    )
    failed = [
        SeriesDate(datetime.fromisoformat(each["starts"]), None, each["code"], each["sentence"])
        for each in series.failed
    ]
    dates = sorted([*map(_date, rows), *failed], key=lambda each: each.starts)
    return SeriesShown(
        series=series,
        words=recurrence_words(recurrence_read(series.rule)),
        dates=tuple(dates),
        held=sum((row.hold_amount for row in rows if row.charged is None), Decimal(0)),
        currency=rows[0].currency if rows else "",
    )


def failed_dates_of(shown: SeriesShown) -> tuple[SeriesDate, ...]:
    """The dates that failed on their own and are the reason for refusing a whole series."""
    return tuple(each for each in shown.dates if each.code not in ("", "series_conflict"))


def local_start(series: Series, moment: datetime) -> datetime:
    """A start in the time zone of the series."""
    return moment.astimezone(ZoneInfo(series.zone))


def _date(row: Booking) -> SeriesDate:
    reason = row.reasons[0] if row.state in UNSUCCESSFUL and row.reasons else {}
    return SeriesDate(
        starts=row.starts or row.not_before,
        booking=row,
        code=reason.get("code", ""),
        sentence=sentence_for(row.ask, reason) if reason else "",
    )
