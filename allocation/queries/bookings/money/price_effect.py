"""What a month would have cost at other prices, by project: the same use, the same arithmetic."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any

from django.db import connection

from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from billing.price_books import CurrentPrice
from billing.price_lines import PriceLine, line_seconds, lines_read
from billing.rates import NO_PEAKS, PeakHours, Rate, Spell, peak_hours
from billing.rules import Period, month_of

ZERO = Decimal(0)
HOUR = 3600
READ_AT_ONCE = 5_000

# Charges of GPU time only: fees and corrections are in both sums as they are.
_CHARGES = """
SELECT n.name, p.name, t.kind, t.fee, t.amount, t.surcharge, t.at, b.price_per_hour,
       b.price_lines::text,
       b.peak_surcharge, b.peak_zone, b.peak_weekly::text, b.planned_class, b.tier_id,
       (b.ask->>'count')::int, b.ask->>'profile', (b.ask->>'share')::int,
       CASE WHEN jsonb_array_length(coalesce(nullif(b.ask->'groups', 'null'), '[]')) > 0
            THEN b.ask::text ELSE '' END,
       least(coalesce(b.released_at, b.ended_at, t.at), t.at)
FROM billing_transfer t
JOIN billing_budget own
  ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
JOIN tenants_project p ON p.id = own.project_id
JOIN tenants_tenant n ON n.id = own.tenant_id
LEFT JOIN allocation_booking b ON b.id = t.reference
WHERE t.at >= %(starts)s AND t.at < %(ends)s AND t.reference IS NOT NULL
  AND t.kind IN ('settle', 'charge', 'reverse')
"""


@dataclass(frozen=True, slots=True)
class ProjectEffect:
    """A project's bill of the month, and what the same use costs at the other prices."""

    tenant: str
    project: str
    old: Decimal
    new: Decimal

    @property
    def change(self) -> Decimal:
        """How much more the new bill is."""
        return self.new - self.old


@dataclass(frozen=True, slots=True)
class PriceEffect:
    """The effect on a month by project, the largest change first. `unpriced`: charges whose class
    or tier has no price among the new ones; they count as they are."""

    month: Period
    projects: tuple[ProjectEffect, ...]
    charges: int
    unpriced: int

    @property
    def old(self) -> Decimal:
        """The bills of all projects."""
        return sum((each.old for each in self.projects), ZERO)

    @property
    def new(self) -> Decimal:
        """The same use at the new prices."""
        return sum((each.new for each in self.projects), ZERO)

    @property
    def change(self) -> Decimal:
        """How much more all new bills are."""
        return self.new - self.old


def last_month(now: datetime) -> Period:
    """The calendar month before that of `now`, in UTC."""
    first = now.astimezone(UTC).date().replace(day=1)
    return month_of(first - timedelta(days=1))


def price_effect(prices: Mapping[tuple[str, str], CurrentPrice], month: Period) -> PriceEffect:
    """Recomputes each charge of GPU time of the month at these prices, by (class, tier).

    The seconds of a charge follow from its amount and the booking's price, as a statement has them.
    Their peak part is that of the charge where the peak hours are the same; otherwise the time is
    taken to end with the run. Run it in an operator's transaction.
    """
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [ZERO, ZERO])
    charges = unpriced = 0
    rates = _Rates(prices)
    for row in _charges(month):
        charges += 1
        signed = -row.amount if row.kind == "reverse" else row.amount
        new = signed
        if row.kind == "settle" and not row.fee and row.per_hour:
            rate = rates.of(row)
            unpriced += rate is None
            new = signed if rate is None else rate.cost(row.spell(rate.hours))
        elif row.fee == "setup":
            new = rates.setup_of(row, signed)
        both = sums[row.tenant, row.project]
        both[0] += signed
        both[1] += new
    found = [ProjectEffect(*names, *both) for names, both in sums.items()]
    found.sort(key=lambda each: (-abs(each.change), each.tenant, each.project))
    return PriceEffect(month, tuple(found), charges, unpriced)


