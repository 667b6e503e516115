"""Lines of a statement, and their export in the columns of FOCUS 1.2. Writes no rows."""

from billing.focus.csv_files import csv_row, focus_csv, instant_text, statement_csv
from billing.focus.lines import (
    FEES,
    ClassShare,
    LineUse,
    StatementLine,
    Totals,
    Uses,
    lines_by_class,
)
from billing.focus.rows import FOCUS_COLUMNS, focus_rows

__all__ = [
    "FEES",
    "FOCUS_COLUMNS",
    "ClassShare",
    "LineUse",
    "StatementLine",
    "Totals",
    "Uses",
    "csv_row",
    "focus_csv",
    "focus_rows",
    "instant_text",
    "lines_by_class",
    "statement_csv",
]
