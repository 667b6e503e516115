"""The processor time of a trial of a version of the policy on the past.

`python -m tests.bench.solver.trial --gpus 256 --bookings 5000 --days 30`.

The past is made up and the same each time: four classes on nodes of eight, twelve organisations with
two projects each, three tiers, a tenth fixed windows, some cancelled bookings and outages. Both
versions play it, the candidate with other steps of waiting. JSON on stdout, with a digest of both
outcomes: a change that is about speed alone leaves it as it is.
"""

import argparse
import hashlib
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from allocation.features.policy_lab.plays.past import History, Outage, Outcome, Past
from allocation.features.policy_lab.plays.play import Play
from allocation.services.gc_paused import gc_paused
from solver import UNITS_PER_GPU, Ask, Limit, Policy, Request, Snapshot, Tier
from tests.bench.machine import machine, report
from tests.bench.solver.cycle import CLASSES, PROFILES, a_fleet
from tests.solver.builders import DAY, HOUR, MODELS, NOON

TIERS = (
    Tier("standard", pausable=False, counts=True, priority=50),
    Tier("flex", pausable=True, counts=True, priority=30, grace=600, protected=1_800, pauses=3),
    Tier("spot", pausable=True, counts=False, priority=10, grace=60),
)
TENANTS = 12
VERSIONS = (Policy(1), Policy(2, age_step=6 * HOUR))
# More requests come in the daytime.
_HOURS_OF_DAY = (*range(24), *range(8, 19), *range(8, 19))


def a_past(number: int, days: int, chance: random.Random) -> Past:
    """One booking of the mix; its run takes a third to all of what it asks for."""
    gpu_class = chance.choice([name for name, _ in CLASSES])
    is_sliced = gpu_class in PROFILES and gpu_class != "a100" and chance.random() < 0.2
    profile = chance.choice(PROFILES[gpu_class]) if is_sliced else None
    count = chance.choice((1, 1, 1, 2, 2, 4, 4, 8)) if profile is None else 1
    tier = chance.choices(TIERS, (6, 3, 2))[0]
    submitted = NOON + chance.randrange(days) * DAY + chance.choice(_HOURS_OF_DAY) * HOUR
    submitted += chance.randrange(HOUR)
    is_fixed = not tier.pausable and chance.random() < 0.1
    duration = HOUR * chance.choice((1, 2, 4, 8, 8, 12, 24, 48))
    tenant = f"t{chance.choice((*range(TENANTS), *range(TENANTS // 3))):02}"
    request = Request(
        booking=f"b{number:06}",
        tenant=tenant,
        project=f"{tenant}-p{chance.randrange(2)}",
        tier=tier.slug,
        priority=tier.priority,
        submitted=submitted,
        ask=Ask(count, (gpu_class,), profile, "node" if count > 4 else "any", required=False),
        duration=duration,
        earliest=submitted + (HOUR * chance.randint(1, 72) if is_fixed else 0),
        latest=None,
        fixed=is_fixed,
        planned=None,
        owner=f"{tenant}-o{chance.randrange(5)}",
    )
    if chance.random() < 0.05:
        return Past(request, cancelled=submitted + chance.randrange(HOUR, 12 * HOUR))
    return Past(request, duration * chance.randint(33, 100) // 100)


def a_history(gpus: int, bookings: int, days: int) -> History:
    """The same past for the same numbers."""
    chance = random.Random(11)  # noqa: S311  a made-up site, the same each time
    fleet = a_fleet(gpus)
    limits = tuple(
        Limit(f"t{tenant:02}", None, name, gpus // len(CLASSES) * UNITS_PER_GPU // TENANTS, None, None)
        for tenant in range(TENANTS)
        for name, _ in CLASSES
    )
    site = Snapshot(NOON, MODELS, fleet, (), (), (), limits, tiers=TIERS)
    past = tuple(a_past(number, days, chance) for number in range(bookings))
    outages = tuple(
        Outage(gpu.id, starts, starts + 2 * HOUR)
        for starts in range(NOON + 5 * DAY, NOON + days * DAY, 7 * DAY)
        for gpu in fleet[starts // DAY % (gpus // 8) * 8 :][:8]
    )
    return History(site, past, NOON + days * DAY, outages)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Both versions, one after the other."""
    history = a_history(options.gpus, options.bookings, options.days)
    seconds: list[float] = []
    outcomes: list[Outcome] = []
    lengths = {each.request.booking: each.really or each.request.duration for each in history.past}
    for policy in VERSIONS:
        began = time.process_time()
        play = Play(history, policy, lengths)
        with gc_paused():
            for _ in play.turns():
                pass
        seconds.append(time.process_time() - began)
        outcomes.append(play.outcome)
    written = json.dumps([_written(each) for each in outcomes])
    room = options.gpus * UNITS_PER_GPU * options.days * DAY
    return {
        "machine": machine(),
        "gpus": options.gpus,
        "bookings": options.bookings,
        "days": options.days,
        "plays_s": [round(each, 1) for each in seconds],
        "trial_s": round(sum(seconds), 1),
        "turns": [each.turns for each in outcomes],
        "in_use_percent": [round(100 * each.used.total() / room, 1) for each in outcomes],
        "pauses": [sum(fate.pauses for fate in each.fates.values()) for each in outcomes],
        "digest": hashlib.sha256(written.encode()).hexdigest()[:16],
    }


def _written(outcome: Outcome) -> list[Any]:
    fates = [
        (booking, fate.started, fate.pauses, fate.refused, fate.inside, fate.cancelled)
        for booking, fate in sorted(outcome.fates.items())
    ]
    used: Counter[tuple[str, ...]] = Counter()
    for use, amount in outcome.used.items():
        used[use[:4]] += amount
    return [outcome.turns, fates, sorted(used.items())]


def arguments() -> argparse.ArgumentParser:
    """The size of the past."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.solver.trial", description=__doc__)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--bookings", type=int, default=5_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    report("trial", measure(options), options.out)


if __name__ == "__main__":
    main()
