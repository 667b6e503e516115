"""Requests of one tenant during the load of another.

`python -m tests.bench.live.noise --seconds 60`.

1,100 bookings are queued. Ten members of their tenant act at random, with a delay after each
action: they book (pinned or not, standard or spot), cancel, extend, or release. A member of another
tenant books at random moments by REST with `Prefer: wait`, whatever the portal does; the time is
from the moment the request was due until the answer with its decision. Then it is cancelled.
"""

import argparse
import asyncio
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from tests.bench.live.admissions import PROJECT, TENANT, burst, capacity_make
from tests.bench.live.inside import as_owner, processor_seconds, site_enter
from tests.bench.machine import cpu_of_machine, machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

if TYPE_CHECKING:
    from tenants.access import Actor

OTHER = "other_tenant_researcher"
REQUEST_TEXT = {"project": "climate", "request": "1 1g.10gb h100 10m"}
PATIENCE_S = 30
LOOK_EVERY_S = 0.1


class WrongResult(Exception):
    """A request was not decided or not answered, so the speed does not count."""


@dataclass
class Watched:
    """The actions of the ten members and the figures of cycles, until `stop`."""

    stop: threading.Event = field(default_factory=threading.Event)
    acts: Counter[str] = field(default_factory=Counter)
    behind: int = 0
    failed: list[str] = field(default_factory=list)


def members_make(site: Site, count: int) -> "list[Actor]":
    """New members of the noisy tenant's project."""
    from tenants.access import actor_by_id  # noqa: PLC0415 (Django is there only now)
    from tenants.models import Membership, Project, Role, User  # noqa: PLC0415

    project = Project.objects.select_related("tenant").get(tenant__slug=TENANT, slug=PROJECT)
    made = User.objects.using(as_owner(site))
    names = (f"noisy-{number}" for number in range(count))
    keys = [made.create(username=name, first_name="Noisy", last_name=name).pk for name in names]
    users = User.objects.filter(pk__in=keys)
    for user in users:
        Membership.objects.create(tenant=project.tenant, project=project, user=user, role=Role.RESEARCHER)
    return [actor_by_id(user.id, TENANT) for user in users]


def neighbour_load(actor: "Actor", every: float, seen: Watched) -> None:
    """Acts until it is stopped."""
    from django.db import connection  # noqa: PLC0415

    chance = random.Random(actor.user_id)  # noqa: S311  the same acts each time
    try:
        while not seen.stop.wait(chance.expovariate(1 / every)):
            seen.acts[_act(actor, chance)] += 1
    except Exception as error:
        seen.failed.append(repr(error))
        raise
    finally:
        connection.close()


def _act(actor: "Actor", chance: random.Random) -> str:
    from django.utils import timezone  # noqa: PLC0415

    from allocation.models import Booking  # noqa: PLC0415
    from allocation.rules.states import OPEN  # noqa: PLC0415
    from allocation.services.bookings.change.changes import booking_extend  # noqa: PLC0415
    from allocation.services.bookings.release import booking_cancel, booking_release  # noqa: PLC0415
    from tenants.platform.errors import Refused  # noqa: PLC0415
    from tenants.platform.wall import tenant_tx  # noqa: PLC0415

    now = timezone.now()
    act = chance.choice(("book", "book", "pin", "cancel", "cancel", "extend", "release"))
    try:
        with tenant_tx(actor.tenant_id):
            if act in ("book", "pin"):
                _book(actor, chance, is_pinned=act == "pin")
                return act
            found = Booking.objects.filter(owner=actor.user_id, state__in=OPEN)
            mine = list(found.order_by("-submitted")[:20])
            if not mine:
                return "nothing to act on"
            booking: Booking = chance.choice(mine)
            if act == "cancel":
                booking_cancel(actor=actor, booking=booking, now=now)
            elif act == "release":
                booking_release(actor=actor, booking=booking, now=now)
            elif booking.planned_ends is not None:
                until = booking.planned_ends + timedelta(minutes=10)
                booking_extend(actor=actor, booking=booking, until=until, now=now)
    except Refused as refusal:
        return f"{act} refused: {refusal.code}"
    return act


def _book(actor: "Actor", chance: random.Random, *, is_pinned: bool) -> None:
    from django.utils import timezone  # noqa: PLC0415

    from allocation.models import Gpu  # noqa: PLC0415
    from allocation.rules.ask import AskDocument  # noqa: PLC0415
    from allocation.services.bookings.creation import booking_request  # noqa: PLC0415
    from allocation.services.bookings.requests import BookingRequest  # noqa: PLC0415

    ask: dict[str, Any] = {
        "count": 1,
        "classes": ["h100"],
        "profile": chance.choice((None, "1g.10gb", "3g.40gb")),
        "duration": chance.choice((600, 3600)),
    }
    if is_pinned:
        gpus = Gpu.objects.filter(gpu_class="h100").select_related("node").order_by("number")
        ask["pin"] = [chance.choice(list(gpus)).node.name]
    request = BookingRequest(PROJECT, chance.choice(("standard", "spot")), AskDocument.from_json(ask))
    booking_request(actor=actor, request=request, now=timezone.now())


