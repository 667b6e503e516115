"""Rows of CSV that no spreadsheet runs as formulas."""

import csv
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO

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
