"""A statement as PDF: pages of a table, drawn one after the other.

A layout engine breaks a long table into pages in quadratic time; rows of one height need none.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import IO

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from billing.focus import StatementLine, Totals, lines_by_class
from billing.rules import money_text

GRID = colors.HexColor("#c9cfd9")
HEAD = colors.HexColor("#eef0f4")
WIDTHS = (24 * mm, 22 * mm, 44 * mm, 28 * mm, 28 * mm, 16 * mm, 24 * mm)
COLUMNS = ("Date, UTC", "Booking", "Name", "Person", "Class, tier", "Hours", "Amount")
NUMBERS_FROM = 5
LEFT, TOP, BOTTOM = 12 * mm, A4[1] - 16 * mm, 16 * mm
ROW = 5 * mm
PLAIN, BOLD, SIZE = "Helvetica", "Helvetica-Bold", 8
CORES = "Hours with a c are core-hours, of work without a GPU."
ROUNDING = "Lines are in cents: those of a booking add up to its sum. The total is the ledger's."


def statement_pdf(
    title: str,
    facts: Sequence[str],
    lines: Iterable[StatementLine],
    currency: str,
    file: IO[bytes],
    notes: Sequence[str] = (),
) -> None:
    """Writes a title, a line for each fact, the statement's lines, their sum in the currency, and notes."""
    pages, total, has_cores = _Pages(title, facts, file), Totals(), False
    for line in lines_by_class(lines):
        total.add(line)
        has_cores = has_cores or line.core_hours is not None
        pages.row(_cells(line))
    count = "1 line" if total.lines == 1 else f"{total.lines:,} lines"
    if total.rounded != total.amount:
        change = money_text(total.rounded - total.amount, currency)
        pages.row(("Rounding", "", "", "", "", "", change))
    pages.row(("Total", "", "", count, "", "", money_text(total.rounded, currency)), BOLD)
    notes = (*([CORES] if has_cores else []), *notes)
    exact = f"{ROUNDING} Without rounding it is {total.exact:f} {currency}."
    pages.end((exact, *notes))


class _Pages:
    """Pages with numbers, each with the head of the table."""

    def __init__(self, title: str, facts: Sequence[str], file: IO[bytes]) -> None:
        # Without `invariant` a file holds the time of its making, and two of one month differ.
        self._canvas = Canvas(file, pagesize=A4, invariant=1, pageCompression=1)
        self._canvas.setTitle(title)
        self._canvas.setAuthor("GPU Portal")
        self._title, self._number, self._at = title, 1, TOP
        self._text(title, BOLD, 16)
        for fact in facts:
            self._text(fact, PLAIN, 10)
        self._at -= ROW
        self._head()

    def row(self, cells: Sequence[str], font: str = PLAIN) -> None:
        """Draws a row, on a new page if this one is full."""
        if self._at < BOTTOM + ROW:
            self._turn()
            self._head()
        self._cells(cells, font)

    def end(self, notes: Sequence[str]) -> None:
        """Draws the notes and finishes the file."""
        self._at -= ROW
        for note in notes:
            if self._at < BOTTOM + ROW:
                self._turn()
            self._text(note, PLAIN, 9)
        self._number_page()
        self._canvas.save()

    def _text(self, text: str, font: str, size: int) -> None:
        self._at -= size + 4
        self._canvas.setFont(font, size)
        self._canvas.drawString(LEFT, self._at, _fitting(text, font, size, sum(WIDTHS)))

    def _head(self) -> None:
        self._canvas.setFillColor(HEAD)
        self._canvas.rect(LEFT, self._at - ROW, sum(WIDTHS), ROW, stroke=0, fill=1)
        self._canvas.setFillColor(colors.black)
        self._cells(COLUMNS, BOLD)

    def _cells(self, cells: Sequence[str], font: str) -> None:
        self._canvas.setFont(font, SIZE)
        left, base = LEFT, self._at - ROW + 1.6 * mm
        for number, (text, width) in enumerate(zip(cells, WIDTHS, strict=True)):
            shown = _fitting(text, font, SIZE, width - 2 * mm)
            if number >= NUMBERS_FROM:
                self._canvas.drawRightString(left + width - mm, base, shown)
            else:
                self._canvas.drawString(left + mm, base, shown)
            left += width
        self._at -= ROW
        self._canvas.setStrokeColor(GRID)
        self._canvas.setLineWidth(0.25)
        self._canvas.line(LEFT, self._at, LEFT + sum(WIDTHS), self._at)

    def _turn(self) -> None:
        self._number_page()
        self._canvas.showPage()
        self._number, self._at = self._number + 1, TOP

    def _number_page(self) -> None:
        self._canvas.setFont(PLAIN, SIZE)
        self._canvas.drawString(LEFT, BOTTOM / 2, self._title)
        right = LEFT + sum(WIDTHS)
        self._canvas.drawRightString(right, BOTTOM / 2, f"Page {self._number}")


def _cells(line: StatementLine) -> tuple[str, ...]:
    what = "Correction" if line.is_correction else f"{line.gpu_class}, {line.tier}"
    return (
        f"{line.at.astimezone(UTC):%Y-%m-%d %H:%M}",
        line.booking,
        line.name or line.note,
        line.person,
        line.fee_name or what,
        _hours(line),
        money_text(line.amount, line.currency),
    )


def _hours(line: StatementLine) -> str:
    if line.hours is None:
        return ""
    return f"{line.hours:.2f}" if line.core_hours is None else f"{line.core_hours:.2f} c"


def _fitting(text: str, font: str, size: int, width: float) -> str:
    """The text, cut to the width."""
    shown = text[:200]
    if stringWidth(shown, font, size) <= width:
        return shown
    while shown and stringWidth(f"{shown}…", font, size) > width:
        shown = shown[:-1]
    return f"{shown}…"
