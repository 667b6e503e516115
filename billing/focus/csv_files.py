"""Statements and FOCUS exports as CSV."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO

from billing.focus.lines import ZERO, LineUse, StatementLine, Totals, Uses, lines_by_class
from billing.focus.rows import FOCUS_COLUMNS, focus_rows

# A spreadsheet would run a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_row(cells: Iterable[object]) -> str:
    """One row of CSV, with cells that no spreadsheet takes for a formula."""
    file = StringIO()
    csv.writer(file, lineterminator="\r\n").writerow([_cell(each) for each in cells])
    return file.getvalue()


def instant_text(moment: datetime) -> str:
    """The moment as FOCUS writes it: `2026-11-21T14:00:00Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cell(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


NO_USES: Uses = {}
STATEMENT_COLUMNS = (
    "at",
    "booking",
    "name",
    "project",
    "person",
    "campaign",
    "tier",
    "gpu_class",
    "kind",
    "hours",
    "peak_hours",
    "surcharge",
    "amount",
    "exact",
    "currency",
    "note",
    "fee",
    "ticket",
    "unused_hours",
    "unused_cost",
    "energy_kwh",
    "co2_kg",
    "core_hours",
)


def statement_csv(lines: Iterable[StatementLine], uses: Uses = NO_USES) -> Iterator[str]:
    """The lines as CSV, with a last row that has the ledger's sums. If the lines in cents have
    another sum, a row before it has the difference.

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
    if total.rounded != total.amount:
        change = total.rounded - total.amount
        yield csv_row(_cells({"at": "rounding", "kind": "rounding", "amount": change}))
    sums = {"at": "total", "amount": total.rounded, "exact": total.exact, "currency": currency}
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
