"""All benches, one after the other, on one fresh site: `make bench`.

Writes a JSON file for each to var/bench and prints a table of the figures that have a goal.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench.live import admissions, agents, bookings, latency, many, memory, noise, waiting
from tests.bench.machine import ROOT, report
from tests.bench.site import launched

Result = Mapping[str, Any]


def run(out: Path) -> dict[str, Result]:
    """Results by the name of their bench."""
    results: dict[str, Result] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        launched(Path(folder) / "var") as site,
    ):
        # Memory first, before the site has worked.
        results["memory"] = {**memory.measure(site), "ready_seconds": site.ready_seconds}
        people = latency.arguments().parse_args([])
        results["latency"] = asyncio.run(latency.measure(site, people))
        clients = bookings.arguments()
        results["bookings-hot"] = bookings.measure(site, clients.parse_args(["--hot"]))
        results["bookings"] = bookings.measure(site, clients.parse_args([]))
        results["waiting"] = waiting.measure(site, waiting.arguments().parse_args([]))
        results["memory-after"] = memory.measure(site)
    # On separate sites, where hundreds of unreachable nodes do not disturb other benches.
    results["admissions"] = _alone(admissions, [])
    results["burst"] = _alone(admissions, ["--nodes", "130", "--burst", "1000"])
    results["noise"] = _alone(noise, [])
    results["agents"] = _alone(agents, [])
    results["many-burst"] = _alone(many, ["--site", "burst"])
    results["many-behind"] = _alone(many, ["--site", "behind"])
    results["cycle"] = _solver("cycle", "--gpus", "256", "--bookings", "1000")
    results["crowded"] = _solver("crowded", "--gpus", "1000", "--bookings", "1000")
    for name, result in results.items():
        report(name, result, out)
    return results


def _alone(bench: ModuleType, options: list[str]) -> Result:
    """Runs a bench in a separate process, because it becomes a part of its site."""
    command = [sys.executable, "-m", bench.__name__, *options]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: Result = json.loads(done.stdout)
    return found


def _solver(bench: str, *options: str) -> Result:
    """Runs a bench of the solver alone."""
    command = [sys.executable, "-m", f"tests.bench.solver.{bench}", *options]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: Result = json.loads(done.stdout)
    return found


def table(results: Mapping[str, Result]) -> str:
    """The table of figures with a goal, and whether they meet it."""
    active = results["latency"]["request_to_active"]
    waited, asked = results["latency"]["active"], results["latency"]["asked"]
    hot, cycle = results["bookings-hot"], results["cycle"]
    agents_, given, burst = (results[name] for name in ("agents", "admissions", "burst"))
    other, behind = results["noise"], results["noise"]["most_turns_behind_in_a_row"]
    all_, one_more = results["many-burst"]["all"]["turn"], results["many-behind"]["one_more"]["decided"]
    rows = [
        ("request to active, p50", active.get("p50_ms", 0), 1000, "ms"),
        ("request to active, p99", active.get("p99_ms", 0), 3000, "ms"),
        ("never active", asked - waited, 0, f"of {asked}"),
        ("granted beyond the slots", abs(hot["granted"] - hot["slots"]), 0, f"of {hot['tries']}"),
        ("agents: portal, of a core", agents_["portal_percent"], 50, "%"),
        ("agents: heartbeat to lease, p99", agents_["heartbeat_to_lease"]["p99_ms"], 2000, "ms"),
        ("decision to started, p99", given["decision_to_started"]["p99_ms"], 500, "ms"),
        ("request to started, p99", given["request_to_started"]["p99_ms"], 3000, "ms"),
        ("1,000 in line to started", burst["cycle_to_all_s"], 1000 / 144, "s"),
        ("noise: other's decision, p99", other["request_to_decided"]["p99_ms"], 5000, "ms"),
        ("turns of 1,000 at once, processor", (all_["cpu"] + all_["server"]) * 1000, 1500, "ms"),
        ("one behind 1,100, processor", (one_more["cpu"] + one_more["server"]) * 1000, 500, "ms"),
        ("noise: turns behind twice", max(0, behind - 1), 0, "in a row"),
        ("cycle, 256 GPUs, 1,000 new", cycle["solve_ms"], 5000, "ms"),
        ("cycle, 1,000 promises kept", cycle["solve_promises_ms"], 5000, "ms"),
        *(
            (f"crowded: {name[:-2].replace('_', ' ')}", results["crowded"][name] * 1000, goal, "ms")
            for name, goal in results["crowded"]["goals_ms"].items()
        ),
    ]
    lines = [
        f"{name:<28} {value:>9,.0f} {unit:<7} goal {goal:>6,}  {_word(value, goal)}"
        for name, value, goal, unit in rows
    ]
    taken = results["bookings"]
    lines.append(f"{'bookings taken':<28} {taken['per_second']:>9,.1f} a second")
    lines.append(f"{'memory of the site':<28} {results['memory']['pss_mb']:>9,.0f} MB")
    return "\n".join(lines)


def _word(value: float, goal: float) -> str:
    return "ok" if value <= goal else "MISSED"


def main() -> None:
    """Measures, writes the files, prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "bench")
    results = run(parser.parse_args().out)
    sys.stdout.write("\n" + table(results) + "\n")


if __name__ == "__main__":
    main()
