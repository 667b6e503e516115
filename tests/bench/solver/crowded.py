"""The cost of a cycle at a crowded site: `python -m tests.bench.solver.crowded --gpus 10000`.

All GPUs are busy, three times the fleet is waiting, quotas are near their limits, part of the work
can be paused, and all times are in seconds. Measured are the first cycle, one that keeps all
planned starts, one with one booking more at the end and one at the head of the queue, each also
where all classes are quiet, and one after an early end. With `--cycles N`: how many planned starts
change in each of N cycles, five seconds apart, in which nobody asks for anything. JSON on stdout;
seconds of processor time, because wall time depends on what else runs.
"""

import argparse
import json
import random
import resource
import sys
import time
from dataclasses import replace

from allocation.services.gc_paused import gc_paused
from allocation.services.shards.processes import ShardWorkers
from allocation.services.shards.queue import ShardQueue
from solver import (
    Ask,
    Gpu,
    Held,
    Limit,
    Place,
    Plan,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Tier,
    Waiting,
    solve,
)
from solver.sharding.shards import Decide
from tests.bench.machine import machine
from tests.solver.builders import MODELS, NOON, gpus

HOUR = 3_600
TENANTS = 12
TIERS = {
    "std": Tier("std", pausable=False, counts=True, priority=50),
    "flex": Tier("flex", pausable=True, counts=True, priority=40, grace=120, protected=600),
    "spot": Tier("spot", pausable=True, counts=False, priority=10, grace=60),
}
GOALS_MS = {"first_s": 5_000, "keep_s": 5_000, "one_more_s": 5_000}
"""Of a site with 1,000 GPUs and as many bookings: a turn may take no longer."""
STEP = 5
"""Seconds from one cycle to the next."""
COUNTS = (1, 1, 1, 2, 2, 4, 8, 8)
"""GPUs of a booking: three on average, so as many bookings as GPUs ask for three fleets."""


