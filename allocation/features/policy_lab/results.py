"""Results of a trial as CSV and as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from billing.focus import csv_row
from billing.rules import LEDGER_STEP
from tenants.web.parts import counted

COLUMNS = (
    "kind",
    "name",
    "side",
    "asked",
    "started",
    "refused",
    "pauses",
    "wait_p50_seconds",
    "wait_p95_seconds",
    "wait_mean_seconds",
    "gpu_hours",
    "money",
    "change_seconds",
    "change_low_seconds",
    "change_high_seconds",
    "effect",
)
KINDS = {"tiers": "tier", "tenants": "organisation", "projects": "project"}
SIDES = ("active", "candidate")
HOUR, MINUTE = 3_600, 60
_SIDE_WORDS = {"active": "In force", "candidate": "Candidate"}
EFFECTS = {
    "longer": "waits longer",
    "shorter": "waits less",
    "none": "no effect",
    "unknown": "too few days",
}


def money_of(steps: int) -> str:
    """Returns an amount with its cents."""
    return f"{steps * LEDGER_STEP:.2f}"


def csv_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each tier, organisation and project under each version."""
    yield csv_row(COLUMNS)
    for key, kind in KINDS.items():
        for row in report[key]:
            for side in SIDES:
                yield csv_row([kind, row["name"], side, *_values(row, side)])


def _values(row: Mapping[str, Any], side: str) -> list[str]:
    found = row[side]
    hours = f"{found['gpu_seconds'] / HOUR:.3f}" if "gpu_seconds" in found else ""
    money = money_of(found["money"]) if "money" in found else ""
    counts = [found[each] for each in ("started", "refused", "pauses", "p50", "p95", "mean")]
    change = [row[each] for each in ("change", "low", "high", "effect")]
    values = [row["asked"], *counts, hours, money, *change]
    return ["" if each is None else str(each) for each in values]


def notes_of(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields how repeated work was estimated, and where headroom was played, in words."""
    for side in SIDES:
        repeated = report.get("repeated", {}).get(side, ())
        if repeated and (side == "active" or repeated != report["repeated"]["active"]):
            yield f"{_SIDE_WORDS[side]}: {'; '.join(map(_repeated_words, repeated))}."
        days = report.get("headroom_days", {}).get(side)
        if days:
            peaks = f"peaks were foreseen on {counted(days, 'day')}"
            yield f"{_SIDE_WORDS[side]}: {peaks}, in which GPUs are kept free."


def summary_text(report: Mapping[str, Any], days: int, *, is_other_demand: bool) -> str:
    """Returns in a sentence how a version treats the past of so many days otherwise."""
    differs, pauses = report["differs"], [report["totals"][side]["pauses"] for side in SIDES]
    past = f"{counted(report['bookings'], 'booking')} of {counted(days, 'day')}"
    past += " with a changed demand" if is_other_demand else ""
    if not (differs["longer"] or differs["shorter"]) and pauses[0] == pauses[1]:
        return f"Of {past}, none waits otherwise."
    text = f"Of {past}, {differs['shorter']} wait less and {differs['longer']} wait longer"
    if pauses[0] != pauses[1]:
        text += f"; {counted(pauses[1], 'pause')} instead of {pauses[0]}"
    return f"{text}."


def _repeated_words(row: Mapping[str, Any]) -> str:
    """Such as: a pause of spot repeats 20 min, the mean of 14 pauses of the tier."""
    if row["of"] == "nothing":
        return f"a pause of {row['tier']} repeats no work, because too few past pauses say how much"
    whose = "the tier" if row["of"] == "tier" else f"all tiers that pause by {row['method']}"
    minutes = round(row["seconds"] / MINUTE)
    return f"a pause of {row['tier']} repeats {minutes} min, the mean of {row['pauses']} pauses of {whose}"


def text_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields the results as a table, the version in force first."""
    days = (report["ends"] - report["begins"]) / 86_400
    yield f"{counted(report['bookings'], 'booking')} in {days:.1f} days, {counted(report['seeds'], 'seed')}"
    yield ""
    yield f"{'':<26}{'in force':>14}{'candidate':>14}"
    for label, name, scale in TOTALS:
        both = [report["totals"][side][name] for side in SIDES]
        shown = ["not measured" if each is None else f"{each / scale:,.1f}" for each in both]
        yield f"{label:<26}{shown[0]:>14}{shown[1]:>14}"
    yield from notes_of(report)
    for key, kind in KINDS.items():
        yield ""
        yield f"{kind:<28}{'asked':>7}{'p50 min':>16}{'p95 min':>16}  change"
        for row in report[key]:
            yield _line(row)


# Label, name and unit of each figure of the whole site.
TOTALS = (
    ("Bookings started", "started", 1),
    ("Refused", "refused", 1),
    ("Guarantees missed", "guarantees_missed", 1),
    ("Pauses", "pauses", 1),
    ("GPU-hours repeated", "lost_gpu_seconds", HOUR),
    ("GPU-hours", "gpu_seconds", HOUR),
    ("In use, percent", "utilisation_ppm", 10_000),
    ("Energy, kWh", "watt_hours", 1_000),
)


def _line(row: Mapping[str, Any]) -> str:
    sides = [row[side] for side in SIDES]
    p50, p95 = (" -> ".join(_minutes(side[each]) for side in sides) for each in ("p50", "p95"))
    change = f"{row['change'] / 60:+.1f} min, {EFFECTS[row['effect']]}"
    return f"{row['name']:<28}{row['asked']:>7}{p50:>16}{p95:>16}  {change}"


def _minutes(seconds: int | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.0f}"
