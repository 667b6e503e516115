"""Whether the lines of random months add up: `python -m tests.bench.months --months 100000`.

Each month has up to 40 lines: charges at any price and time, with peak hours and without, fees, and
corrections of both signs, of which some have unused time. Each amount is exact to six places. To
the last digit, the lines add up to the total, the totals of parts to that of the whole, the parts
of a line by price to the line, and the rows of the FOCUS export to the exact total. No database.
"""

import argparse
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from billing.focus import LineUse, StatementLine, Totals, focus_rows
from billing.rules import CENT, LEDGER_STEP, cost_of, ledger_amount
from tests.bench.machine import machine, report

MONTH = date(2026, 11, 1)
AT = datetime(2026, 11, 17, 10, tzinfo=UTC)
MOST_LINES, SHARES = 40, 7
ZERO = Decimal(0)
FEES = ("late_share", "no_show", "setup")


def _amount(draw: random.Random) -> Decimal:
    """From one step of the ledger to a million, small ones as often as large ones."""
    return draw.randint(1, 10 ** draw.randint(1, 12)) * LEDGER_STEP


def _line(draw: random.Random, number: int) -> StatementLine:
    kind = draw.choices(("settle", "charge", "reverse"), (18, 1, 1))[0]
    fee = draw.choice(FEES) if kind == "settle" and draw.random() < 0.1 else ""
    hourly = draw.randint(0, 10**8) * LEDGER_STEP
    peak_hourly, surcharge, exact = hourly, ZERO, _amount(draw)
    if kind == "settle" and not fee:
        seconds = draw.randint(1, 40 * 86_400)
        exact = cost_of(per_gpu_hour=hourly, units=56_000, seconds=seconds) or LEDGER_STEP
        if draw.random() < 0.4:
            peak_hourly += draw.randint(1, 10**7) * LEDGER_STEP
            more = peak_hourly - hourly
            surcharge = cost_of(per_gpu_hour=more, units=56_000, seconds=draw.randint(1, seconds))
            exact += surcharge
    return StatementLine(
        transfer=UUID(int=number),
        at=AT,
        kind=kind,
        booking=f"BK-{draw.randint(1, 20)}",
        name="",
        project=f"p{draw.randint(1, 5)}",
        person="",
        campaign="",
        tier="standard",
        gpu_class="h100",
        per_hour=hourly,
        peak_per_hour=peak_hourly,
        surcharge=surcharge,
        exact=-exact if kind == "reverse" else exact,
        currency="EUR",
        note="",
        fee=fee,
        day=AT.date(),
        labels={},
    )


def _uses(draw: random.Random, lines: Sequence[StatementLine]) -> Iterator[tuple[str, LineUse]]:
    """Some bookings have paid for time that was not used."""
    for line in lines:
        if line.hours is not None and draw.random() < 0.3:
            unused = ledger_amount(line.exact * draw.randint(0, 100) / 100)
            yield line.booking, LineUse(Decimal(1), unused, Decimal(1), None)


def faults(seed: int) -> list[str]:
    """What does not add up in the month of a seed."""
    draw = random.Random(seed)  # noqa: S311 (the same months each time)
    lines = [_line(draw, number) for number in range(draw.randint(0, MOST_LINES))]
    total, shares = Totals(), [Totals() for _ in range(SHARES)]
    for line in lines:
        total.add(line)
        shares[draw.randrange(SHARES)].add(line)
    joined = Totals()
    for share in shares:
        joined.add_sums(share)
    rows = focus_rows(lines, ("helix", "Helix"), MONTH, dict(_uses(draw, lines)))
    billed = sum((Decimal(str(row["BilledCost"])) for row in rows), ZERO)
    holds = {
        "lines": sum((line.amount for line in lines), ZERO) == total.amount,
        "cents": total.amount == total.amount.quantize(CENT),
        "rounding": total.exact + total.rounding == total.amount,
        "shares": joined == total,
        "parts": all(sum((p.exact for p in x.parts()), ZERO) == x.exact for x in lines),
        "focus": billed == total.exact,
    }
    return [name for name, is_so in holds.items() if not is_so]


def _faulty(seeds: range) -> list[tuple[int, list[str]]]:
    return [(seed, found) for seed in seeds if (found := faults(seed))]


def measure(months: int, workers: int) -> dict[str, Any]:
    """Draws the months and counts those that don't add up."""
    began, size = time.perf_counter(), -(-months // (8 * workers))
    chunks = [range(at, min(months, at + size)) for at in range(0, months, size)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        found = [each for part in pool.imap_unordered(_faulty, chunks) for each in part]
    return {
        "bench": "months",
        "months": months,
        "months_that_do_not_add_up": len(found),
        "first": sorted(found)[:5],
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints; status 1 if a month does not add up."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.months", description=__doc__)
    parser.add_argument("--months", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder for months.json")
    options = parser.parse_args()
    found = measure(options.months, options.workers)
    report("months", found, options.out)
    raise SystemExit(found["months_that_do_not_add_up"] > 0)


if __name__ == "__main__":
    main()
