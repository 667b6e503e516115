"""Forecasts of demand against seasonal naive: `python -m tests.bench.demand --data DIR`.

Lists: Philly (70 days), openb (its last 42 days), and ten weeks of the demo's people. From an origin
every `--step` hours, each hour from 1 to 167 ahead is forecast and compared with what came. The loss
is the mean pinball loss of the quantiles 0.1, 0.5 and 0.9. Seasonal naive has the quantiles of the
same hour in the last four weeks (of fewer where the list is younger). No database.
"""

import argparse
import csv
import gzip
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import numpy as np

from allocation.features.demand.model import (
    DAY,
    HIGH,
    LOW,
    MIDDLE,
    WEEK,
    Band,
    Floats,
    History,
    level_ahead,
    requests_ahead,
)
from tests.bench.machine import machine, report
from tests.servers.servers import Servers

PARTS = np.asarray((LOW, MIDDLE, HIGH))[:, None]
HORIZON = WEEK - 1
AHEAD = np.arange(1, HORIZON + 1)
FIRST = 4 * WEEK
GROUPS = ((1, 6), (7, 24), (25, 72), (73, HORIZON))
GOALS = {"requested": 0.15, "in_use": 0.40}
FORECASTS: Mapping[str, Callable[[History, int], Band]] = {
    "requested": requests_ahead,
    "in_use": level_ahead,
}
# Before this day the list has a few tasks a week.
OPENB_FIRST_DAY = 107


@dataclass(frozen=True, slots=True)
class Job:
    """GPUs that somebody asked for at a time and had until another, in hours of the list."""

    starts: float
    ends: float
    gpus: float


def hours_of(jobs: Iterable[Job], hours: int) -> dict[str, Floats]:
    """The GPUs that were asked for in each hour, and those in use on average."""
    rows = list(jobs)
    starts = np.asarray([each.starts for each in rows])
    ends = np.asarray([each.ends for each in rows])
    gpus = np.asarray([each.gpus for each in rows])
    requested = np.zeros(hours)
    within = (starts >= 0) & (starts < hours)
    np.add.at(requested, starts[within].astype(int), gpus[within])
    return {"requested": requested, "in_use": _since(starts, gpus, hours) - _since(ends, gpus, hours)}


def _since(times: Floats, gpus: Floats, hours: int) -> Floats:
    """The mean in each hour of what began at the times, without an end."""
    times = np.clip(times, 0, hours)
    whole = times.astype(int)
    changes = np.zeros(hours + 2)
    np.add.at(changes, whole, gpus * (1 - (times - whole)))
    np.add.at(changes, whole + 1, gpus * (times - whole))
    return np.asarray(np.cumsum(changes)[:hours])


