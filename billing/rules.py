"""Arithmetic of money: exact decimals, no database access."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from itertools import pairwise
from uuid import UUID

from tenants.platform.errors import invalid
from tenants.platform.text import CURRENCIES, CURRENCY_PATTERN, currency_named, currency_sentence
from tenants.platform.words import refusal_text

UNITS_PER_GPU = 56_000
LEDGER_STEP = Decimal("0.000001")
CENT = Decimal("0.01")

_CURRENCY = re.compile(rf"^(?:{CURRENCY_PATTERN})\s*|\s*(?:{CURRENCY_PATTERN})$", re.IGNORECASE)
_GROUPED_DECIMAL = re.compile(r"[0-9]{1,3}(?:,[0-9]{3}){1,2}(?:\.[0-9]{1,6})?")
_PLAIN_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Period:
    """UTC days [starts, ends)."""

    starts: date
    ends: date

    @property
    def first_second(self) -> datetime:
        """Midnight UTC at which the period begins."""
        return midnight(self.starts)

    @property
    def last_second(self) -> datetime:
        """Midnight UTC at which the period ends, exclusive."""
        return midnight(self.ends)

    def cut_at(self, days: Iterable[date]) -> "list[Period]":
        """The periods between those of `days` that are inside this one."""
        inside = sorted({day for day in days if self.starts < day < self.ends})
        return [Period(*pair) for pair in pairwise([self.starts, *inside, self.ends])]


@dataclass(frozen=True, slots=True)
class BudgetOwner:
    """Whose budget it is: the platform's, the tenant's, of a lab or of a project, or of a campaign
    or person in a project."""

    tenant_id: UUID | None
    project_id: UUID | None = None
    campaign_id: UUID | None = None
    person_id: int | None = None
    lab_id: UUID | None = None

    @property
    def level(self) -> str:
        """The level in the tree."""
        if self.person_id is not None:
            return "person"
        if self.campaign_id is not None:
            return "campaign"
        if self.lab_id is not None:
            return "lab"
        if self.tenant_id is None:
            return "platform"
        return "tenant" if self.project_id is None else "project"


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """What a budget says. What is None stays as it is, or is the default of a new budget."""

    period: Period
    amount: Decimal
    warn_percent: int | None = None
    is_hard: bool | None = None
    is_repeated: bool | None = None
    rolls_over: bool | None = None


def midnight(day: date) -> datetime:
    """The first instant of a UTC day."""
    return datetime.combine(day, time(), UTC)


def month_of(day: date) -> Period:
    """The calendar month of `day`."""
    first = day.replace(day=1)
    return Period(first, month_after(first))


def month_after(day: date) -> date:
    """The first day of the month after `day`'s."""
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def period_after(period: Period) -> Period:
    """The next period: as many calendar months, or else as many days."""
    if period.starts.day == period.ends.day == 1:
        months = 12 * (period.ends.year - period.starts.year) + (period.ends.month - period.starts.month)
        ends = period.ends
        for _ in range(months):
            ends = month_after(ends)
        return Period(period.ends, ends)
    return Period(period.ends, period.ends + (period.ends - period.starts))


def ledger_amount(amount: Decimal) -> Decimal:
    """`amount` rounded half-even to the ledger's six places."""
    with localcontext(prec=60):
        return amount.quantize(LEDGER_STEP, rounding=ROUND_HALF_EVEN)


def cost_of(*, per_gpu_hour: Decimal, units: int, seconds: int) -> Decimal:
    """The cost of `units` for `seconds`, rounded half-even to six places.

    Raises ValueError for negative units, seconds or price.
    """
    if per_gpu_hour < 0 or units < 0 or seconds < 0:
        raise ValueError("price, units and seconds can't be negative")
    # The default precision of 28 digits would round large products before the division.
    with localcontext(prec=60):
        return ledger_amount(per_gpu_hour * units * seconds / (UNITS_PER_GPU * 3600))


def split_by_seconds(
    amount: Decimal, starts: datetime, ends: datetime, periods: Sequence[Period]
) -> tuple[Decimal, ...]:
    """Splits `amount` over the periods by the seconds of [starts, ends) inside each.

    The last period of the window gets the rounding difference, so the shares add up to `amount`
    exactly. The periods must cover the window (see `uncovered_from`) and not overlap.
    """
    seconds = [_seconds_inside(period, starts, ends) for period in periods]
    total = sum(seconds)
    shares: list[Decimal] = []
    taken, seen = Decimal(0), 0
    for inside in seconds:
        seen += inside
        # Rounding the running total keeps every share within one step of exact.
        upto = amount if seen == total else ledger_amount(amount * seen / total)
        shares.append(upto - taken)
        taken = upto
    return tuple(shares)


