"""Statements and FOCUS exports as CSV."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal

from billing.focus.csv_rows import csv_row
from billing.focus.lines import ZERO, LineUse, StatementLine, Totals, Uses, lines_by_class
from billing.focus.rows import FOCUS_COLUMNS, focus_rows

NO_USES: Uses = {}
STATEMENT_COLUMNS = (
    "at", "booking", "name", "project", "person", "campaign", "tier", "gpu_class", "kind", "hours",
    "peak_hours", "surcharge", "amount", "exact", "currency", "note", "fee", "ticket",
    "unused_hours", "unused_cost", "energy_kwh", "co2_kg",
)  # fmt: skip


def statement_csv(lines: Iterable[StatementLine], uses: Uses = NO_USES) -> Iterator[str]:
    """The lines as CSV, with a last row that has their sums.

    A booking of several classes has a line for each. The first line of a booking has its use.
    Bookings that have no charge in the month yet have a row of the kind `use` without an amount.
    """
    yield csv_row(STATEMENT_COLUMNS)
    total, currency, left = Totals(), "", dict(uses)
    for line in lines_by_class(lines):
        total.add(line)
        currency = line.currency
        yield csv_row(_cells(_charge(line) | _used(left.pop(line.booking, None))))
    for booking, use in sorted(left.items()):
        yield csv_row(_cells({"booking": booking, "kind": "use"} | _used(use)))
    sums = {"at": "total", "amount": total.amount, "exact": total.exact, "currency": currency}
    yield csv_row(_cells(sums | (_used(_sum(uses)) if uses else {})))


def focus_csv(
    lines: Iterable[StatementLine], tenant: tuple[str, str], month: date, uses: Uses = NO_USES
) -> Iterator[str]:
    """The lines in the columns of FOCUS 1.2. `tenant` is its slug and name."""
    yield csv_row(FOCUS_COLUMNS)
    for row in focus_rows(lines, tenant, month, uses):
        yield csv_row([row.get(name) for name in FOCUS_COLUMNS])


def _cells(facts: Mapping[str, object]) -> list[object]:
    return [facts.get(name) for name in STATEMENT_COLUMNS]


def _charge(line: StatementLine) -> dict[str, object]:
    names = (name for name in STATEMENT_COLUMNS if hasattr(line, name))
    return {name: getattr(line, name) for name in names}


def _used(use: LineUse | None) -> dict[str, object]:
    if use is None:
        return {}
    return {
        "unused_hours": use.unused_hours,
        "unused_cost": use.unused_cost,
        "energy_kwh": use.kwh,
        "co2_kg": use.co2_kg,
    }


def _sum(uses: Uses) -> LineUse:
    def added(name: str) -> Decimal:
        return sum((getattr(each, name) or ZERO for each in uses.values()), ZERO)

    has_co2 = any(each.co2_kg is not None for each in uses.values())
    return LineUse(
        added("unused_hours"),
        added("unused_cost"),
        added("kwh"),
        added("co2_kg") if has_co2 else None,
    )