def watch(seen: Watched) -> None:
    """Counts consecutive cycles that postponed bookings."""
    from django.db import connection  # noqa: PLC0415

    from allocation.models import SolverState  # noqa: PLC0415

    try:
        while not seen.stop.wait(LOOK_EVERY_S):
            behind = SolverState.objects.values_list("withheld_cycles", flat=True).get()
            seen.behind = max(seen.behind, behind)
    finally:
        connection.close()


async def neighbour(site: Site, options: argparse.Namespace) -> list[float]:
    """The seconds from the moment each request was due until its decision."""
    chance = random.Random(5)  # noqa: S311  the same arrivals each time
    took: list[float] = []

    async with site.client(OTHER) as rest:

        async def ask(due: float) -> None:
            headers = {"Prefer": f"wait={PATIENCE_S}", "Idempotency-Key": str(due)}
            answer = await rest.post("/bookings", json=REQUEST_TEXT, headers=headers, timeout=60)
            state = answer.json().get("state")
            if answer.status_code != httpx.codes.CREATED or state == "requested":
                raise WrongResult(f"{answer.status_code} {state} after {time.time() - due:.1f} s")
            took.append(time.time() - due)
            await rest.post(f"/bookings/{answer.json()['number']}/cancel", json={})

        async with asyncio.TaskGroup() as tasks:
            due = time.time()
            until = due + options.seconds
            while due < until:
                await asyncio.sleep(due - time.time())
                tasks.create_task(ask(due))
                due += chance.expovariate(options.rate)
    return took


def _tallies() -> dict[str, int]:
    from allocation.models import EventCounter  # noqa: PLC0415

    return dict(EventCounter.objects.values_list("name", "count"))


def _all_decided(numbers: list[str]) -> bool:
    from allocation.models import Booking  # noqa: PLC0415

    asked = [int(number.removeprefix("BK-")) for number in numbers]
    rows = Booking.objects.filter(tenant__slug=TENANT, number__in=asked, state="requested")
    return not rows.exists()


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The other tenant's figures, and those of the load."""
    site_enter(site)
    capacity_make()
    members = members_make(site, options.members)
    waiting = burst(options.waiting)
    wait_until(lambda: _all_decided(waiting), seconds=180, every=0.5)
    seen, before, used = Watched(), _tallies(), processor_seconds(site)
    (busy, total), began = cpu_of_machine(), time.monotonic()
    threads = [
        threading.Thread(target=neighbour_load, args=(member, options.every, seen)) for member in members
    ]
    threads.append(threading.Thread(target=watch, args=(seen,)))
    for thread in threads:
        thread.start()
    try:
        took = asyncio.run(neighbour(site, options))
    finally:
        seen.stop.set()
        for thread in threads:
            thread.join(60)
    if seen.failed:
        raise WrongResult("; ".join(seen.failed[:3]))
    seconds = time.monotonic() - began
    gone = {name: count - before.get(name, 0) for name, count in _tallies().items()}
    turns = max(1, gone["cycle_turns"])
    busy, total = (n - t for n, t in zip(cpu_of_machine(), (busy, total), strict=True))
    after = processor_seconds(site)
    return {
        "bench": "noise",
        "waiting": len(waiting),
        "acts": dict(sorted(seen.acts.items())),
        "acts_per_second": round(seen.acts.total() / seconds, 1),
        "asked": len(took),
        "request_to_decided": spread(took),
        "turns": turns,
        "turn_ms": round(gone["cycle_milliseconds"] / turns),
        "plans_dropped": _by_why(gone, "plans_dropped:"),
        "answers_withheld": _by_why(gone, "answers_withheld:"),
        "most_turns_behind_in_a_row": seen.behind,
        "of_a_core_percent": {
            name: round(100 * (spent - used.get(name, 0)) / seconds) for name, spent in after.items()
        },
        "machine_busy_percent": round(busy / total * 100, 1),
        "machine": machine(),
    }


def _by_why(gone: dict[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in gone.items() if name.startswith(prefix)}


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.noise", description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_100)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between a member's acts")
    parser.add_argument("--rate", type=float, default=1.0, help="the other's requests a second")
    parser.add_argument("--seconds", type=float, default=60)
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
