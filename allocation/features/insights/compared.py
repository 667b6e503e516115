"""The figures of two periods as rows, tiles and one sentence: a number, its change, and a pair of bars."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from allocation.features.insights.figures import Figures
from allocation.web.parts.times import length_words
from billing.rules import Period, money_text

FEW = 20
"""Of fewer bookings a median and a percentage say little."""
TIMES = 3
"""From here on a multiple is easier to read than a percentage."""
SAME = "no change"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A figure of both periods, by how much the first differs, and both in percent of the larger one."""

    name: str
    one: str
    other: str
    difference: str
    one_percent: Decimal = Decimal(0)
    other_percent: Decimal = Decimal(0)

    def drawn(self, one: Decimal | int | None, other: Decimal | int | None) -> "ComparedRow":
        """Returns the row with bars of two values; one that is not known has none."""
        most = max(one or 0, other or 0)
        if most <= 0:
            return self
        first, second = (Decimal(100 * max(0, each or 0)) / Decimal(most) for each in (one, other))
        return replace(self, one_percent=first, other_percent=second)


@dataclass(frozen=True, slots=True)
class Compared:
    """What a page shows of two periods: a sentence, its caveats, tiles, and groups of rows."""

    answer: str
    caveats: tuple[str, ...]
    tiles: tuple[tuple[str, str, str], ...]
    groups: tuple[tuple[str, tuple[ComparedRow, ...]], ...]


def compared(one: Figures, other: Figures, days: tuple[Period, Period], currency: str) -> Compared:
    """Compares the figures of `days[0]` with those of `days[1]`; an empty `currency` leaves money out."""
    use = tuple(_use(one, other))
    waits = tuple(_waits(one, other))
    money = tuple(_money_rows(one, other, currency)) if currency else ()
    groups = (
        ("Use", use),
        ("Bookings and waits", waits),
        ("Capacity", tuple(_capacity(one, other))),
        ("Money", money),
    )
    by_name = {row.name: row for row in (*use, *waits, *money)}
    shown = ("GPU-hours booked", "Busy", "Booked and not used", "Median wait", "Pauses", "Spend")
    tiles = (by_name[name] for name in shown if name in by_name)
    return Compared(
        _answer(one, other, days[1]),
        tuple(_caveats(one, other, days)),
        tuple((row.name, row.one, _tile_note(row)) for row in tiles),
        tuple((name, rows) for name, rows in groups if rows),
    )


def days_words(days: Period) -> str:
    """Returns the days as in "18 – 24 Nov 2026"; months and years that repeat are left out."""
    first, last = days.starts, days.ends - timedelta(days=1)
    if first == last:
        return f"{last.day} {last:%b %Y}"
    start = f"{first.day}"
    if (first.year, first.month) != (last.year, last.month):
        start += f" {first:%b}" + (f" {first.year}" if first.year != last.year else "")
    return f"{start} – {last.day} {last:%b %Y}"


def _answer(one: Figures, other: Figures, against: Period) -> str:
    before = days_words(against)
    if not one.gpu_hours and not other.gpu_hours:
        return "No GPU was booked in either period."
    if not other.gpu_hours:
        return f"{one.gpu_hours:,.1f} GPU-hours were booked, and none in {before}."
    change = _relative(one.gpu_hours, other.gpu_hours)
    more = "as many as" if change == SAME else change if "times" in change else f"{change} against"
    words = f"{one.gpu_hours:,.1f} GPU-hours were booked, {more} the {other.gpu_hours:,.1f} of {before}"
    if one.utilisation is None or other.utilisation is None:
        return f"{words}."
    return f"{words}; GPUs were {one.utilisation:.0f} % busy, and {other.utilisation:.0f} % then."


def _caveats(one: Figures, other: Figures, days: tuple[Period, Period]) -> Iterator[str]:
    if len({each.ends - each.starts for each in days}) > 1:
        yield "The periods have different lengths, so sums can't be compared."
    for each, period in ((one, days[0]), (other, days[1])):
        if 0 < each.began < FEW:
            began = f"{each.began} booking{'s' * (each.began != 1)}"
            yield f"Only {began} began in {days_words(period)}: its medians and percentages say little."


def _tile_note(row: ComparedRow) -> str:
    if row.difference in ("–", SAME):
        return f"{row.other} in the other period" if row.difference == "–" else SAME
    return f"{row.difference}, {row.other} before"


