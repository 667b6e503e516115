"""Rows of the FOCUS 1.2 export: values with their types, by the name of the column."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from billing.focus.lines import FEES, ZERO, LineUse, StatementLine, Uses, lines_by_class
from billing.rules import midnight, month_after

FOCUS_COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
    "x_EnergyKwh",
    "x_Co2Kg",
)
PROVIDER = "GPU Portal"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a line at one price, for time that was used or not."""

    line: StatementLine
    is_unused: bool
    use: LineUse | None


def focus_rows(
    lines: Iterable[StatementLine], tenant: tuple[str, str], month: date, uses: Uses
) -> Iterator[dict[str, object]]:
    """Yields the rows; their costs add up to those of the lines. `tenant` is its slug and name.

    A booking of several classes has rows for each of them.
    The unused time of a booking is taken from its first charges, as rows of their own.
    """
    unused = {booking: use.unused_cost for booking, use in uses.items()}
    energy = dict(uses)
    facts = _tenant_facts(tenant, month)
    for line in lines_by_class(lines):
        for part in _parts(line, unused, energy):
            yield facts | _row(part)


def _parts(line: StatementLine, unused: dict[str, Decimal], energy: dict[str, LineUse]) -> Iterator[_Part]:
    """Divides a line by price, and by whether the time was used."""
    if line.hours is None:
        yield _Part(line, is_unused=False, use=None)
        return
    for part in line.parts():
        rest = part
        idle = min(unused.get(line.booking, ZERO), part.exact)
        if idle > 0:
            unused[line.booking] -= idle
            rest = replace(part, exact=part.exact - idle)
        if rest.exact or not idle:
            yield _Part(rest, is_unused=False, use=energy.pop(line.booking, None))
        if idle > 0:
            idle_part = replace(part, exact=idle)
            yield _Part(idle_part, is_unused=True, use=energy.pop(line.booking, None))


def _tenant_facts(tenant: tuple[str, str], month: date) -> dict[str, object]:
    return {
        "BillingAccountId": tenant[0],
        "BillingAccountName": tenant[1],
        "BillingAccountType": "Tenant",
        "BillingPeriodStart": midnight(month),
        "BillingPeriodEnd": midnight(month_after(month)),
        "InvoiceId": f"{tenant[0]}-{month:%Y-%m}",
        "InvoiceIssuerName": PROVIDER,
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceType": "Booking",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU booking",
        "ServiceSubcategory": "Other (Compute)",
        "SubAccountType": "Project",
    }


def _row(part: _Part) -> dict[str, object]:
    line = part.line
    own = {"campaign": line.campaign, "person": line.person, "tier": line.tier}
    tags = {"ticket": line.ticket, **line.labels, **own}
    time = "Core time" if line.cores else "Unused GPU time" if part.is_unused else "GPU time"
    what = FEES.get(line.fee, time)
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), line.exact),
        "BillingCurrency": line.currency,
        "ChargeCategory": "Purchase" if line.fee else "Usage",
        "ChargeClass": "Correction" if line.is_correction else None,
        "ChargeDescription": line.note or (f"{what} of {line.booking}" if line.booking else what),
        "ChargeFrequency": "One-Time" if line.fee else "Usage-Based",
        "ChargePeriodStart": midnight(min(line.day, line.at.astimezone(UTC).date())),
        "ChargePeriodEnd": _midnight_after(line.at),
        **({"ServiceName": "CPU booking"} if line.cores else {}),
        "ResourceId": line.booking,
        "ResourceName": line.name or line.booking,
        "SkuId": line.fee or _sku(line),
        "SubAccountId": line.project,
        "SubAccountName": line.project,
        "Tags": {key: value for key, value in tags.items() if value},
        "x_EnergyKwh": part.use.kwh if part.use else None,
        "x_Co2Kg": part.use.co2_kg if part.use else None,
        **_prices(part),
    }


def _sku(line: StatementLine) -> str:
    """The class and tier, and the profile of slices, which can have a price of its own."""
    return "/".join(filter(None, (line.gpu_class, line.profile, line.tier)))


def _prices(part: _Part) -> dict[str, object]:
    """Quantities and unit prices, empty for corrections as FOCUS says. A fee is bought once."""
    line = part.line
    if line.is_correction:
        return {}
    if line.fee:
        return {
            "PricingQuantity": Decimal(1),
            "PricingUnit": "Fees",
            **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), line.exact),
            "PricingCategory": "Standard",
            "SkuPriceId": f"{line.fee}/{line.exact:f}",
        }
    if line.hours is None:
        return {}
    hours = line.hours if line.core_hours is None else line.core_hours
    price = line.per_hour / (line.cores or 1)
    return {
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), hours),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "Core-Hours" if line.cores else "Hours"),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), price),
        "CapacityReservationId": line.booking,
        "CapacityReservationStatus": "Unused" if part.is_unused else "Used",
        "PricingCategory": "Standard",
        "SkuPriceId": f"{_sku(line)}/{price:f}",
    }


def _midnight_after(moment: datetime) -> datetime:
    return midnight(moment.astimezone(UTC).date() + timedelta(days=1))