@dataclass(frozen=True, slots=True)
class _Charge:
    tenant: str
    project: str
    kind: str
    fee: str
    amount: Decimal
    surcharge: Decimal
    at: datetime
    per_hour: Decimal | None
    lines: str
    peak_more: Decimal
    zone: str
    weekly: str
    gpu_class: str
    tier: str
    count: int
    profile: str | None
    share: int | None
    mixed: str
    """The whole request of a booking of several groups."""
    ends: datetime

    def spell(self, hours: PeakHours) -> Spell:
        """Its seconds, with those that are in these peak hours."""
        if self.per_hour is None:
            return Spell()
        lines = _lines_of(self.lines) or (PriceLine(HOUR, self.per_hour),)
        seconds = line_seconds(lines, self.amount - self.surcharge)
        if not hours.weekly:
            return Spell(seconds)
        if hours == _hours_of(self.zone, self.weekly):
            peak = round(self.surcharge * HOUR / self.peak_more) if self.peak_more else 0
            if self.peak_more:
                return Spell(seconds, min(seconds, peak))
        return hours.spell(self.ends - timedelta(seconds=seconds), self.ends)


class _Rates:
    """The new rate of a booking, by what decides it."""

    def __init__(self, prices: Mapping[tuple[str, str], CurrentPrice]) -> None:
        self._prices = prices
        self._found: dict[tuple[object, ...], Rate | None] = {}

    def of(self, row: _Charge) -> Rate | None:
        """The rate of the booking of a charge; None without a price."""
        key = row.gpu_class, row.tier, row.count, row.profile, row.share, row.mixed
        if key not in self._found:
            rates = [self._of_part(part, row.tier) for part in _parts(row)]
            known = [rate for rate in rates if rate is not None]
            self._found[key] = _together(known) if len(known) == len(rates) else None
        return self._found[key]

    def setup_of(self, row: _Charge, present: Decimal) -> Decimal:
        """The new set-up fee of a booking; the present one without a price."""
        price = self._prices.get((row.gpu_class, row.tier))
        return present if price is None else price.setup

    def _of_part(self, part: AskDocument, tier: str) -> Rate | None:
        price = self._prices.get((part.classes[0], tier))
        units = ask_units(part).get(part.classes[0])
        if price is None or not units:
            return None
        return price.of(part.profile, part.count, units).rate(units)


def _parts(row: _Charge) -> tuple[AskDocument, ...]:
    """The groups of the booking, each as a request of its own."""
    if row.mixed:
        return AskDocument.from_json(json.loads(row.mixed)).parts
    return (
        AskDocument(
            row.count,
            (row.gpu_class,),
            row.profile,
            "any",
            required=False,
            duration=HOUR,
            share=row.share,
        ),
    )


def _together(rates: Sequence[Rate]) -> Rate:
    hours = next((rate.hours for rate in rates if rate.peak != rate.plain), rates[0].hours)
    plain, peak = (
        sum((price(rate) for rate in rates), ZERO) for price in (attrgetter("plain"), attrgetter("peak"))
    )
    return Rate(plain, peak, hours)


@lru_cache(maxsize=1024)
def _hours_of(zone: str, weekly: str) -> PeakHours:
    entries = json.loads(weekly)
    return peak_hours(zone, entries) if entries else NO_PEAKS


@lru_cache(maxsize=1024)
def _lines_of(lines: str) -> tuple[PriceLine, ...]:
    return lines_read(json.loads(lines))


def _charges(month: Period) -> Iterator[_Charge]:
    facts: dict[str, Any] = {"starts": month.first_second, "ends": month.last_second}
    with connection.chunked_cursor() as cursor:
        cursor.execute(_CHARGES, facts)
        while rows := cursor.fetchmany(READ_AT_ONCE):
            yield from (_Charge(*row) for row in rows)