def _use(one: Figures, other: Figures) -> Iterator[ComparedRow]:
    yield _number("GPU-hours booked", one.gpu_hours, other.gpu_hours)
    yield _number("Core-hours without a GPU", one.core_hours, other.core_hours)
    yield _number("GPU-hours with readings of use", one.measured_gpu_hours, other.measured_gpu_hours)
    yield _number("Booked and not used", one.unused_gpu_hours, other.unused_gpu_hours)
    yield _number("Not used while somebody waited", one.dark_gpu_hours, other.dark_gpu_hours)
    yield _percent("Busy", one.utilisation, other.utilisation)
    yield _percent("SMs active", one.sm, other.sm)
    yield _percent("Tensor cores at work", one.tensor, other.tensor)
    yield _percent("Memory bandwidth in use", one.bandwidth, other.bandwidth)
    yield _number("Energy in kWh, where measured", one.kwh, other.kwh)
    if one.co2_kg is not None and other.co2_kg is not None:
        yield _number("CO₂ of it in kg", one.co2_kg, other.co2_kg)


def _waits(one: Figures, other: Figures) -> Iterator[ComparedRow]:
    yield _number("Bookings that began", Decimal(one.began), Decimal(other.began), places=0)
    yield _length("Median wait", one.wait_p50_seconds, other.wait_p50_seconds)
    yield _length("Wait of 19 in 20, at most", one.wait_p95_seconds, other.wait_p95_seconds)
    yield _percent("Announced starts that were kept", one.starts_kept_percent, other.starts_kept_percent)
    yield _number("Pauses", Decimal(one.pauses), Decimal(other.pauses), places=0)
    yield _number("Hours of work repeated by pauses", one.lost_hours, other.lost_hours)


def _capacity(one: Figures, other: Figures) -> Iterator[ComparedRow]:
    if one.capacity is None or other.capacity is None:
        return
    for name, first, second in (
        ("GPU-hours free while somebody waited", one.capacity.dark, other.capacity.dark),
        ("GPU-hours out of service", one.capacity.out_of_service, other.capacity.out_of_service),
    ):
        yield _number(name, Decimal(str(first)), Decimal(str(second)))


def _money_rows(one: Figures, other: Figures, currency: str) -> Iterator[ComparedRow]:
    yield _money("Spend", one.spend or Decimal(0), other.spend or Decimal(0), currency)
    busy = (one.price_per_busy_gpu_hour, other.price_per_busy_gpu_hour)
    yield _money("Price of a fully busy GPU-hour", *busy, currency)


def _number(name: str, one: Decimal, other: Decimal, *, places: int = 1) -> ComparedRow:
    row = ComparedRow(name, f"{one:,.{places}f}", f"{other:,.{places}f}", _relative(one, other, places))
    return row.drawn(one, other)


def _percent(name: str, one: Decimal | None, other: Decimal | None) -> ComparedRow:
    shown = ["not measured" if each is None else f"{each:.0f} %" for each in (one, other)]
    if one is None or other is None:
        return ComparedRow(name, shown[0], shown[1], "–")
    # Of the numbers that are shown, so that the three of a row agree.
    points = round(one) - round(other)
    return ComparedRow(name, shown[0], shown[1], _signed(points, " points") if points else SAME).drawn(
        one, other
    )


def _length(name: str, one: int | None, other: int | None) -> ComparedRow:
    shown = ["nothing began" if each is None else _words(each) for each in (one, other)]
    if one is None or other is None:
        return ComparedRow(name, shown[0], shown[1], "–")
    if one == other:
        return ComparedRow(name, shown[0], shown[1], SAME).drawn(one, other)
    sign = "+" if one > other else "\u2212"
    return ComparedRow(name, shown[0], shown[1], f"{sign}{_words(abs(one - other))}").drawn(one, other)


def _words(seconds: int) -> str:
    return length_words(seconds) if seconds else "0 min"


def _money(name: str, one: Decimal | None, other: Decimal | None, currency: str) -> ComparedRow:
    shown = ["not known" if each is None else money_text(each, currency) for each in (one, other)]
    if one is None or other is None:
        return ComparedRow(name, shown[0], shown[1], "–")
    return ComparedRow(name, shown[0], shown[1], _relative(one, other, 2)).drawn(one, other)


def _relative(one: Decimal, other: Decimal, places: int = 1) -> str:
    """By how much the first differs: a multiple, a percentage, or all of it where the second has nothing."""
    if round(one, places) == round(other, places):
        return SAME
    if not round(other, places):
        return f"+{one:,.{places}f}"
    if one >= TIMES * other:
        return f"{one / other:,.1f} times"
    return _signed(round(100 * (one / other - 1)), " %")


def _signed(value: int, unit: str) -> str:
    return f"{value:+,d}{unit}".replace("-", "\u2212")
