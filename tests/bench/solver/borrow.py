"""How long a tier that is never paused may borrow: `python -m tests.bench.solver.borrow`.

Tasks of the openb trace with whole GPUs are drawn from a list, other ones for each list, with their
lengths (at most twelve hours), and arrive at random so that they ask for 0.95 of a fleet of 32
GPUs. Four organisations are guaranteed a quarter each; they ask for 0.4, 0.3, 0.2 and 0.1 of the
work, in the tiers premium and standard, which are never paused, and spot. A third of the tasks runs
for as long as it asked, the others end early. The same tasks go through the product with each
longest window, through conservative backfill (every waiting task has a reservation) and through
EASY backfill (only the first one has), both first come, first served, without quotas.

Prints a JSON line for each: waits by tier in minutes, also of tasks that were inside their
organisation's guarantee when they came, utilisation while tasks arrive, and pauses. `--worlds N`
plays N random worlds of `tests.worlds` instead.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

from solver import Ask, Policy, Tier
from tests.bench.machine import machine
from tests.bench.solver.backlog import Outcome, was_inside, world_play
from tests.bench.solver.trace import Row, pods_of
from tests.solver.builders import NOON, a_limit, gpus
from tests.worlds.draw import Drawn
from tests.worlds.jobs import HOUR, Job
from tests.worlds.life import World

LISTS = ("openb_pod_list_default", "openb_pod_list_cpu050", "openb_pod_list_gpuspec33")
WINDOWS = {"0": 0, "2 h": 2 * HOUR, "4 h": 4 * HOUR, "no limit": 28 * 24 * HOUR}
LOAD, NODES, GPUS, LONGEST = 0.95, 4, 32, 12 * HOUR
ASKING = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
TIERS = {
    "premium": Tier("premium", pausable=False, counts=True, priority=90),
    "standard": Tier("standard", pausable=False, counts=True, priority=50),
    "spot": Tier("spot", pausable=True, counts=False, priority=10, grace=60),
}
PARTS = {"premium": 0.1, "standard": 0.6, "spot": 0.3}


def jobs_of(pods: Iterable[Row], count: int, seed: int) -> list[Job]:
    """So many tasks of a list, in the order in which they come."""
    chance = Random(seed)  # noqa: S311  a made-up order, the same each time
    whole = [row for row in pods if int(row["num_gpu"]) >= 1]
    rows = chance.sample(whole, count)
    lengths = [_length(row) for row in rows]
    work = [int(row["num_gpu"]) * seconds for row, seconds in zip(rows, lengths, strict=True)]
    really = [1 if chance.random() < 1 / 3 else 0.2 + 0.8 * chance.random() for _ in rows]
    every = sum(w * part for w, part in zip(work, really, strict=True)) / (GPUS * LOAD * count)
    at, jobs = float(NOON), list[Job]()
    for number, (row, seconds, part) in enumerate(zip(rows, lengths, really, strict=True)):
        at += chance.expovariate(1 / every)
        tenant = chance.choices(list(ASKING), list(ASKING.values()))[0]
        tier = chance.choices(list(PARTS), list(PARTS.values()))[0]
        jobs.append(
            Job(
                name=f"j{number:04}",
                at=int(at),
                tenant=tenant,
                project=f"{tenant}-p",
                owner=chance.choice(("ann", "bob", "eve")),
                tier=TIERS[tier],
                ask=Ask(int(row["num_gpu"]), ("h100",), None, "any", required=False),
                seconds=seconds,
                earliest=int(at),
                fixed=False,
                patience=None,
                really=max(1, int(seconds * part)),
                cancelled_after=None,
                extended_by=0,
            )
        )
    return jobs


def _length(row: Row) -> int:
    return min(LONGEST, max(60, int(row["deletion_time"]) - int(row["creation_time"])))


def product_run(jobs: list[Job], policy: Policy) -> Outcome:
    """The product: `solve` at each event and every five minutes."""
    fleet = tuple(gpu for n in range(NODES) for gpu in gpus(8, node=f"n{n}", rack=f"r{n % 2}"))
    limits = tuple(a_limit(t, GPUS // 4, borrow=None, weight=1) for t in ASKING)
    drawn = Drawn(policy, fleet, (), tuple(TIERS.values()), limits, tuple(jobs), (), is_plain=True)
    return world_play(World.of_drawn(drawn), jobs)


def backfill_run(jobs: list[Job], reserved: int | None) -> Outcome:
    """First come, first served on one pool, with a reservation for so many of the queue (None: for
    all); decided at each arrival and each end."""
    outcome, began = Outcome(), time.process_time()
    arriving, waiting, running = list(jobs), list[Job](), dict[str, tuple[Job, int]]()
    now = NOON
    while arriving or waiting or running:
        for name, (job, since) in list(running.items()):
            if since + job.really <= now:
                del running[name]
                outcome.spans.append((job.tenant, job.ask.count, since, now))
                outcome.ended[name] = now
        while arriving and arriving[0].at <= now:
            waiting.append(arriving.pop(0))
        for job in _starting(waiting, running, now, reserved):
            waiting.remove(job)
            running[job.name] = (job, now)
            outcome.started[job.name] = now
        ends = [since + job.really for job, since in running.values()]
        now = min([*ends, *(job.at for job in arriving[:1])], default=now)
    outcome.seconds = time.process_time() - began
    return outcome


def _starting(
    waiting: list[Job], running: dict[str, tuple[Job, int]], now: int, reserved: int | None
) -> list[Job]:
    """Who starts now: each is placed at the earliest time that delays none of the reservations
    ahead of it."""
    busy = [(now, since + job.seconds, job.ask.count) for job, since in running.values()]
    found, kept = list[Job](), 0
    for job in waiting:
        times = sorted({now, *(end for _, end, _ in busy)})
        at = next(each for each in times if _fits(busy, job, each))
        if at == now:
            found.append(job)
        elif reserved is not None and kept >= reserved:
            continue
        else:
            kept += 1
        busy.append((at, at + job.seconds, job.ask.count))
    return found


def _fits(busy: list[tuple[int, int, int]], job: Job, at: int) -> bool:
    until = at + job.seconds
    edges = {at, *(start for start, _, _ in busy if at < start < until)}
    return all(
        sum(count for start, end, count in busy if start <= edge < end) + job.ask.count <= GPUS
        for edge in edges
    )


def figures(name: str, jobs: list[Job], outcome: Outcome) -> dict[str, object]:
    """The row of a policy."""
    first, last = jobs[0].at, jobs[-1].at
    used = sum(count * max(0, min(to, last) - since) for _, count, since, to in outcome.spans)
    waits: dict[str, list[float]] = {}
    for job in jobs:
        if job.name in outcome.started:
            minutes = (outcome.started[job.name] - job.at) / 60
            waits.setdefault(job.tier.slug, []).append(minutes)
            if was_inside(job, jobs, outcome, GPUS // 4):
                waits.setdefault("inside", []).append(minutes)
    return {
        "policy": name,
        "started": len(outcome.started),
        "mean_wait_minutes": {k: round(statistics.mean(v), 1) for k, v in sorted(waits.items())},
        "longest_wait_minutes": {k: round(max(v), 1) for k, v in sorted(waits.items())},
        "utilisation": round(100 * used / ((last - first) * GPUS), 1),
        "pauses": outcome.pauses,
        "seconds": round(outcome.seconds, 1),
    }


def policy_of(seconds: int, tiers: Iterable[str]) -> Policy:
    """The policy with one longest window for these tiers."""
    return Policy(1, borrow_windows=tuple((tier, seconds) for tier in tiers) if seconds else ())


def lists_run(options: argparse.Namespace, say: Callable[[dict[str, object]], None]) -> None:
    """Plays each list under each policy."""
    for number, name in enumerate(LISTS):
        jobs = jobs_of(pods_of(options.data, name), options.tasks, options.seed + number)
        for window, seconds in WINDOWS.items():
            outcome = product_run(jobs, policy_of(seconds, PARTS))
            say({"list": name, **figures(f"borrows for {window}", jobs, outcome)})
        for peer, reserved in (("conservative backfill", None), ("EASY backfill", 1)):
            say({"list": name, **figures(peer, jobs, backfill_run(jobs, reserved))})


def worlds_run(options: argparse.Namespace, say: Callable[[dict[str, object]], None]) -> None:
    """Plays random worlds, which have tiers and limits of their own, under each longest window."""
    for window, seconds in WINDOWS.items():
        waits: dict[str, list[float]] = {}
        pauses, used = 0, 0
        for seed in range(1, options.worlds + 1):
            world = World.of(seed)
            tiers = [tier.slug for tier in world.drawn.tiers if not tier.pausable]
            policy = replace(world.drawn.policy, borrow_windows=policy_of(seconds, tiers).borrow_windows)
            world = World.of_drawn(replace(world.drawn, policy=policy))
            outcome = world_play(world, world.drawn.jobs)
            pauses += outcome.pauses
            used += sum(count * (to - since) for _, count, since, to in outcome.spans)
            for job in world.drawn.jobs:
                if job.name in outcome.started:
                    minutes = (outcome.started[job.name] - max(job.at, job.earliest)) / 60
                    waits.setdefault("paused" if job.tier.pausable else "never", []).append(minutes)
        means = {kind: round(statistics.mean(each), 1) for kind, each in sorted(waits.items())}
        say(
            {
                "worlds": options.worlds,
                "policy": f"borrows for {window}",
                "mean_wait_minutes": means,
                "pauses": pauses,
                "gpu_hours": round(used / HOUR),
            }
        )


def main() -> None:
    """Plays the lists, or random worlds, and prints a row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/openb"))
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", type=int, default=0)
    options = parser.parse_args()

    def say(row: dict[str, object]) -> None:
        sys.stdout.write(json.dumps({**row, "machine": machine()}) + "\n")
        sys.stdout.flush()

    (worlds_run if options.worlds else lists_run)(options, say)


if __name__ == "__main__":
    main()
