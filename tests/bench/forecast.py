"""How often the range of a forecast holds: `python -m tests.bench.forecast --runs 20`.

Three synthetic organisations, each drawn `--runs` times for 26 weeks: seasonal by weekday, bursty
(many idle days and few large ones), and growing. On each day from the eighth week on, the range of
the next 28 days is compared with what was spent then. No database.
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allocation.rules.forecast import spend_range
from tests.bench.machine import machine, report

DAYS, FIRST, HORIZON, STEP = 26 * 7, 8 * 7, 28, 3
LEAST, MOST = 0.7, 0.9
WEEK = (1.2, 1.3, 1.3, 1.2, 1.0, 0.5, 0.4)


def seasonal(draw: random.Random, day: int) -> float:
    """Weekdays differ, with noise of a quarter."""
    return 100 * WEEK[day % 7] * max(0.0, draw.gauss(1, 0.25))


def bursty(draw: random.Random, day: int) -> float:
    """Three in ten days have a run, of very different cost."""
    return draw.lognormvariate(4.5, 0.9) * WEEK[day % 7] if draw.random() < 0.3 else 5.0


def growing(draw: random.Random, day: int) -> float:
    """Half a percent more each day, with weekdays and noise."""
    return 60 * 1.005**day * WEEK[day % 7] * max(0.0, draw.gauss(1, 0.25))


KINDS: Mapping[str, Callable[[random.Random, int], float]] = {
    "seasonal": seasonal,
    "bursty": bursty,
    "growing": growing,
}


def held(kind: str, runs: int) -> dict[str, Any]:
    """How many of the ranges held the sum, and how wide they were."""
    tests = inside = below = 0
    widths, errors = [], []
    for run in range(runs):
        draw = random.Random(f"{kind} {run}")  # noqa: S311 (the same draws each time)
        days = [KINDS[kind](draw, day) for day in range(DAYS)]
        for now in range(FIRST, DAYS - HORIZON, STEP):
            found = spend_range(days[:now], now % 7, HORIZON)
            if found is None:
                continue
            spent = sum(days[now : now + HORIZON])
            tests += 1
            inside += found.low <= spent <= found.high
            below += spent < found.low
            widths.append((found.high - found.low) / spent)
            errors.append(abs(found.middle - spent) / spent)
    return {
        "tests": tests,
        "held": round(inside / tests, 3),
        "below": round(below / tests, 3),
        "above": round(1 - (inside + below) / tests, 3),
        "mean_width": round(sum(widths) / tests, 3),
        "mean_error": round(sum(errors) / tests, 3),
        "in_goal": LEAST <= inside / tests <= MOST,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Back-tests all three kinds."""
    began = time.perf_counter()
    found = {kind: held(kind, options.runs) for kind in KINDS}
    return {
        "bench": "forecast",
        "runs": options.runs,
        "horizon_days": HORIZON,
        "goal": [LEAST, MOST],
        "tenants": found,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.forecast", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None, help="folder for forecast.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("forecast", measure(options), options.out)


if __name__ == "__main__":
    main()
