"""Lines of a statement, and their export in the columns of FOCUS 1.2. Writes no rows."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from io import StringIO
from uuid import UUID

from billing.rules import CENT, LEDGER_STEP, midnight, month_after

ZERO = Decimal(0)
# A spreadsheet would run a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class StatementLine:
    """A charge or a correction of a booking. `exact` is the ledger's amount."""

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

    @property
    def amount(self) -> Decimal:
        """The amount of the line: the exact one, rounded half-even to cents."""
        return self.exact.quantize(CENT, rounding=ROUND_HALF_EVEN)

    @property
    def is_correction(self) -> bool:
        """Whether an operator has corrected an earlier charge."""
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
    def peak_hours(self) -> Decimal | None:
        """Those of the paid hours that were in peak hours; None without any."""
        if not self.surcharge or self.peak_per_hour <= self.per_hour:
            return None
        return (self.surcharge / (self.peak_per_hour - self.per_hour)).quantize(LEDGER_STEP)

    def parts(self) -> "tuple[StatementLine, ...]":
        """The line, divided by price; the exact amounts add up to that of the line."""
        if self.peak_hours is None:
            return (self,)
        rise = self.peak_per_hour - self.per_hour
        exact = min(self.exact, (self.surcharge * self.peak_per_hour / rise).quantize(LEDGER_STEP))
        peak = replace(self, per_hour=self.peak_per_hour, surcharge=ZERO, exact=exact)
        rest = replace(self, surcharge=ZERO, exact=self.exact - exact)
        return (rest, peak) if rest.exact else (peak,)


@dataclass(slots=True)
class Totals:
    """Running sums of lines: `amount` is the sum of the rounded lines, to the last digit."""

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


STATEMENT_COLUMNS = (
    "at", "booking", "name", "project", "person", "campaign", "tier", "gpu_class", "kind", "hours",
    "peak_hours", "surcharge", "amount", "exact", "currency", "note", "fee",
)  # fmt: skip


def statement_csv(lines: Iterable[StatementLine]) -> Iterator[str]:
    """The lines as CSV, with a last row that has their sums."""
    yield csv_row(STATEMENT_COLUMNS)
    total, currency = Totals(), ""
    for line in lines:
        total.add(line)
        currency = line.currency
        yield csv_row(_statement_row(line))
    sums = {"at": "total", "amount": total.amount, "exact": total.exact, "currency": currency}
    yield csv_row([sums.get(name, "") for name in STATEMENT_COLUMNS])


def focus_csv(
    lines: Iterable[StatementLine], tenant: tuple[str, str], month: date
) -> Iterator[str]:
    """The lines in the columns of FOCUS 1.2. `tenant` is its slug and name."""
    yield csv_row(FOCUS_COLUMNS)
    for line in lines:
        for part in line.parts():
            row = _focus_row(part, tenant, month)
            yield csv_row([row.get(name, "") for name in FOCUS_COLUMNS])


def csv_row(cells: Iterable[object]) -> str:
    """One row of CSV, with cells that no spreadsheet takes for a formula."""
    file = StringIO()
    csv.writer(file, lineterminator="\r\n").writerow([_cell(each) for each in cells])
    return file.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _statement_row(line: StatementLine) -> list[object]:
    return [
        instant_text(line.at), line.booking, line.name, line.project, line.person, line.campaign,
        line.tier, line.gpu_class, line.kind, line.hours, line.peak_hours, line.surcharge,
        line.amount, line.exact, line.currency, line.note, line.fee,
    ]  # fmt: skip


def instant_text(moment: datetime) -> str:
    """The moment as FOCUS writes it: `2026-11-21T14:00:00Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


FOCUS_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType",
    "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId",
    "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory",
    "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
)  # fmt: skip
PROVIDER = "GPU Portal"
FEES = {"late_share": "Late cancellation", "no_show": "No-show"}
"""Names of fees."""


def _focus_row(line: StatementLine, tenant: tuple[str, str], month: date) -> dict[str, object]:
    after = month_after(month)
    tags = {**line.labels, "campaign": line.campaign, "person": line.person, "tier": line.tier}
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), line.exact),
        "BillingAccountId": tenant[0],
        "BillingAccountName": tenant[1],
        "BillingAccountType": "Tenant",
        "BillingCurrency": line.currency,
        "BillingPeriodStart": instant_text(midnight(month)),
        "BillingPeriodEnd": instant_text(midnight(after)),
        "ChargeCategory": "Purchase" if line.fee else "Usage",
        "ChargeClass": "Correction" if line.is_correction else "",
        "ChargeDescription": line.note or f"{FEES.get(line.fee, 'GPU time')} of {line.booking}",
        "ChargeFrequency": "One-Time" if line.fee else "Usage-Based",
        "ChargePeriodStart": instant_text(midnight(min(line.day, line.at.astimezone(UTC).date()))),
        "ChargePeriodEnd": instant_text(_midnight_after(line.at)),
        "InvoiceId": f"{tenant[0]}-{month:%Y-%m}",
        "InvoiceIssuerName": PROVIDER,
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceId": line.booking,
        "ResourceName": line.name or line.booking,
        "ResourceType": "Booking",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU booking",
        "ServiceSubcategory": "Other (Compute)",
        "SkuId": line.fee or f"{line.gpu_class}/{line.tier}",
        "SubAccountId": line.project,
        "SubAccountName": line.project,
        "SubAccountType": "Project",
        "Tags": json.dumps({key: value for key, value in tags.items() if value}),
        **_prices(line),
    }


def _prices(line: StatementLine) -> dict[str, object]:
    """Quantities and unit prices, empty for corrections as FOCUS says. A fee is bought once."""
    if line.fee:
        return {
            "PricingQuantity": 1,
            "PricingUnit": "Fees",
            **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), line.exact),
            "PricingCategory": "Standard",
            "SkuPriceId": f"{line.fee}/{line.exact:f}",
        }
    if line.hours is None:
        return {}
    return {
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), line.hours),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "Hours"),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), line.per_hour),
        "PricingCategory": "Standard",
        "SkuPriceId": f"{line.gpu_class}/{line.tier}/{line.per_hour:f}",
    }


def _midnight_after(moment: datetime) -> datetime:
    return midnight(moment.astimezone(UTC).date() + timedelta(days=1))
