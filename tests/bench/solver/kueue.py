"""Kueue's baseline scenario on our queue: `python -m tests.bench.solver.kueue`.

15,000 workloads of three classes in 30 queues of 5 cohorts, as its performance test generates them
(test/performance/scheduler/configs/baseline/generator.yaml). A cohort is a GPU class of 120 GPUs, a
queue is a tenant with 20 of them guaranteed, which may borrow the rest; priorities as there. One
second of the simulation is one of its milliseconds. The whole of `solve` decides every time:
order, quota, places, planned starts, reasons.

The clock is simulated, as in Kueue's test. With `--charge` the simulated clock advances by the
duration of each cycle, so that waits include it. A JSON line for each system on stdout.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from allocation.services.gc_paused import gc_paused
from devtools.simulation.simulate import Simulation
from solver import Ask, Gpu, Limit, Policy, Request, Snapshot, Tier
from tests.bench.machine import machine
from tests.solver.builders import L40S, NOON

QUOTA = 20
# Class, how many in a queue, every so many ms, running so many ms, priority, GPUs.
WORKLOADS = (
    ("small", 350, 100, 200, 50, 1),
    ("medium", 100, 500, 500, 100, 5),
    ("large", 50, 1_200, 1_000, 200, 20),
)
# What Kueue's own test requires of its mean times to admission, and its mean of five runs.
LIMITS_MS = {"large": 11_000, "medium": 90_000, "small": 260_000}
MEANS_MS = {"large": 6_666, "medium": 76_768, "small": 215_468}
KUEUE = {
    "policy": "kueue",
    "source": "rangespec.yaml: means of its five trial runs",
    "admissions_per_s": 42.7,
    "makespan_ms": 351_116,
    "mean_wait_ms": MEANS_MS,
}
# Flex may borrow; nobody is paused: what runs for a second is not worth a notice.
TIERS = (Tier("flex", pausable=True, counts=True, priority=50, pauses=0),)


@dataclass(frozen=True)
class Scale:
    """How much of the scenario."""

    cohorts: int
    queues: int
    percent: int


def a_site(scale: Scale) -> Snapshot:
    """Five cohorts of six queues, if it is the whole."""
    gpus, limits = [], []
    for cohort in range(scale.cohorts):
        name = f"c{cohort}"
        for number in range(scale.queues * QUOTA):
            node = f"{name}-n{number // 8:02}"
            gpus.append(
                Gpu(
                    id=f"{name}-{number:03}",
                    number=number,
                    node=node,
                    rack=name,
                    index=number % 8,
                    gpu_class=name,
                    model=L40S.slug,
                    domain=None,
                    usable=True,
                    mode=None,
                )
            )
        limits += [
            Limit(f"{name}q{queue}", None, name, QUOTA * 56_000, 100 * 56_000, None)
            for queue in range(scale.queues)
        ]
    return Snapshot(NOON, (L40S,), tuple(gpus), (), (), (), tuple(limits), TIERS)


def workloads(scale: Scale) -> Iterator[Request]:
    """Each queue's three series, all from the start on."""
    for cohort in range(scale.cohorts):
        for queue in range(scale.queues):
            for kind, count, interval, runtime, priority, gpus in WORKLOADS:
                for number in range(count * scale.percent // 100):
                    at = NOON + number * interval
                    yield Request(
                        booking=f"c{cohort}q{queue}-{kind}-{number:03}",
                        tenant=f"c{cohort}q{queue}",
                        project=f"c{cohort}q{queue}-p",
                        tier="flex",
                        priority=priority,
                        submitted=at,
                        ask=Ask(gpus, (f"c{cohort}",), None, "any", required=False),
                        duration=runtime,
                        earliest=at,
                        latest=None,
                        fixed=False,
                        planned=None,
                    )


@dataclass
class Seen:
    """What happened on the way."""

    started: dict[str, int] = field(default_factory=dict)
    wall: float = 0.0
    cpu: float = 0.0
    slowest: float = 0.0
    most_waiting: int = 0
    cycles: int = 0


def run(scale: Scale, wanted: list[Request], every: int, *, charge: bool) -> Seen:
    """Runs until every workload has finished."""
    policy = Policy(1, grid=1, freeze_horizon=every, horizon=400_000, age_step=1_000_000, half_life=10_000)
    simulation = Simulation(a_site(scale), policy, wanted, every=every)
    seen, no_sooner = Seen(), 0
    while not simulation.is_over:
        before, cpu_before = time.perf_counter(), time.process_time()
        with gc_paused():  # as the service does
            plan = simulation.step(NOON + 10_000_000, no_sooner)
        took = time.perf_counter() - before
        seen.cpu += time.process_time() - cpu_before
        seen.wall += took
        seen.slowest = max(seen.slowest, took)
        no_sooner = simulation.now + (round(took * 1000) if charge else every)
        if plan is None:
            break
        seen.most_waiting = max(seen.most_waiting, len(plan.waits))
        for given in plan.assigns:
            seen.started.setdefault(given.booking, given.starts)
    seen.cycles = simulation.metrics.cycles
    return seen


def figures(scale: Scale, wanted: list[Request], seen: Seen, *, charge: bool) -> dict[str, object]:
    """The row of the product."""
    started = seen.started
    waits: dict[str, list[int]] = {}
    for request in wanted:
        if request.booking in started:
            kind = request.booking.split("-")[1]
            waits.setdefault(kind, []).append(started[request.booking] - request.submitted)
    means = {kind: round(sum(each) / len(each)) for kind, each in sorted(waits.items())}
    last = max(started[each.booking] + each.duration for each in wanted if each.booking in started)
    makespan = last - NOON
    work = sum(each.ask.count * each.duration for each in wanted)
    rate = len(started) / (makespan / 1000 if charge else seen.wall)
    return {
        "policy": "product",
        "workloads": len(wanted),
        "admitted": len(started),
        "charged": charge,
        "admissions_per_s": round(rate, 1),
        "wall_s": round(seen.wall, 1),
        "cpu_s": round(seen.cpu, 1),
        "per_cpu_s": round(len(started) / seen.cpu, 1),
        "cycles": seen.cycles,
        "slowest_cycle_ms": round(seen.slowest * 1000),
        "makespan_ms": makespan,
        "bound_ms": -(-work // (scale.cohorts * scale.queues * QUOTA)),
        "most_waiting": seen.most_waiting,
        "mean_wait_ms": means,
        "worst_wait_ms": {kind: max(each) for kind, each in sorted(waits.items())},
        "limits_halved": all(2 * means[kind] <= LIMITS_MS[kind] for kind in means),
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=5)
    parser.add_argument("--queues", type=int, default=6)
    parser.add_argument("--percent", type=int, default=100, help="of each queue's workloads")
    parser.add_argument("--every", type=int, default=500, help="ms between cycles, at least")
    parser.add_argument("--charge", action="store_true", help="deciding takes simulated time too")
    asked = parser.parse_args()
    scale = Scale(asked.cohorts, asked.queues, asked.percent)
    wanted = list(workloads(scale))
    seen = run(scale, wanted, asked.every, charge=asked.charge)
    ours = {"every_ms": asked.every, **figures(scale, wanted, seen, charge=asked.charge)}
    for row in (KUEUE, ours):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