def share_inside(amount: Decimal, starts: datetime, ends: datetime, period: Period) -> Decimal:
    """The part of `amount` that is for the seconds of [starts, ends) inside the period."""
    total = int((ends - starts).total_seconds())
    return ledger_amount(amount * _seconds_inside(period, starts, ends) / total)


def uncovered_from(starts: datetime, ends: datetime, periods: Sequence[Period]) -> datetime | None:
    """The first instant of [starts, ends) that no period covers; periods sorted by start."""
    at = starts
    for period in periods:
        if period.first_second > at:
            break
        at = max(at, period.last_second)
    return at if at < ends else None


def _seconds_inside(period: Period, starts: datetime, ends: datetime) -> int:
    inside = min(ends, period.last_second) - max(starts, period.first_second)
    return max(0, int(inside.total_seconds()))


def amount_parse(text: str, *, param: str, currency: str, places: int = 2) -> Decimal:
    """Parses an amount as people write it: `1000`, `1000.50`, `1,800`, and in euros `€1,800.00`. Below
    10⁹, at most `places` places.

    Raises:
        Refused: `bad_amount` at `param` for anything else (signs, exponents, words, another currency,
            and commas that don't separate thousands).
    """
    if currency_named(text) not in ("", currency):
        raise invalid("bad_amount", currency_sentence(currency), param)
    text = _CURRENCY.sub("", text.strip()).strip()
    if _GROUPED_DECIMAL.fullmatch(text):
        text = text.replace(",", "")
    if not _PLAIN_DECIMAL.fullmatch(text):
        raise invalid("bad_amount", refusal_text("bad_amount"), param)
    if len(text.partition(".")[2]) > places:
        raise invalid("bad_amount", refusal_text("amount_places", places=places), param)
    return Decimal(text)


def money_text(amount: Decimal, currency: str) -> str:
    """The amount as `€1,204.50`: rounded half-even to cents, with the sign in front."""
    sign = CURRENCIES.get(currency) or f"{currency} "
    # The sum turns a negative zero, which has a sign of its own, into zero.
    rounded = amount.quantize(CENT, rounding=ROUND_HALF_EVEN) + 0
    return f"\u2212{sign}{-rounded:,}" if rounded < 0 else f"{sign}{rounded:,}"


def units_text(count: int, unit: str) -> str:
    """Units of progress as `1,000 steps`."""
    return f"{count:,} {unit}{'s' * (count != 1 and not unit.endswith('s'))}"


def rate_text(amount: Decimal, currency: str) -> str:
    """A price as `€0.686`: all of its places, and at least cents."""
    if amount == amount.quantize(CENT):
        return money_text(amount, currency)
    sign = CURRENCIES.get(currency) or f"{currency} "
    return f"{sign}{amount.normalize():f}"


def cents_apart(amounts: Sequence[Decimal]) -> list[Decimal]:
    """The amounts in cents, so that they add up to their sum in cents: those that lose most by
    rounding down get the cents that are left."""
    total = sum(amounts, Decimal(0)).quantize(CENT, rounding=ROUND_HALF_EVEN)
    shown = [floor_to_cents(each) for each in amounts]
    left = int((total - sum(shown, Decimal(0))) / CENT)
    order = sorted(range(len(amounts)), key=lambda at: (shown[at] - amounts[at], at))
    for at in order[:left]:
        shown[at] += CENT
    return shown


def cents_of(amount: Decimal) -> Decimal:
    """`amount` rounded half-even to cents, as all pages show it."""
    return amount.quantize(CENT, rounding=ROUND_HALF_EVEN)


def cents_after(before: Decimal, amount: Decimal) -> Decimal:
    """The cents of an amount that follows `before`: what it adds to the rounded running sum.

    All amounts of a sequence add up to their rounded sum, and none changes when another follows.
    """
    return cents_of(before + amount) - cents_of(before)


def rest_in_cents(whole: Decimal, part: Decimal) -> Decimal:
    """What is left of `whole` in cents, so that it and the part, in cents, add up to it."""
    return cents_of(whole) - cents_of(part)


def floor_to_cents(amount: Decimal) -> Decimal:
    """`amount` rounded down to cents, for money that is available."""
    return amount.quantize(CENT, rounding=ROUND_FLOOR)


def ceil_to_cents(amount: Decimal) -> Decimal:
    """`amount` rounded up to cents, for money that is needed."""
    return amount.quantize(CENT, rounding=ROUND_CEILING)


def period_text(period: Period) -> str:
    """`November 2026` for a calendar month, else `3 Nov 2026 to 17 Nov 2026`."""
    if period == month_of(period.starts):
        return f"{period.starts:%B %Y}"
    last = date.fromordinal(period.ends.toordinal() - 1)
    return f"{period.starts.day} {period.starts:%b %Y} to {last.day} {last:%b %Y}"
