"""What the page of figures says in words: tiles, one sentence, and rows of its tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from allocation.features.insights.capacity_hours import CapacityHours
from allocation.features.insights.figures import Figures
from allocation.features.insights.outcomes import UnitCost
from allocation.queries.bookings.money.spending import RENTED
from allocation.web.parts.times import length_words
from billing.rules import money_text
from tenants.web.parts import counted

MOST_UNITS = 20
# A cost is shown of the fewest units that cost so much.
COUNTS = (1, 1_000, 1_000_000, 1_000_000_000)
LEAST_AMOUNT = Decimal("0.1")


@dataclass(frozen=True, slots=True)
class NounRow:
    """A row of the table: a noun with its figures in words."""

    label: str
    found: Figures
    percent: Decimal
    waits: str
    spend: str


@dataclass(frozen=True, slots=True)
class UnitRow:
    """What units of progress of a workload cost, in words."""

    label: str
    unit: str
    runs: int
    units: str
    spend: str
    cost: str


def tiles_shown(total: Figures, before: Figures, currency: str) -> list[tuple[str, str, str]]:
    """The figures of the whole time, each with a note."""
    busy = unused = energy = "–"
    measured = unused_note = energy_note = "too little measured"
    if total.is_enough:
        measured = f"of {total.coverage:.0f} % of the hours"
        busy = "–" if total.utilisation is None else f"{total.utilisation:.0f} %"
        unused = f"{total.unused_gpu_hours:,.1f} h"
        unused_note = f"{100 * total.unused_gpu_hours / total.measured_gpu_hours:.0f} % of the measured hours"
    if total.energy_gpu_hours:
        energy, energy_note = f"{total.kwh:,.1f} kWh", f"of {total.energy_gpu_hours:,.1f} GPU-hours"
    if total.co2_kg is not None:
        energy_note += f", {total.co2_kg:,.1f} kg of CO₂"
    within = f"19 of 20 at most {length_shown(total.wait_p95_seconds)}" if total.began else "nothing began"
    last = ("Pauses", str(total.pauses), f"{total.lost_hours:,.1f} h of work repeated")
    if currency:
        per_hour = total.price_per_busy_gpu_hour
        note = "too little measured"
        if per_hour is not None:
            note = f"{money_text(per_hour, currency)} a busy GPU-hour"
        last = ("Spend", money_text(total.spend or Decimal(0), currency), note)
    cores = f"and {total.core_hours:,.1f} core-hours" if total.core_hours else ""
    notes = (_change(total.gpu_hours, before.gpu_hours), cores)
    return [
        ("GPU-hours", f"{total.gpu_hours:,.1f}", "; ".join(note for note in notes if note)),
        ("Busy", busy, measured),
        ("Reserved but unused", unused, unused_note),
        ("Energy", energy, energy_note),
        ("Median wait", length_shown(total.wait_p50_seconds), within),
        last,
    ]


def answer_shown(
    total: Figures, nouns: list[tuple[str, Figures]], names: dict[str, str], currency: str
) -> str:
    """The figures of the whole time in a few words: what they cost, how busy they were, and where most
    was not used."""
    booked = f"{total.gpu_hours:,.1f} GPU-hours booked"
    if currency and total.spend:
        booked += f", {money_text(total.spend, currency)} charged"
    if not total.is_enough or total.utilisation is None:
        return f"{booked}; too little is measured to say how busy they were."
    words = f"{booked}; GPUs were {total.utilisation:.0f} % busy"
    unused = total.unused_gpu_hours
    if not unused:
        return f"{words}, and all that was measured was used."
    name, most = max(nouns, key=lambda each: each[1].unused_gpu_hours)
    share = 100 * most.unused_gpu_hours / unused
    where = f", {share:.0f} % of it {names.get(name, name) or 'without a name'}" if len(nouns) > 1 else ""
    dark = total.dark_gpu_hours
    waited = f", {dark:,.1f} h of it while somebody waited" if dark else ""
    return f"{words}; {unused:,.1f} GPU-hours were not used{where}{waited}."


def units_shown(
    costs: Iterable[tuple[str, UnitCost]], charged: Decimal | None, currency: str
) -> tuple[list[UnitRow], str]:
    """What units of progress cost, by workload, and what part of the charges that is."""
    found = [(name, each, cost) for name, each in costs if (cost := _unit_cost(each, currency))]
    rows = [
        UnitRow(name, each.unit, each.runs, _amount(each.units), money_text(each.spend, currency), cost)
        for name, each, cost in found[:MOST_UNITS]
    ]
    with_progress = sum((each.spend for _, each, _ in found), Decimal(0))
    note = f"The hours of {counted(len(found), 'workload')} with progress cost"
    note += f" {money_text(with_progress, currency)}"
    note += "." if charged is None else f"; {money_text(charged, currency)} was charged in all."
    if len(found) > len(rows):
        note += f" The {len(rows)} that cost most are listed."
    return rows, note


def _unit_cost(found: UnitCost, currency: str) -> str:
    """The cost of as many units as are worth a cent or more; empty where none was done."""
    if found.cost is None:
        return ""
    count = next((each for each in COUNTS if found.cost * each >= LEAST_AMOUNT), COUNTS[-1])
    of = f"each {found.unit}" if count == 1 else f"{count:,} {found.unit}s"
    return f"{money_text(found.cost * count, currency)} for {of}"


def _amount(units: float) -> str:
    return f"{units:,.0f}" if units >= 10 else f"{units:,.1f}"


def _change(now: Decimal, before: Decimal) -> str:
    if not before:
        return "no GPU-hours before"
    change = round(100 * (now / before - 1))
    return f"{change:+d} %, {before:,.1f} before"


def went_shown(found: Figures) -> dict[str, Any]:
    """The GPU-hours of a class by where they went; what is left was idle while nobody waited."""
    hours = found.capacity or CapacityHours(0, 0, 0)
    booked = float(found.gpu_hours)
    idle = max(0.0, hours.there - hours.out_of_service - booked - hours.dark)
    shown = {"p-use": booked, "p-unused": hours.dark, "p-all": idle, "p-unknown": hours.out_of_service}
    parts, x = [], 0.0
    for css, value in shown.items():
        width = 100 * value / (sum(shown.values()) or 1)
        parts.append({"css": css, "x": f"{x:.1f}", "width": f"{width:.1f}"})
        x += width
    return {
        "booked": booked,
        "dark": hours.dark,
        "idle": idle,
        "out": hours.out_of_service,
        "there": hours.there,
        "parts": parts,
    }


def noun_row_shown(label: str, found: Figures, total: Figures, currency: str) -> NounRow:
    """A noun with its figures, and its part of all GPU-hours."""
    percent = 100 * found.gpu_hours / total.gpu_hours if total.gpu_hours else Decimal(0)
    lengths = (length_shown(found.wait_p50_seconds), length_shown(found.wait_p95_seconds))
    waits = " / ".join(lengths) if found.began else "–"
    spend = "–"
    if found.spend is not None:
        spend = money_text(found.spend, currency) if currency else f"{found.spend:,.2f}"
    # Machines that are rented cost money before a booking runs on them.
    nameless = RENTED if found.spend and not found.gpu_hours else "none"
    return NounRow(label or nameless, found, percent, waits, spend)


def length_shown(seconds: int | None) -> str:
    """A wait in words; – without one."""
    if seconds is None:
        return "–"
    return length_words(seconds) if seconds else "0 min"
