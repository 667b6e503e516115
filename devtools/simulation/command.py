"""Simulates the site, or an invented one, under a demand and prints the results."""

import csv
import gzip
import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.models import PolicyVersion
from allocation.services.gc_paused import gc_paused
from billing.rules import LEDGER_STEP
from devtools.simulation.metrics import Rates, Result
from devtools.simulation.peers import PEERS, simulate_peer
from devtools.simulation.simulate import simulate
from devtools.simulation.site import (
    demand_read,
    limits_equal,
    policy_by_number,
    rates_now,
    site_live,
    site_synthetic,
    spec_read,
)
from devtools.simulation.workload import trace_arrivals, workload_arrivals
from solver import Request, Snapshot

DAY = 86_400
LIVE = "live"
Strategy = Callable[[Snapshot, tuple[Request, ...], int, Rates], Result]


class Command(BaseCommand):
    """`python -m devtools.simulation --gpus h100=64 --demand load=110 --days 7 --seed 1`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the site, the demand and the length."""
        site = parser.add_mutually_exclusive_group(required=True)
        site.add_argument("--gpus", help="an invented fleet: class=count,class=count")
        site.add_argument("--live", action="store_true", help="the current fleet and bookings")
        parser.add_argument("--trace", type=Path, help="an openb or Philly trace, .csv or .gz")
        parser.add_argument("--demand", default="", help="load=90,tenants=6,slices=30,gangs=25 …")
        parser.add_argument("--days", type=int, default=7, help="days to simulate")
        parser.add_argument("--skip", type=int, default=0, help="days of the trace to skip")
        parser.add_argument("--seed", type=int, default=1, help="seed of the generated demand")
        parser.add_argument(
            "--policy",
            action="append",
            default=[],
            help=f"number of a policy version, or {' or '.join(PEERS)}; several are compared",
        )
        parser.add_argument("--json", type=Path, help="file for the results as JSON")

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401  as Django declares it
        """Prints a table. The same input gives the same output."""
        now = timezone.now()
        try:
            demand = demand_read(options["demand"], options["days"])
            names = options["policy"] or [LIVE]
            strategies = {name: strategy_read(name) for name in names}
            if options["live"]:
                site = site_live(now)
            else:
                site = site_synthetic(spec_read(options["gpus"]), demand.tenants)
            if options["trace"]:
                arrivals = _within(_read(options["trace"], site), site.now, options)
                if not options["live"]:
                    site = limits_equal(site, {each.tenant for each in arrivals})
            else:
                arrivals = workload_arrivals(demand, site, options["seed"])
        except (ValueError, OSError, PolicyVersion.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        rates = rates_now(now)
        results: dict[str, Result] = {}
        for name, strategy in strategies.items():
            results[name] = strategy(site, arrivals, options["days"] * DAY, rates)
        first = results[names[0]]
        for line in _table(first) if len(results) == 1 else comparison(results):
            self.stdout.write(line)
        if options["json"]:
            shown = {name: asdict(result) for name, result in results.items()}
            text = json.dumps(shown if len(shown) > 1 else asdict(first), indent=1, sort_keys=True)
            options["json"].write_text(text + "\n", encoding="utf-8")


def strategy_read(name: str) -> Strategy:
    """What plays a site: a version of the policy by its number, or another scheduler by its name.

    Raises:
        ValueError: it is neither.
        PolicyVersion.DoesNotExist: there is no such version.
    """
    if name in PEERS:
        rule = PEERS[name]
        return lambda site, arrivals, seconds, rates: simulate_peer(site, rule, arrivals, seconds, rates)
    if name != LIVE and not (name.isascii() and name.isdigit()):
        raise ValueError(f"There is no policy {name}. Known: numbers of versions, {', '.join(PEERS)}.")
    policy = policy_by_number(None if name == LIVE else int(name))

    def played(site: Snapshot, arrivals: tuple[Request, ...], seconds: int, rates: Rates) -> Result:
        with gc_paused():
            return simulate(site, policy, arrivals, seconds, rates)

    return played


def comparison(results: Mapping[str, Result]) -> list[str]:
    """The results of several strategies for the same demand, a column each."""
    rows: list[tuple[str, list[str]]] = [
        ("in use", [_percent(each.utilisation_ppm) for each in results.values()]),
        ("bookings ended", [str(each.finished) for each in results.values()]),
        ("pauses", [str(each.pauses) for each in results.values()]),
        ("served share, Jain", [f"{each.jain_ppm / 1e6:.3f}" for each in results.values()]),
        ("spent", [_money(each.spend) for each in results.values()]),
    ]
    tiers = sorted({row.tier for each in results.values() for row in each.tiers})
    for tier in tiers:
        found = [next((row for row in each.tiers if row.tier == tier), None) for each in results.values()]
        rows += [
            (f"{tier}: started", [str(row.started if row else 0) for row in found]),
            (f"{tier}: wait p50, min", [_minutes(row.wait_p50 if row else None) for row in found]),
            (f"{tier}: wait p95, min", [_minutes(row.wait_p95 if row else None) for row in found]),
        ]
    tenants = sorted({row.tenant for each in results.values() for row in each.tenants})
    for tenant in tenants:
        hours = [
            next((row.gpu_hours for row in each.tenants if row.tenant == tenant), 0)
            for each in results.values()
        ]
        rows.append((f"{tenant}: GPU-hours", [str(each) for each in hours]))
    head = f"{'':<44}" + "".join(f"{name:>14}" for name in results)
    return [head, *(f"{label:<44}" + "".join(f"{each:>14}" for each in cells) for label, cells in rows)]


def _read(path: Path, site: Snapshot) -> tuple[Request, ...]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return trace_arrivals(csv.DictReader(file), site)


def _within(arrivals: tuple[Request, ...], now: int, options: Mapping[str, Any]) -> tuple[Request, ...]:
    """The arrivals after the skipped days, moved to the start."""
    skip = options["skip"] * DAY
    until = now + options["days"] * DAY
    moved = (
        replace(each, submitted=each.submitted - skip, earliest=each.earliest - skip) for each in arrivals
    )
    return tuple(each for each in moved if now <= each.submitted < until)


def _table(result: Result) -> list[str]:
    """The results as a table, most important figures first."""
    hours = (result.ends - result.begins) // 3_600
    lines = [
        f"{hours} hours, {result.cycles} cycles, {result.finished} bookings ended",
        f"in use {_percent(result.utilisation_ppm)}, {result.pauses} pauses that cost "
        f"{result.lost_gpu_seconds / 3_600:.1f} GPU-hours, spent {_money(result.spend)}",
        f"fairness (served share): Jain {result.jain_ppm / 1e6:.3f}, "
        f"highest / lowest {result.max_min_ppm / 1e6:.2f}",
        "",
        "tier            asked  started  waiting  refused  pauses  wait p50    p95      max (min)",
    ]
    lines += [
        f"{row.tier:<14}{row.asked:>7}{row.started:>9}{row.waiting:>9}{row.refused:>9}"
        f"{row.pauses:>8}{_minutes(row.wait_p50):>10}{_minutes(row.wait_p95):>8}"
        f"{_minutes(row.wait_max):>9}"
        for row in result.tiers
    ]
    lines += ["", "tenant                          GPU-hours   of asked   of all used      spent"]
    lines += [
        f"{row.tenant:<32}{row.gpu_hours:>9}{_percent(row.served_ppm):>11}"
        f"{_percent(row.share_ppm):>14}{_money(row.spend):>11}"
        for row in result.tenants
    ]
    lines += ["", "class             GPUs     in use"]
    lines += [
        f"{row.gpu_class:<14}{row.gpus:>8}{_percent(row.utilisation_ppm):>11}" for row in result.classes
    ]
    refused = ", ".join(f"{code} {count}" for code, count in result.refused_because)
    return [*lines, *(["", f"refused: {refused}"] if refused else [])]


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.1f} %"


def _minutes(seconds: int | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.0f}"


def _money(steps: int) -> str:
    return f"{(steps * LEDGER_STEP).quantize(Decimal('0.01'))}"
