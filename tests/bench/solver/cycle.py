"""The duration of a cycle.

`python -m tests.bench.solver.cycle --gpus 256 --bookings 1000 --days 28`.

A third of the GPUs can be sliced, a fifth of the time is booked already, a tenth of the bookings
are fixed windows. The first cycle plans all bookings, the second keeps all planned starts, the
third has one more booking (a cycle always covers all bookings). JSON on stdout, times in
milliseconds.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from allocation.services.gc_paused import gc_paused
from solver import (
    Ask,
    Assign,
    Gpu,
    Held,
    Limit,
    Place,
    Plan,
    PlannedStart,
    Policy,
    QuoteRequest,
    Request,
    Snapshot,
    decode,
    digest,
    encode,
    solve,
)
from solver.cycle.quote import Availability
from solver.model.demand import demands_of
from solver.model.inputs import Mode, Together
from tests.solver.builders import DAY, H100, HOUR, L40S, MODELS, NOON, a_held, gpus

CLASSES = (("h100", "h100-80gb"), ("h200", "h200-141gb"), ("a100", "a100-40gb"), ("l40s", "l40s"))
PROFILES = {
    "h100": ("1g.10gb", "2g.20gb", "3g.40gb"),
    "h200": ("1g.18gb", "2g.35gb", "3g.71gb"),
    "a100": ("1g.5gb", "2g.10gb", "3g.20gb"),
}
MODES: tuple[Mode | None, ...] = (None, "whole", "sliced")
NEAR: tuple[Together, ...] = ("any", "node", "domain")
T = TypeVar("T")


def a_fleet(count: int) -> tuple[Gpu, ...]:
    """Nodes of eight, classes in turn, four nodes to a rack."""
    nodes = []
    for number in range(count // 8):
        gpu_class, model = CLASSES[number % len(CLASSES)]
        domains = None if model == L40S.slug else 1
        mode = MODES[number // 4 % 3] if gpu_class == "a100" else None
        node = gpus(8, gpu_class, model, node=f"n{number:04}", rack=f"r{number // 4:03}", domains=domains)
        nodes.append(tuple(replace(gpu, mode=mode) for gpu in node))
    return tuple(gpu for node in nodes for gpu in node)


def held_of(fleet: tuple[Gpu, ...], chance: random.Random) -> tuple[Held, ...]:
    """A fifth of the GPUs run something for some hours."""
    return tuple(
        a_held(gpu.id, ends=HOUR * chance.randint(1, 24))
        for gpu in fleet
        if chance.random() < 0.2 and gpu.mode != "sliced"
    )


def a_request_of(number: int, chance: random.Random) -> Request:
    """One booking of the mix: half whole GPUs in gangs, half slices."""
    gpu_class = chance.choice([name for name, _ in CLASSES])
    sliced = gpu_class in PROFILES and chance.random() < 0.5
    profile = chance.choice(PROFILES[gpu_class]) if sliced else None
    count = chance.choice((1, 1, 1, 2, 2, 4, 8) if profile is None else (1, 1, 1, 2))
    together = chance.choice(NEAR) if profile is None else "any"
    required = count > 1 and gpu_class != "l40s" and chance.random() < 0.5
    fixed = chance.random() < 0.1
    return Request(
        booking=f"b{number:06}",
        tenant=f"t{number % 12}",
        project=f"p{number % 40}",
        tier="standard",
        priority=chance.choice((10, 50, 90)),
        submitted=NOON - chance.randint(0, DAY),
        ask=Ask(count, (gpu_class,), profile, together, required),
        duration=HOUR * chance.choice((1, 2, 4, 8, 24, 48)),
        earliest=NOON + (HOUR * chance.randint(1, 14 * 24) if fixed else 0),
        latest=None,
        fixed=fixed,
        planned=None,
    )


def a_site(gpu_count: int, bookings: int) -> Snapshot:
    """The same site for the same numbers."""
    chance = random.Random(7)  # noqa: S311  a made-up site, the same each time
    fleet = a_fleet(gpu_count)
    limits = tuple(
        Limit(f"t{tenant}", None, name, gpu_count * 56_000 // 12, 0, None)
        for tenant in range(12)
        for name, _ in CLASSES
    )
    requests = tuple(a_request_of(number, chance) for number in range(bookings))
    return Snapshot(NOON, MODELS, fleet, held_of(fleet, chance), requests, (), limits)


def a_row(name: str, request: Request, place: Place, given: Assign) -> Held:
    """A row of an assigned place, as the next cycle reads it."""
    people = (request.booking, request.tenant, request.project)
    level = demands_of(request)[0].level
    return Held(name, *people, place, given.starts, given.ends, started=False, level=level)


def the_next(site: Snapshot, plan: Plan) -> Snapshot:
    """The site five seconds later, with assigned places and planned starts."""
    requests = {request.booking: request for request in site.requests}
    held = tuple(
        a_row(f"{row.booking}/{place.gpu}/{place.start}", requests[row.booking], place, row)
        for row in plan.assigns
        for place in row.places
    )
    promised = tuple(
        replace(
            requests[row.booking],
            planned=PlannedStart(row.starts, row.ends, row.places, row.strength),
        )
        for row in plan.waits
    )
    return replace(site, now=site.now + 5, held=site.held + held, requests=promised)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """The result of a call, and its milliseconds."""
    begun = time.perf_counter()
    answer = call()
    return answer, round((time.perf_counter() - begun) * 1000, 1)


def decided(site: Snapshot, policy: Policy) -> Plan:
    """Decides as the service does, with the garbage collector paused."""
    with gc_paused():
        return solve(site, policy)


def quotes(site: Snapshot, policy: Policy, count: int) -> list[float]:
    """Milliseconds of each quote on the site, sorted."""
    availability = Availability(site, policy)
    chance = random.Random(11)  # noqa: S311  made-up questions
    found = []
    for number in range(count):
        request = a_request_of(number, chance)
        question = QuoteRequest(
            request.ask,
            request.duration,
            request.earliest,
            None,
            request.fixed,
            request.tenant,
            request.project,
        )
        found.append(timed(lambda asked=question: availability.quote(asked))[1])  # type: ignore[misc]  # bound now
    return sorted(found)


def measured(gpu_count: int, bookings: int, days: int, questions: int) -> dict[str, object]:
    """The figures of one size."""
    policy = Policy(1, horizon=days * DAY)
    site = a_site(gpu_count, bookings)
    solve(replace(site, requests=site.requests[:10]), policy)  # tables of the models
    plan, first = timed(lambda: decided(site, policy))
    later = the_next(site, plan)
    again, second = timed(lambda: decided(later, policy))
    newcomer = replace(a_request_of(bookings, random.Random(13)), fixed=False, earliest=NOON)  # noqa: S311
    more = replace(later, requests=(*later.requests, newcomer))
    began = time.process_time()
    _, one_more = timed(lambda: decided(more, policy))
    one_more_cpu = round((time.process_time() - began) * 1000, 1)
    data, encoding = timed(lambda: encode(later))
    back, decoding = timed(lambda: decode(Snapshot, data))
    asking = quotes(later, policy, questions)
    return {
        "gpus": len(site.gpus),
        "bookings": bookings,
        "solve_ms": first,
        "solve_promises_ms": second,
        "solve_one_more_ms": one_more,
        "solve_one_more_cpu_ms": one_more_cpu,
        "encode_ms": encoding,
        "decode_ms": decoding,
        "snapshot_bytes": len(data),
        "round_trip": digest(back) == digest(later),
        "assigned": len(plan.assigns),
        "waiting": len(plan.waits),
        "refused": len(plan.refusals),
        "assigned_later": len(again.assigns),
        "waiting_later": len(again.waits),
        "refused_later": len(again.refusals),
        "delayed_later": sum(wait.delayed_by is not None for wait in again.waits),
        "quote_ms_p50": asking[len(asking) // 2],
        "quote_ms_p99": asking[len(asking) * 99 // 100],
        "numpy": sys.modules["numpy"].__version__,
        "model": H100.slug,
    }


def growth(small: dict[str, object], large: dict[str, object]) -> dict[str, float]:
    """The ratio of each time on the larger site to the smaller one."""
    names = ("solve_ms", "solve_promises_ms", "solve_one_more_ms", "quote_ms_p50", "quote_ms_p99")
    return {name: round(float(str(large[name])) / float(str(small[name])), 2) for name in names}


def main() -> None:
    """Measures and prints; with `--growth` again on twice the nodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--bookings", type=int, default=1000)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--quotes", type=int, default=100)
    parser.add_argument("--growth", action="store_true", help="again with twice the GPUs")
    asked = parser.parse_args()
    result = measured(asked.gpus, asked.bookings, asked.days, asked.quotes)
    if asked.growth:
        larger = measured(2 * asked.gpus, asked.bookings, asked.days, asked.quotes)
        result |= {"twice_the_gpus": growth(result, larger)}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
