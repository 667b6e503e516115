"""A statement as PDF."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.units import mm
from reportlab.platypus import LongTable, Paragraph, SimpleDocTemplate, Spacer, TableStyle

from billing.focus import StatementLine, Totals
from billing.rules import money_text

GRID = colors.HexColor("#c9cfd9")
HEAD = colors.HexColor("#eef0f4")
# Longer tables take minutes to break into pages.
LONGEST = 3000
WIDTHS = (24 * mm, 20 * mm, 44 * mm, 28 * mm, 28 * mm, 18 * mm, 24 * mm)
COLUMNS = ("Date, UTC", "Booking", "Name", "Person", "Class, tier", "Hours", "Amount")


def statement_pdf(title: str, facts: Sequence[str], lines: Iterable[StatementLine]) -> bytes:
    """A title, a line for each fact, the lines of the statement, and their sum."""
    styles = getSampleStyleSheet()
    total, rows, currency = Totals(), [list(COLUMNS)], "EUR"
    for line in lines:
        total.add(line)
        currency = line.currency
        rows.append(_row(line))
    rows.append(
        ["Total", "", "", f"{total.lines} lines", "", "", money_text(total.amount, currency)]
    )
    table = LongTable(rows, colWidths=WIDTHS, repeatRows=1)
    table.setStyle(_STYLE)
    story: list[Any] = [Paragraph(escape(title), styles["Title"])]
    story += [Paragraph(escape(fact), styles["Normal"]) for fact in facts]
    story += [Spacer(1, 6 * mm), table, Spacer(1, 4 * mm)]
    story.append(
        Paragraph(
            escape(
                "Each line is rounded half-even to cents; the total is the sum of the lines."
                f" Without rounding it is {total.exact:f} {currency}."
            ),
            styles["Normal"],
        )
    )
    file = BytesIO()
    # Without this a file holds the time of its making, and two of one month would differ.
    document = SimpleDocTemplate(file, pagesize=A4, title=title, author="GPU Portal", invariant=1)
    document.build(story)
    return file.getvalue()


def _row(line: StatementLine) -> list[str]:
    what = "Correction" if line.is_correction else f"{line.gpu_class}, {line.tier}"
    what = line.fee_name or what
    return [
        f"{line.at.astimezone(UTC):%Y-%m-%d %H:%M}",
        line.booking,
        _short(line.name or line.note, 26),
        _short(line.person, 16),
        _short(what, 17),
        "" if line.hours is None else f"{line.hours:.2f}",
        money_text(line.amount, line.currency),
    ]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


_STYLE = TableStyle(
    [
        ("FONTSIZE", (0, 0), (-1, -1), 8),
        ("BACKGROUND", (0, 0), (-1, 0), HEAD),
        ("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold"),
        ("FONTNAME", (0, -1), (-1, -1), "Helvetica-Bold"),
        ("LINEBELOW", (0, 0), (-1, -1), 0.25, GRID),
        ("ALIGN", (5, 0), (-1, -1), "RIGHT"),
    ]
)
