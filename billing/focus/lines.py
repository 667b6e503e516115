"""Lines of a statement, their sums, and how the held time behind them was used."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from uuid import UUID

from billing.rules import CENT, LEDGER_STEP, cents_after, cents_of

ZERO = Decimal(0)
FEES = {
    "burst": "Rented machine",
    "late_share": "Late cancellation",
    "no_show": "No-show",
    "setup": "Set-up",
}
"""Names of fees."""


@dataclass(frozen=True, slots=True)
class LineUse:
    """How the held time of a booking in a month was used, in hours of whole GPUs.

    `unused_cost` is a part of what the booking is charged. `co2_kg` is None without a configured
    intensity.
    """

    unused_hours: Decimal
    unused_cost: Decimal
    kwh: Decimal
    co2_kg: Decimal | None


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A group of a booking of several classes, and its weight: what it costs for an hour."""

    gpu_class: str
    profile: str
    weight: Decimal


Uses = Mapping[str, LineUse]
"""The use of a month by the label of the booking."""


@dataclass(frozen=True, slots=True)
class StatementLine:
    """A charge or a correction of a booking. `exact` is the ledger's amount, and `before` the sum
    of the earlier ones of its booking."""

    transfer: UUID
    at: datetime
    kind: str
    booking: str
    name: str
    project: str
    person: str
    campaign: str
    tier: str
    gpu_class: str
    per_hour: Decimal
    peak_per_hour: Decimal
    surcharge: Decimal
    exact: Decimal
    currency: str
    note: str
    fee: str
    day: date
    labels: Mapping[str, str]
    profile: str = ""
    """Of a booking of slices."""
    ticket: str = ""
    shares: tuple[ClassShare, ...] = ()
    """The groups of a booking of several classes."""
    cents: Decimal | None = None
    """The amount of a line of one group: those of all groups add up to that of the booking."""
    before: Decimal = ZERO
    cores: int = 0
    """The cores of a booking without a GPU."""

    @property
    def amount(self) -> Decimal:
        """The amount of the line in cents. The lines of a booking add up to its exact sum, rounded,
        and a line does not change when another follows."""
        return cents_after(self.before, self.exact) if self.cents is None else self.cents

    @property
    def is_correction(self) -> bool:
        """Whether it corrects an earlier charge: by operators, or a fee that is given back."""
        return self.kind != "settle"

    @property
    def fee_name(self) -> str:
        """What a fee is for; empty for GPU time."""
        return FEES.get(self.fee, "")

    @property
    def hours(self) -> Decimal | None:
        """The paid hours of the booking; None for corrections, fees and free bookings."""
        if self.is_correction or self.fee or not self.per_hour:
            return None
        return ((self.exact - self.surcharge) / self.per_hour).quantize(LEDGER_STEP)

    @property
    def core_hours(self) -> Decimal | None:
        """The paid hours of all cores of a booking without a GPU; None for any other line."""
        return self.hours * self.cores if self.cores and self.hours is not None else None

    @property
    def peak_hours(self) -> Decimal | None:
        """Those of the paid hours that were in peak hours; None without any."""
        if not self.surcharge or self.peak_per_hour <= self.per_hour:
            return None
        return (self.surcharge / (self.peak_per_hour - self.per_hour)).quantize(LEDGER_STEP)

    def by_class(self) -> "tuple[StatementLine, ...]":
        """The line, divided by the groups of a booking of several classes.

        A fee is one line. Amounts, exact amounts and surcharges add up to those of the line.
        """
        total = sum((each.weight for each in self.shares), ZERO)
        if not total or self.fee:
            return (self,)
        found, left = list[StatementLine](), replace(self, shares=(), cents=self.amount)
        for share in self.shares[:-1]:
            part = self._of(share, share.weight / total)
            found.append(part)
            left = left._without(part)
        last = self.shares[-1]
        return (*found, replace(left, gpu_class=last.gpu_class, profile=last.profile))

    def _of(self, share: ClassShare, part: Decimal) -> "StatementLine":
        exact = (self.exact * part).quantize(LEDGER_STEP)
        return replace(
            self,
            gpu_class=share.gpu_class,
            profile=share.profile,
            per_hour=(self.per_hour * part).quantize(LEDGER_STEP),
            peak_per_hour=(self.peak_per_hour * part).quantize(LEDGER_STEP),
            surcharge=(self.surcharge * part).quantize(LEDGER_STEP),
            exact=exact,
            shares=(),
            cents=exact.quantize(CENT, rounding=ROUND_HALF_EVEN),
        )

    def _without(self, part: "StatementLine") -> "StatementLine":
        return replace(
            self,
            per_hour=self.per_hour - part.per_hour,
            peak_per_hour=self.peak_per_hour - part.peak_per_hour,
            surcharge=self.surcharge - part.surcharge,
            exact=self.exact - part.exact,
            cents=self.amount - part.amount,
        )

    def parts(self) -> "tuple[StatementLine, ...]":
        """The line, divided by price; the exact amounts add up to that of the line."""
        if self.peak_hours is None:
            return (self,)
        rise = self.peak_per_hour - self.per_hour
        exact = min(self.exact, (self.surcharge * self.peak_per_hour / rise).quantize(LEDGER_STEP))
        peak = replace(self, per_hour=self.peak_per_hour, surcharge=ZERO, exact=exact)
        rest = replace(self, surcharge=ZERO, exact=self.exact - exact)
        return (rest, peak) if rest.exact else (peak,)


def lines_by_class(lines: Iterable[StatementLine]) -> Iterator[StatementLine]:
    """The lines; those of a booking of several classes divided by class."""
    return (part for line in lines for part in line.by_class())


@dataclass(slots=True)
class Totals:
    """Running sums of lines: `amount` is the sum of the rounded lines, to the last digit. What the
    ledger has is `exact`, and in cents `rounded`."""

    amount: Decimal = ZERO
    exact: Decimal = ZERO
    lines: int = 0
    corrections: int = 0

    def add(self, line: StatementLine) -> None:
        """Counts a line."""
        self.amount += line.amount
        self.exact += line.exact
        self.lines += 1
        self.corrections += line.is_correction

    def remove(self, line: StatementLine) -> None:
        """Counts a line no longer."""
        self.amount -= line.amount
        self.exact -= line.exact
        self.lines -= 1
        self.corrections -= line.is_correction

    def add_sums(self, other: "Totals") -> None:
        """Counts the lines of other sums."""
        self.amount += other.amount
        self.exact += other.exact
        self.lines += other.lines
        self.corrections += other.corrections

    @property
    def rounding(self) -> Decimal:
        """What rounding each line to cents has added to the exact sum."""
        return self.amount - self.exact

    @property
    def rounded(self) -> Decimal:
        """The exact sum in cents, as budgets show it."""
        return cents_of(self.exact)
