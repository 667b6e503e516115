"""From request to a GPU handed over, on many nodes: `python -m tests.bench.live.admissions`.

The nodes run the real agent on simulated GPUs, many in one process (`tests.bench.live.nodes`).
By default people book by REST on 50 nodes at a steady rate, whatever the portal does. The time is
from the moment the request was due until the portal has applied the node's report that the device
is handed over. `--burst 1000` queues 1,000 bookings of one GPU at once, and counts from the start
of the first cycle that decides on them. It needs some more GPUs, because bookings that are already
queued at the site get the first ones.

In both cases the history shows what each booking waited for: `starting` has the time at which its
cycle began, `started` the time at which the report was taken.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.bench.live.inside import CLASS, Member, nodes_add, processor_seconds, site_enter, used_by
from tests.bench.live.lines import Lines
from tests.bench.machine import ROOT, cpu_of_machine, cpu_seconds, machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

PART, TENANT, PROJECT = "tenant_admin", "helix", "language-models"
GPUS = 8
PATIENCE_S = 300
WARM_S = 5.0
# Polling uses processor time of the measured machine.
LOOK_EVERY_S = 0.5
UNITS = 56_000 * 4_000
ASK = {"count": 1, "classes": [CLASS], "profile": "1g.10gb", "duration": 600}


@contextlib.contextmanager
def served(members: list[Member], url: str) -> Iterator[int]:
    """Runs the members' agents in a separate process until the end of the block; yields its id."""
    with tempfile.TemporaryDirectory(prefix="bench-nodes-") as folder:
        path = Path(folder) / "members.json"
        site_keys = {
            "redis": url,
            "gpus": GPUS,
            "members": {member.name: member.key.hex() for member in members},
        }
        path.write_text(json.dumps(site_keys), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.live.nodes", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "serving\n", "the nodes did not come"
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


def capacity_make() -> None:
    """Gives the project a quota and a budget for every GPU of the class."""
    from django.utils import timezone  # noqa: PLC0415 (Django is there only now)

    from billing.models import Budget  # noqa: PLC0415
    from billing.rules import BudgetTerms, Period  # noqa: PLC0415
    from billing.services import budget_put  # noqa: PLC0415
    from tenants.models import Quota  # noqa: PLC0415

    Quota.objects.filter(tenant__slug=TENANT, gpu_class=CLASS).update(
        guaranteed_units=UNITS, borrow_limit_units=None
    )
    for budget in Budget.objects.filter(tenant__slug=TENANT):
        terms = BudgetTerms(Period(budget.starts, budget.ends), Decimal(10_000_000))
        budget_put(actor_id=None, owner=budget.owner, terms=terms, now=timezone.now())


def await_agents(members: list[Member]) -> bool:
    """Whether every node's agent has read the newest document."""
    from django.db.models import F  # noqa: PLC0415

    from allocation.models import Node  # noqa: PLC0415

    names = [member.name for member in members]
    heard = Node.objects.filter(name__in=names, observed_generation=F("generation"))
    return heard.exclude(heartbeat_at=None).count() == len(names)


async def people(site: Site, options: argparse.Namespace) -> tuple[dict[str, float], Counter[int]]:
    """Books at random moments; returns when each accepted booking was due, by number."""
    chance = random.Random(3)  # noqa: S311  the same arrivals each time
    due_at: dict[str, float] = {}
    statuses: Counter[int] = Counter()
    lines = Lines(site, PART)
    body = json.dumps({"project": PROJECT, "tier": "standard", "ask": ASK}).encode()

    async def ask(due: float) -> None:
        status, answer = await lines.post("/bookings", body, str(uuid4()))
        statuses[status] += 1
        if status == HTTPStatus.CREATED:
            due_at[json.loads(answer)["number"]] = due

    async with asyncio.TaskGroup() as tasks:
        due = time.time()
        until = due + options.seconds
        while due < until:
            await asyncio.sleep(due - time.time())
            tasks.create_task(ask(due))
            due += chance.expovariate(options.rate)
    lines.close()
    return due_at, statuses


def burst(count: int) -> list[str]:
    """Queues `count` bookings of one GPU at once; returns their numbers."""
    from django.db import transaction  # noqa: PLC0415
    from django.utils import timezone  # noqa: PLC0415

    from allocation.rules.ask import AskDocument  # noqa: PLC0415
    from allocation.services.bookings.creation import booking_request  # noqa: PLC0415
    from allocation.services.bookings.requests import BookingRequest  # noqa: PLC0415
    from tenants.access import actor_by_id  # noqa: PLC0415
    from tenants.models import Membership  # noqa: PLC0415

    admin = Membership.objects.get(tenant__slug=TENANT, role="tenant_admin")
    actor = actor_by_id(admin.user_id, TENANT)
    request = BookingRequest(PROJECT, "standard", AskDocument.from_json({**ASK, "profile": None}))
    with transaction.atomic():
        now = timezone.now()
        return [booking_request(actor=actor, request=request, now=now).label for _ in range(count)]


def capacity_check(members: list[Member], count: int) -> None:
    """Ends the bench if fewer GPUs are free than it needs, because it would never finish."""
    from allocation.models import Allocation, Gpu  # noqa: PLC0415

    own = Gpu.objects.filter(node__name__in=[member.name for member in members])
    free = own.exclude(allocation__state__in=Allocation.LIVE).count()
    if free < count:
        raise SystemExit(
            f"Only {free} of the nodes' {own.count()} GPUs are free, and {count} bookings would "
            "start: the site's own waiting bookings came here first. Add nodes."
        )


def all_started(numbers: list[str]) -> bool:
    """Whether the nodes have reported all of them."""
    from allocation.models import BookingEvent  # noqa: PLC0415

    asked = [int(number.removeprefix("BK-")) for number in numbers]
    rows = BookingEvent.objects.filter(kind="started", booking__tenant__slug=TENANT)
    return rows.filter(booking__number__in=asked).count() == len(asked)


def moments(numbers: list[str]) -> dict[str, tuple[float, float]]:
    """When the deciding cycle of each booking began, and when it was started, in Unix seconds."""
    from allocation.models import BookingEvent  # noqa: PLC0415

    rows = BookingEvent.objects.filter(
        booking__tenant__slug=TENANT,
        booking__number__in=[int(number.removeprefix("BK-")) for number in numbers],
        kind__in=("starting", "started"),
    )
    found: dict[str, dict[str, float]] = {}
    for number, kind, at in rows.values_list("booking__number", "kind", "at"):
        found.setdefault(f"BK-{number}", {})[kind] = at.timestamp()
    return {number: (each["starting"], each["started"]) for number, each in found.items() if len(each) == 2}


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one of the two loads."""
    site_enter(site)
    from django.conf import settings  # noqa: PLC0415 (Django is there only now)

    capacity_make()
    members = nodes_add("bench", options.nodes, GPUS)

    def used_now() -> dict[str, float]:
        return {**processor_seconds(site), "client": cpu_seconds(), "agents": used_by(agents)}

    with served(members, settings.AGENTS_REDIS_URL) as agents:
        wait_until(lambda: await_agents(members), seconds=PATIENCE_S)
        time.sleep(WARM_S)
        before, (busy, total), began = used_now(), cpu_of_machine(), time.monotonic()
        if options.burst:
            capacity_check(members, options.burst)
            asked: dict[str, float] = dict.fromkeys(burst(options.burst), 0.0)
            statuses: Counter[int] = Counter()
        else:
            asked, statuses = asyncio.run(people(site, options))
        taken = time.monotonic()
        wait_until(lambda: all_started(list(asked)), seconds=PATIENCE_S, every=LOOK_EVERY_S)
        ended = time.monotonic()
        used = used_now()
        busy, total = (n - t for n, t in zip(cpu_of_machine(), (busy, total), strict=True))
        found = moments(list(asked))
    first, last = min(s for s, _ in found.values()), max(s for _, s in found.values())
    first_started = min(started for _, started in found.values())
    result = {
        "bench": "burst" if options.burst else "admissions",
        "nodes": options.nodes,
        "bookings": len(asked),
        "statuses": dict(statuses),
        "decision_to_started": spread([started - began for began, started in found.values()]),
        "processor_ms_per_booking": {
            name: round(1000 * (seconds - before[name]) / len(asked), 1) for name, seconds in used.items()
        },
        "machine_busy_percent": round(busy / total * 100, 1),
        "machine": machine(),
    }
    if options.burst:
        seconds = last - first
        return {**result, "cycle_to_all_s": round(seconds, 2), "per_second": _rate(asked, seconds)}
    return {
        **result,
        "rate": options.rate,
        "asked_per_second": _rate(asked, taken - began),
        "per_second": _rate(asked, ended - began),
        "started_per_second": _rate(asked, last - first_started),
        "request_to_started": spread([found[n][1] - due for n, due in asked.items()]),
    }


def _rate(asked: dict[str, float], seconds: float) -> float:
    return round(len(asked) / seconds, 1)


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.admissions", description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rate", type=float, default=40, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--burst", type=int, default=0, help="so many in line at once instead")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
