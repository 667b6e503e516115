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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from solver import Ask, Policy, Tier
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


@dataclass
class Run:
    """A job in a peer: what is left, and since when it runs in which partition."""

    job: Job
    asked: int
    really: int
    since: int | None = None
    is_own: bool = False
    leaves_at: int | None = None

    @property
    def ends(self) -> int:
        """When it ends, as its scheduler expects."""
        return (self.since or 0) + self.asked


@dataclass
class Peer:
    """A site under another scheduler."""

    now: int = NOON
    waiting: list[Run] = field(default_factory=list)
    running: list[Run] = field(default_factory=list)

    @property
    def free(self) -> int:
        """GPUs that nobody has."""
        return GPUS - sum(run.job.ask.count for run in self.running)

    @property
    def coming(self) -> int:
        """The GPUs of bookings with a notice."""
        return sum(run.job.ask.count for run in self.running if run.leaves_at is not None)

    def use(self, tenant: str, *, own_only: bool) -> int:
        """GPUs of a tenant, of all its jobs or of those in its own partition."""
        return sum(
            run.job.ask.count
            for run in self.running
            if run.job.tenant == tenant and run.leaves_at is None and (run.is_own or not own_only)
        )

    def start(self, run: Run, *, is_own: bool) -> None:
        """Starts a waiting job."""
        self.waiting.remove(run)
        run.since, run.is_own = self.now, is_own
        self.running.append(run)

    def preempt(self, needed: int, is_victim: Callable[[Run], bool]) -> None:
        """Gives notice to the youngest victims, if that frees `needed` GPUs."""
        chosen: list[Run] = []
        for run in sorted(filter(is_victim, self.running), key=lambda r: -(r.since or 0)):
            if needed > 0 and run.leaves_at is None:
                chosen.append(run)
                needed -= run.job.ask.count
        for run in chosen if needed <= 0 else ():
            run.leaves_at = self.now + run.job.tier.grace


Rule = Callable[[Peer], None]


def peer_run(jobs: list[Job], schedule: Rule) -> Outcome:
    """An event-driven site that starts and requeues what `schedule` says; work is saved at a
    pause, as it is with us."""
    outcome, began = Outcome(), time.perf_counter()
    arriving = [Run(job, job.seconds, job.really) for job in jobs]
    peer = Peer()
    while arriving or peer.waiting or peer.running:
        for run in [each for each in peer.running if _is_over(each, peer.now)]:
            _leave(peer, run, outcome)
        while arriving and arriving[0].job.at <= peer.now:
            peer.waiting.append(arriving.pop(0))
        schedule(peer)
        for run in peer.running:
            outcome.started.setdefault(run.job.name, peer.now)
        times = [peer.now + 60]
        times += [run.since + run.really for run in peer.running if run.since is not None]
        times += [run.leaves_at for run in peer.running if run.leaves_at is not None]
        times += [arriving[0].job.at] if arriving else []
        peer.now = max(peer.now + 1, min(times))
    outcome.seconds = time.perf_counter() - began
    return outcome


def _is_over(run: Run, now: int) -> bool:
    assert run.since is not None
    return run.since + run.really <= now or (run.leaves_at is not None and run.leaves_at <= now)


def _leave(peer: Peer, run: Run, outcome: Outcome) -> None:
    assert run.since is not None
    peer.running.remove(run)
    outcome.spans.append((run.job.tenant, run.job.ask.count, run.since, peer.now))
    had = peer.now - run.since
    run.asked, run.really = run.asked - had, run.really - had
    run.since, run.leaves_at = None, None
    if run.really > 0:
        outcome.pauses += 1
        peer.waiting.append(run)
    else:
        outcome.ended[run.job.name] = peer.now


def slurm(peer: Peer) -> None:
    """Priority by QOS, fair share and age; an own partition up to the guarantee, which preempts
    the other; backfill by requested times behind one reservation."""
    share = {tenant: peer.use(tenant, own_only=False) for tenant in GUARANTEES}

    def priority(run: Run) -> tuple[float, int]:
        weight = max(1, GUARANTEES[run.job.tenant])
        fair = 2 ** (-share[run.job.tenant] / (2 * weight))
        age = min(1.0, (peer.now - run.job.at) / (7 * 24 * HOUR))
        return -(1_000 * run.job.tier.priority / 90 + 1_000 * fair + 500 * age), run.job.at

    reserved: int | None = None
    for run in sorted(peer.waiting, key=priority):
        used = peer.use(run.job.tenant, own_only=True) + run.job.ask.count
        is_own = run.job.tier.counts and used <= GUARANTEES[run.job.tenant]
        if is_own or run.job.tier.pausable:
            _slurm_place(peer, run, reserved, is_own=is_own)
            if run.since is None and reserved is None:
                reserved = _reservation(peer, run.job.ask.count)


def _slurm_place(peer: Peer, run: Run, reserved: int | None, *, is_own: bool) -> None:
    count = run.job.ask.count
    if count <= peer.free and (reserved is None or peer.now + run.asked <= reserved):
        peer.start(run, is_own=is_own)
    elif is_own and count > peer.free + peer.coming:
        peer.preempt(
            count - peer.free - peer.coming,
            lambda r: r.job.tier.pausable and not r.is_own and peer.now - (r.since or 0) >= PROTECTED,
        )


def _reservation(peer: Peer, count: int) -> int:
    """When so many GPUs are free by requested times: nothing behind may run longer."""
    free = peer.free
    for run in sorted(peer.running, key=lambda r: r.leaves_at or r.ends):
        free += run.job.ask.count
        if free >= count:
            return max(peer.now, run.leaves_at or run.ends)
    return peer.now


def kueue(peer: Peer) -> None:
    """Cluster queues in a cohort: what fits nominal quota first, then priority and time; reclaim
    within the cohort, lower priority within a queue; no reservations, best effort FIFO."""

    def borrows(run: Run) -> bool:
        used = peer.use(run.job.tenant, own_only=False) + run.job.ask.count
        return used > GUARANTEES[run.job.tenant]

    for run in sorted(peer.waiting, key=lambda r: (borrows(r), -r.job.tier.priority, r.job.at)):
        count, is_borrowing = run.job.ask.count, borrows(run)
        if count <= peer.free:
            peer.start(run, is_own=not is_borrowing)
        elif count > peer.free + peer.coming:
            peer.preempt(
                count - peer.free - peer.coming,
                partial(_kueue_victim, peer, run, may_reclaim=not is_borrowing),
            )


def _kueue_victim(peer: Peer, claimant: Run, run: Run, *, may_reclaim: bool) -> bool:
    if run.job.tenant == claimant.job.tenant:
        return run.job.tier.priority < claimant.job.tier.priority
    used = peer.use(run.job.tenant, own_only=False)
    return may_reclaim and used > GUARANTEES[run.job.tenant]


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
        "slurm": peer_run(jobs, slurm),
        "kueue": peer_run(jobs, kueue),
    }
    rows = [figures(name, jobs, outcome) for name, outcome in outcomes.items()]
    for row in rows:
        sys.stdout.write(json.dumps({**row, "machine": machine()}) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
