"""A backlog, decided by this portal and by others' rules: `python -m tests.bench.solver.backlog`.

Four organisations share 32 GPUs; three have a guarantee. For eight hours the demand is 1.5 times
the fleet, until the queue holds three times the fleet's work; then the queue drains. Times are in
seconds, half of the work can be paused, two thirds ends before its requested time. The same
list goes through the product's cycle, through Slurm's rules (multifactor priority, backfill, a
preemptible partition for what is above a guarantee) and through Kueue's (cohort, reclaim, best
effort FIFO without reservations), as their documentation describes them.

Prints a JSON line for each: waits by tier and inside guarantees in minutes, GPU-hours by tenant,
pauses, utilisation while the queue is full, end of all work. With `--plot` draws the waits.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from devtools.simulation.peers import PEERS, Pool, Rule, Work, pool_run
from solver import UNITS_PER_GPU, Ask, Policy, Tier
from tests.bench.machine import machine
from tests.solver.builders import NOON, a_limit, gpus
from tests.worlds.draw import Drawn
from tests.worlds.jobs import Job
from tests.worlds.life import World

HOUR = 3_600
GRACE, PROTECTED = 120, 600
GUARANTEES = {"a": 16, "b": 8, "c": 4, "d": 0}
# Part of all requests, by tenant: `d` has no guarantee, `a` asks for more than its own.
ASKING = {"a": 0.45, "b": 0.2, "c": 0.1, "d": 0.25}
TIERS = {
    "prem": Tier("prem", pausable=False, counts=True, priority=90),
    "std": Tier("std", pausable=False, counts=True, priority=50),
    "flex": Tier("flex", pausable=True, counts=True, priority=40, grace=GRACE, protected=PROTECTED),
    "spot": Tier("spot", pausable=True, counts=False, priority=10, grace=60),
}
NODES, GPUS = 4, 32
CROWDED_HOURS, LOAD = 8, 1.5
# GPU-seconds of a job, on average and really used.
MEAN_WORK = 1.9 * 6_030 * 0.73


def jobs_draw(seed: int) -> list[Job]:
    """The list: the same one for a seed."""
    chance = Random(seed)  # noqa: S311  a made-up list, the same each time
    jobs: list[Job] = []
    every = MEAN_WORK / (GPUS * LOAD)
    at = float(NOON)
    while at < NOON + CROWDED_HOURS * HOUR:
        at += chance.expovariate(1 / every)
        jobs.append(_job(chance, len(jobs), int(at)))
    return jobs


def _job(chance: Random, number: int, at: int) -> Job:
    tenant = chance.choices(list(ASKING), list(ASKING.values()))[0]
    sure = ("prem", "std") if GUARANTEES[tenant] else ()
    tier = chance.choice((*sure[: chance.random() < 0.2], *sure[1:], "flex", "flex", "spot"))
    count = chance.choices((1, 2, 4, 8), (6, 2, 1.5, 0.5))[0]
    if not TIERS[tier].pausable:
        count = min(count, GUARANTEES[tenant] // 2)
    seconds = int(min(12 * HOUR, max(600.0, chance.lognormvariate(8.3, 0.9))))
    return Job(
        name=f"j{number:04}",
        at=at,
        tenant=tenant,
        project=f"{tenant}-p",
        owner=chance.choice(("ann", "bob", "eve")),
        tier=TIERS[tier],
        ask=Ask(count, ("h100",), None, "any", required=False),
        seconds=seconds,
        earliest=at,
        fixed=False,
        patience=None,
        really=seconds if chance.random() < 1 / 3 else int(seconds * (0.2 + 0.8 * chance.random())),
        cancelled_after=None,
        extended_by=0,
    )


@dataclass
class Outcome:
    """When each job started and ended, how often work was paused, and who used what when."""

    started: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    pauses: int = 0
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)
    seconds: float = 0.0


def product_run(jobs: list[Job]) -> Outcome:
    """The product: `solve` at each event and every five minutes."""
    fleet = tuple(gpu for n in range(NODES) for gpu in gpus(8, node=f"n{n}", rack=f"r{n % 2}"))
    limits = tuple(a_limit(tenant, sure, borrow=None, weight=1) for tenant, sure in GUARANTEES.items())
    tiers = tuple(TIERS.values())
    drawn = Drawn(Policy(1), fleet, (), tiers, limits, tuple(jobs), (), is_plain=True)
    return world_play(World.of_drawn(drawn), jobs)


def world_play(world: World, jobs: Iterable[Job]) -> Outcome:
    """Plays a world to its end."""
    outcome, began = Outcome(), time.process_time()
    of = {job.name: job for job in jobs}
    since: dict[str, int] = {}
    for turn in world.turns():
        outcome.pauses += len(turn.plan.pauses)
        running = {row.booking for row in world.rows if row.started}
        for name in running - set(since):
            since[name] = world.now
        for name in set(since) - running:
            span = (of[name].tenant, of[name].ask.count, since.pop(name), world.now)
            outcome.spans.append(span)
    outcome.seconds = time.process_time() - began
    outcome.started, outcome.ended = dict(world.started), dict(world.ended)
    return outcome


def peer_run(jobs: list[Job], rule: Rule) -> Outcome:
    """The same list under another scheduler's rules, one that sees amounts and no places."""
    outcome, began = Outcome(), time.perf_counter()
    of = {job.name: job for job in jobs}
    works = [
        Work(
            job.name,
            job.tenant,
            job.tier,
            job.ask.count * UNITS_PER_GPU,
            job.at,
            job.seconds,
            job.really,
        )
        for job in jobs
    ]

    def note(what: str, work: Work, since: int, at: int) -> None:
        if what == "started":
            outcome.started.setdefault(work.name, at)
            return
        outcome.spans.append((work.tenant, of[work.name].ask.count, since, at))
        if work.really > 0:
            outcome.pauses += 1
        else:
            outcome.ended[work.name] = at

    sure = {tenant: units * UNITS_PER_GPU for tenant, units in GUARANTEES.items()}
    highest = max(tier.priority for tier in TIERS.values())
    pool_run(Pool(NOON, GPUS * UNITS_PER_GPU, sure, highest, PROTECTED), works, rule, note, NOON + 10**9)
    outcome.seconds = time.perf_counter() - began
    return outcome