def fleet_of(count: int, classes: int) -> tuple[Gpu, ...]:
    """Nodes of eight, classes in turn, four nodes to a rack."""
    return tuple(
        gpu
        for n in range(count // 8)
        for gpu in gpus(8, f"h{n % classes:02}", "h100-80gb", node=f"n{n:05}", rack=f"r{n // 4:04}")
    )


def seconds_of(chance: random.Random) -> int:
    """Ten minutes to two days, two and a half hours on average, to the second."""
    return int(min(48 * HOUR, max(600.0, chance.lognormvariate(8.6, 0.9))))


def tier_of(chance: random.Random, pausable: float) -> Tier:
    """A tier that can be paused with this chance."""
    if chance.random() >= pausable:
        return TIERS["std"]
    return TIERS["spot" if chance.random() < 0.3 else "flex"]


def held_of(
    fleet: tuple[Gpu, ...], pausable: float, chance: random.Random, *, split: bool
) -> tuple[Held, ...]:
    """Gangs on all GPUs, each somewhere in the middle of its time."""
    by_class: dict[str, list[Gpu]] = {}
    for gpu in fleet:
        by_class.setdefault(gpu.gpu_class, []).append(gpu)
    rows: list[Held] = []
    for name, members in by_class.items():
        at = 0
        while at < len(members):
            gang = members[at : at + chance.choice(COUNTS)]
            tenant = tenant_of(chance, name, split=split)
            booking = f"held-{name}-{at:05}"
            rows += _gang(booking, tenant, gang, tier_of(chance, pausable), chance)
            at += len(gang)
    return tuple(rows)


def tenant_of(chance: random.Random, gpu_class: str, *, split: bool) -> str:
    """One of the tenants, with `split` one of those that have only this class."""
    number = chance.randrange(TENANTS)
    return f"{gpu_class}-t{number}" if split else f"t{number}"


def _gang(name: str, tenant: str, gang: list[Gpu], tier: Tier, chance: random.Random) -> list[Held]:
    seconds = seconds_of(chance)
    since = NOON - chance.randrange(seconds)
    return [
        Held(
            id=f"{name}/{gpu.id}",
            booking=name,
            tenant=tenant,
            project=f"{tenant}-p",
            place=Place(gpu.id, None, 0, 8),
            starts=since,
            ends=since + seconds,
            started=True,
            tier=tier.slug,
            since=since,
            owner=f"{tenant}-ann",
        )
        for gpu in gang
    ]


def request_of(number: int, classes: int, pausable: float, chance: random.Random, *, split: bool) -> Request:
    """One booking that waits."""
    name = f"h{chance.randrange(classes):02}"
    tenant, tier = tenant_of(chance, name, split=split), tier_of(chance, pausable)
    count = chance.choice(COUNTS)
    return Request(
        booking=f"b{number:06}",
        tenant=tenant,
        project=f"{tenant}-p",
        tier=tier.slug,
        priority=tier.priority,
        submitted=NOON - chance.randint(1, 6 * HOUR),
        ask=Ask(count, (name,), None, "node", required=count > 4),
        duration=seconds_of(chance),
        earliest=NOON if chance.random() < 0.8 else NOON + chance.randint(1, 12 * HOUR),
        latest=None,
        fixed=False,
        planned=None,
        owner=f"{tenant}-{chance.choice(('ann', 'bob', 'eve'))}",
    )


def site_of(count: int, bookings: int, classes: int, pausable: float, *, split: bool = False) -> Snapshot:
    """The same site for the same numbers. With `split` each class has tenants of its own."""
    chance = random.Random(7)  # noqa: S311  a made-up site, the same each time
    fleet = fleet_of(count, classes)
    units = len(fleet) // classes * 56_000
    limits = tuple(
        Limit(
            f"h{name:02}-t{tenant}" if split else f"t{tenant}",
            None,
            f"h{name:02}",
            units // TENANTS,
            units // 20,
            None,
        )
        for tenant in range(TENANTS)
        for name in range(classes)
    )
    return Snapshot(
        NOON,
        MODELS,
        fleet,
        held_of(fleet, pausable, chance, split=split),
        tuple(request_of(number, classes, pausable, chance, split=split) for number in range(bookings)),
        (),
        limits,
        tiers=tuple(TIERS.values()),
    )


def the_next(site: Snapshot, plan: Plan) -> Snapshot:
    """The site five seconds later: assigned places, notices and planned starts are true, and what
    has ended is gone."""
    requests = {request.booking: request for request in site.requests}
    notices = {pause.booking: pause.at for pause in plan.pauses}
    held = [
        replace(row, ends=notices[row.booking], pausing=True) if row.booking in notices else row
        for row in site.held
        if row.ends > site.now + STEP
    ]
    for given in plan.assigns:
        request = requests.pop(given.booking)
        held += [
            Held(
                id=f"{given.booking}/{place.gpu}/{place.start}",
                booking=given.booking,
                tenant=request.tenant,
                project=request.project,
                place=place,
                starts=given.starts,
                ends=given.ends,
                started=given.starts <= site.now,
                tier=request.tier,
                since=given.starts if given.starts <= site.now else None,
                owner=request.owner,
                level="node" if request.ask.required else "any",
            )
            for place in given.places
        ]
    waiting = [
        replace(
            requests[wait.booking],
            planned=PlannedStart(wait.starts, wait.ends, wait.places, wait.strength),
        )
        for wait in plan.waits
        if wait.booking in requests
    ]
    return replace(site, now=site.now + STEP, held=tuple(held), requests=tuple(waiting))


def one_more(site: Snapshot, classes: int, *, is_first: bool, split: bool = False) -> Snapshot:
    """The site with one booking more: the last of its class's queue, or the first."""
    chance = random.Random(13)  # noqa: S311  a made-up booking
    request = request_of(999_999, classes, 0.0, chance, split=split)
    submitted = site.now - 7 * HOUR if is_first else site.now
    request = replace(request, earliest=site.now, submitted=submitted, priority=90 if is_first else 1)
    return replace(site, requests=(*site.requests, request))


def quiet(site: Snapshot) -> Snapshot:
    """The site when nothing has been given back since the last search."""
    return replace(site, quiet=tuple(sorted({gpu.gpu_class for gpu in site.gpus})))


def early_end(site: Snapshot) -> Snapshot:
    """The site without one of its running bookings."""
    gone = min(row.booking for row in site.held if row.started)
    return replace(site, held=tuple(row for row in site.held if row.booking != gone))


def timed(site: Snapshot, policy: Policy, decide: Decide | None) -> tuple[Plan, float, float]:
    """The plan, processor and wall seconds; those of workers are in the wall seconds alone."""
    wall, cpu = time.perf_counter(), time.process_time()
    with gc_paused():
        plan = solve(site, policy, decide, split_from=0)
    return plan, round(time.process_time() - cpu, 2), round(time.perf_counter() - wall, 2)


def churn(asked: argparse.Namespace) -> dict[str, object]:
    """The changes from each cycle to the next while nobody asks for anything."""
    site = site_of(asked.gpus, asked.bookings, asked.classes, asked.pausable, split=asked.split)
    policy, before = Policy(1, plan_depth=asked.depth), dict[str, Waiting]()
    rows = []
    for _ in range(asked.cycles):
        plan, seconds, _ = timed(site, policy, None)
        both = [(before[each.booking], each) for each in plan.waits if each.booking in before]
        later = [old for old, new in both if new.starts > old.starts]
        rows.append(
            {
                "s": seconds,
                "waiting": len(plan.waits),
                "pauses": len(plan.pauses),
                "changed": sum(new.starts != old.starts for old, new in both),
                "later": len(later),
                "guaranteed_later": sum(each.strength != "expected" for each in later),
            }
        )
        before, site = {each.booking: each for each in plan.waits}, the_next(site, plan)
    return {**vars(asked), "rows": rows, "machine": machine()}


def measured(asked: argparse.Namespace) -> dict[str, object]:
    """The figures of one size."""
    classes, split = asked.classes, asked.split
    site = site_of(asked.gpus, asked.bookings, classes, asked.pausable, split=split)
    decide = ShardWorkers(asked.workers).decide if asked.workers > 1 else None
    if asked.queue:
        decide = ShardQueue(asked.queue, most_seconds=600).decide
    policy = Policy(1, plan_depth=asked.depth)
    plan, first, first_wall = timed(site, policy, decide)
    settled = the_next(site, plan)
    again, keep, _ = timed(settled, policy, decide)
    kept = {wait.booking: wait.starts for wait in plan.waits}
    more = one_more(settled, classes, is_first=False, split=split)
    _, at_end, at_end_wall = timed(more, policy, decide)
    _, at_end_quiet, _ = timed(quiet(more), policy, decide)
    more = one_more(settled, classes, is_first=True, split=split)
    _, at_head, _ = timed(more, policy, decide)
    _, at_head_quiet, _ = timed(quiet(more), policy, decide)
    _, ended, _ = timed(early_end(settled), policy, decide)
    return {
        **vars(asked),
        "goals_ms": GOALS_MS,
        "first_s": first,
        "first_wall_s": first_wall,
        "one_more_wall_s": at_end_wall,
        "keep_s": keep,
        "one_more_s": at_end,
        "one_more_quiet_s": at_end_quiet,
        "one_more_at_the_head_s": at_head,
        "one_more_at_the_head_quiet_s": at_head_quiet,
        "early_end_s": ended,
        "assigned": len(plan.assigns),
        "waiting": len(plan.waits),
        "without_a_start": sum(not wait.places for wait in plan.waits),
        "refused": len(plan.refusals),
        "pauses": len(plan.pauses),
        "later": sum(wait.starts > kept.get(wait.booking, wait.starts) for wait in again.waits),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--bookings", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--pausable", type=float, default=0.5)
    parser.add_argument("--depth", type=int, default=0, help="planned starts (0: all)")
    parser.add_argument("--split", action="store_true", help="tenants of its own for each class")
    parser.add_argument("--workers", type=int, default=1, help="processes that decide shards")
    parser.add_argument("--queue", default="", help="a Redis address: shard workers decide them")
    parser.add_argument("--cycles", type=int, default=0, help="changes from cycle to cycle")
    return parser


def main() -> None:
    """Measures and prints."""
    asked = arguments().parse_args()
    result = churn(asked) if asked.cycles else measured(asked)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