def philly(path: Path) -> tuple[datetime, dict[str, Floats]]:
    """The jobs of Philly's file, from midnight of its first day on."""
    rows = _rows(path)
    began = [datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC) for row in rows]
    first = min(began).replace(hour=0, minute=0, second=0)
    jobs = []
    for at, row in zip(began, rows, strict=True):
        starts = (at - first) / timedelta(hours=1)
        jobs.append(Job(starts, starts + float(row["duration"] or 0) / 3600, float(row["num_gpus"])))
    return first, hours_of(jobs, int(max(each.starts for each in jobs)) // DAY * DAY)


def openb(path: Path) -> tuple[datetime, dict[str, Floats]]:
    """The tasks of an openb list that have GPUs. Its first day is nobody's Monday."""
    rows = [row for row in _rows(path) if int(row["num_gpu"])]
    last = max(float(row["creation_time"]) for row in rows)
    first = OPENB_FIRST_DAY * DAY
    jobs = [
        Job(
            float(row["creation_time"]) / 3600 - first,
            float(row["deletion_time"] or last) / 3600 - first,
            int(row["num_gpu"]) * int(row["gpu_milli"]) / 1000,
        )
        for row in rows
    ]
    return datetime(2024, 1, 1, tzinfo=UTC), hours_of(jobs, int(last / 3600 - first) // DAY * DAY)


def demo(weeks: int = 10) -> tuple[datetime, dict[str, Floats]]:
    """What the demo's people ask for in some weeks, of all classes together."""
    os.environ.update(Servers().environment())
    django.setup()
    from devtools.demo.week import day_plans  # noqa: PLC0415 (needs the settings)

    first = datetime(2026, 9, 7, tzinfo=UTC)
    edge = first + timedelta(weeks=weeks)
    jobs = []
    for number in range(weeks * 7):
        for plan in day_plans((first + timedelta(days=number)).date(), edge):
            count, shape = plan.line.text.split()[:2]
            gpus = int(count) * (int(shape[0]) / 7 if "g." in shape else 1.0)
            starts, ends = ((at - first) / timedelta(hours=1) for at in (plan.starts, plan.ends))
            if plan.fate not in ("cancelled", "absent"):
                jobs.append(Job(starts, ends, gpus))
    return first, hours_of(jobs, weeks * WEEK)


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def naive(values: Floats) -> Floats:
    """The quantiles of the same hour in the last four weeks that are known."""
    targets = len(values) + AHEAD - 1
    past = [values[targets - back * WEEK] for back in range(1, 5) if len(values) >= back * WEEK]
    return np.asarray(np.quantile(np.stack(past), (LOW, MIDDLE, HIGH), axis=0))


def pinball(came: Floats, found: Floats) -> Floats:
    """The mean loss of the quantiles, by hour ahead."""
    missed = came - found
    return np.asarray(np.maximum(PARTS * missed, (PARTS - 1) * missed).mean(0))


def compared(kind: str, begins: datetime, values: Floats, first: int, step: int) -> dict[str, Any]:
    """The losses of both, and how often the band held, from origins from an hour of the list on."""
    ours, theirs, held = [], [], []
    for known in range(first, len(values) - HORIZON + 1, step):
        band = FORECASTS[kind](History(values[:known], begins), HORIZON)
        came = values[known : known + HORIZON]
        ours.append(pinball(came, np.stack([band.low, band.middle, band.high])))
        theirs.append(pinball(came, naive(values[:known])))
        held.append((came >= band.low - 1e-9) & (came <= band.high + 1e-9))
    mine, other, inside = np.asarray(ours), np.asarray(theirs), np.asarray(held)
    by_group = {
        f"{low}-{high}": {
            "better_percent": round(
                100 * (1 - mine[:, low - 1 : high].mean() / other[:, low - 1 : high].mean())
            ),
            "held": round(float(inside[:, low - 1 : high].mean()), 3),
        }
        for low, high in GROUPS
    }
    gain = 1 - mine.mean() / other.mean()
    return {
        "origins": len(ours),
        "loss": round(float(mine.mean()), 3),
        "naive_loss": round(float(other.mean()), 3),
        "better_percent": round(100 * float(gain), 1),
        "held": round(float(inside.mean()), 3),
        "by_hours_ahead": by_group,
        "in_goal": bool(gain >= GOALS[kind] and 0.75 <= inside.mean() <= 0.85),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compares on all lists that there are."""
    began = time.perf_counter()
    lists = {
        "philly": philly(options.data / "philly" / "philly_jobs_70_days.csv.gz"),
        "openb": openb(options.data / "openb" / "openb_pod_list_default.csv.gz"),
        "demo": demo(),
    }
    found = {
        name: {
            kind: compared(kind, begins, values[kind], options.first_day * DAY, options.step)
            for kind in FORECASTS
        }
        for name, (begins, values) in lists.items()
    }
    return {
        "bench": "demand",
        "first_day": options.first_day,
        "step_hours": options.step,
        "lists": found,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.demand", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--first-day", type=int, default=FIRST // DAY, help="the first origin's day")
    parser.add_argument("--step", type=int, default=7, help="hours between origins")
    parser.add_argument("--out", type=Path, default=None, help="folder for demand.json")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("demand", measure(options), options.out)


if __name__ == "__main__":
    main()