def figures(name: str, jobs: list[Job], outcome: Outcome) -> dict[str, object]:
    """The row of a policy."""
    until = NOON + CROWDED_HOURS * HOUR
    used: Counter[str] = Counter()
    for tenant, count, since, to in outcome.spans:
        used[tenant] += count * max(0, min(to, until) - min(since, until))
    waits: dict[str, list[float]] = {}
    for job in jobs:
        if job.name in outcome.started:
            minutes = (outcome.started[job.name] - job.at) / 60
            waits.setdefault(job.tier.slug, []).append(minutes)
            if was_inside(job, jobs, outcome, GUARANTEES[job.tenant]):
                waits.setdefault("inside a guarantee", []).append(minutes)
    return {
        "policy": name,
        "jobs": len(jobs),
        "started": len(outcome.started),
        "wait_minutes": {
            kind: {
                "count": len(each),
                "mean": round(statistics.mean(each), 1),
                "p95": round(sorted(each)[int(0.95 * (len(each) - 1))], 1),
                "max": round(max(each), 1),
            }
            for kind, each in sorted(waits.items())
        },
        "gpu_hours": {tenant: round(used[tenant] / HOUR, 1) for tenant in GUARANTEES},
        "guaranteed_gpu_hours": {t: CROWDED_HOURS * sure for t, sure in GUARANTEES.items()},
        "pauses": outcome.pauses,
        "utilisation": round(sum(used.values()) / (CROWDED_HOURS * HOUR * GPUS), 3),
        "end_hours": round((max(outcome.ended.values()) - NOON) / HOUR, 2),
        "seconds": round(outcome.seconds, 1),
    }


def was_inside(job: Job, jobs: list[Job], outcome: Outcome, guaranteed: int) -> bool:
    """All counted work of its tenant that ran or waited when it was asked for fits with it into so
    many GPUs."""
    there = sum(
        each.ask.count
        for each in jobs
        if each.tenant == job.tenant
        and each.tier.counts
        and each.at <= job.at < outcome.ended.get(each.name, each.at + 10**9)
    )
    return job.tier.counts and there <= guaranteed


def plot(rows: list[dict[str, object]], path: Path) -> None:
    """Mean waits by tier as adjacent bars, as SVG."""
    kinds = ["inside a guarantee", "prem", "std", "flex", "spot"]
    colours = ("#2563eb", "#9ca3af", "#d1a054")
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 300" font-family="sans-serif">']
    values = {
        (str(row["policy"]), kind): row["wait_minutes"].get(kind, {"mean": 0})["mean"]  # type: ignore[attr-defined]
        for row in rows
        for kind in kinds
    }
    scale = 220 / max(*values.values(), 1)
    for index, kind in enumerate(kinds):
        left = 20 + index * 124
        lines.append(f'<text x="{left}" y="280" font-size="12">{kind}</text>')
        for place, row in enumerate(rows):
            value = values[str(row["policy"]), kind]
            x, height = left + place * 34, value * scale
            lines.append(
                f'<rect x="{x}" y="{260 - height:.1f}" width="30" height="{height:.1f}"'
                f' fill="{colours[place]}"/>'
                f'<text x="{x}" y="{254 - height:.1f}" font-size="10">{value:.0f}</text>'
            )
    for place, row in enumerate(rows):
        lines.append(
            f'<rect x="{20 + place * 120}" y="8" width="12" height="12" fill="{colours[place]}"/>'
            f'<text x="{38 + place * 120}" y="18" font-size="12">{row["policy"]}, minutes</text>'
        )
    path.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


def main() -> None:
    """Runs the list through all three and prints a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="file for a drawing (SVG)")
    options = parser.parse_args()
    jobs = jobs_draw(options.seed)
    outcomes = {
        "product": product_run(jobs),
        "slurm": peer_run(jobs, PEERS["slurm-like"]),
        "kueue": peer_run(jobs, PEERS["kueue-like"]),
    }
    rows = [figures(name, jobs, outcome) for name, outcome in outcomes.items()]
    for row in rows:
        sys.stdout.write(json.dumps({**row, "machine": machine()}) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
