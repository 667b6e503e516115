"""What a turn costs by its parts: `python -m tests.bench.live.turn --held 1000 5000 10000`.

A site in a new database: ten bookings in a row on each GPU, the first of them running, half of
all pausable, times in seconds. Turn after turn one more booking is requested, and `cycle_run`
decides it. JSON on stdout: milliseconds of processor time of this process (`cpu`) and of the clock
(`wall`), and the stored bytes of a decision. The first turn is reported by itself.
"""

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import uuid4

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report

if TYPE_CHECKING:
    from allocation.models import Allocation, Booking, Gpu
    from tests.builders_allocation import Lab

ROW = 10
CYCLE = "allocation.services.decide.cycle"
# Parts that are timed: their name in the module of the cycle, and in the result.
PARTS = {
    "ends_due": "ends",
    "solve": "solve",
    "changes_of": "changes",
    "plan_apply": "apply",
    "starts_due": "starts",
    "publish_due": "publish",
}


class Watch:
    """Seconds of processor and clock by part."""

    def __init__(self) -> None:
        """Starts at nothing."""
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time is added to `name`."""

        @wraps(work)
        def run(*args: object, **kwargs: object) -> object:
            with self.part(name):
                return work(*args, **kwargs)

        return run

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds the time inside to `name`."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name] += time.process_time() - cpu
        self.wall[name] += time.perf_counter() - wall


def bookings(lab: "Lab", gpus: list["Gpu"], held: int) -> "Iterator[tuple[Booking, Allocation]]":
    """Bookings with their places, one after another on each GPU."""
    from allocation.models import Booking  # noqa: PLC0415 (Django is there only now)
    from tests.builders_allocation import NOW, PRICE, a_row, an_ask  # noqa: PLC0415

    dice = random.Random(held)  # noqa: S311 (not for secrets)
    for number in range(held):
        gpu, place = gpus[number // ROW], number % ROW
        if place == 0:
            at = NOW - timedelta(seconds=dice.randint(600, 3_000))
        length = timedelta(seconds=dice.randint(7_200, 40_000))
        runs = place == 0
        booking = Booking(
            id=uuid4(),
            tenant=lab.tenant,
            project=lab.project,
            owner_id=lab.actor.user_id,
            number=1_000_000 + number,
            tier_id=("standard", "spot")[number % 2],
            ask=an_ask(hours=length.total_seconds() / 3600).to_json(),
            duration_seconds=int(length.total_seconds()),
            not_before=at,
            submitted=at,
            state="active" if runs else "scheduled",
            planned_starts=at,
            planned_ends=at + length,
            planned_class="h100",
            price_version=1,
            price_per_hour=PRICE,
            hold_amount=PRICE,
            ready_at=at if runs else None,
            checked_in_at=at if runs else None,
        )
        state = "active" if runs else "planned"
        yield booking, a_row(booking, gpu, starts=at, ends=at + length, state=state)
        at += length


def site_make(held: int) -> "Lab":
    """The site; returns the lab that books."""
    from django.contrib.auth import get_user_model  # noqa: F401, PLC0415

    from allocation.models import Allocation, Booking, Gpu, Node, Rack  # noqa: PLC0415
    from billing.models import PriceBook  # noqa: F401, PLC0415
    from tests.builders import a_tier  # noqa: PLC0415
    from tests.builders_allocation import a_lab, a_model  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    lab = a_lab("bench", gpus=0, money="100000000", limit=held)
    a_tier("spot", pausable=True)
    model = a_model()
    with as_system():
        rack = Rack.objects.create(name="bench")
        nodes = Node.objects.bulk_create(
            Node(name=f"n{n:04}", rack=rack, state="ready") for n in range(-(-held // ROW // 8))
        )
        gpus = Gpu.objects.bulk_create(
            Gpu(
                number=node * 8 + index,
                node=nodes[node],
                index=index,
                uuid=f"{node}-{index}",
                model=model,
                gpu_class=model.gpu_class,
                domain=0,
            )
            for node in range(len(nodes))
            for index in range(8)
        )
        made = list(bookings(lab, gpus, held))
        Booking.objects.bulk_create((each for each, _ in made), batch_size=500)
        Allocation.objects.bulk_create((row for _, row in made), batch_size=500)
    return lab


def turns(lab: "Lab", count: int) -> list[Watch]:
    """The times of turns that decide one new booking each."""
    from django.db import connection  # noqa: PLC0415

    from allocation.services.bookings.creation import booking_request  # noqa: PLC0415
    from allocation.services.decide import cycle  # noqa: PLC0415
    from allocation.services.decide.decision_log import decision_log  # noqa: PLC0415
    from allocation.services.snapshot.kept import snapshot_keeper  # noqa: PLC0415
    from tests.builders_allocation import NOW, a_booking_request, an_ask  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    with as_system(), connection.cursor() as cursor:
        cursor.execute("RESET ROLE")
    found = []
    for number in range(count):
        now = NOW + timedelta(seconds=7 * number)
        with as_system():
            booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask(hours=3)), now=now)
        watch = Watch()
        with ExitStack() as stack:
            for name, part in PARTS.items():
                if hasattr(cycle, name):
                    work = watch.timed(part, getattr(cycle, name))
                    stack.enter_context(mock.patch(f"{CYCLE}.{name}", work))
            for owner, name in ((decision_log, "record"), (snapshot_keeper, "take")):
                timed = watch.timed(name, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
            with as_system(), watch.part("turn"):
                done = cycle.cycle_run(now)
        if done.outcome != "decided":
            raise RuntimeError(f"the turn was {done.outcome}")
        found.append(watch)
    return found


def stored() -> dict[str, Any]:
    """Bytes of the decisions."""
    from allocation.models import Decision  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    with as_system():
        sizes = [len(each.snapshot) + len(each.plan) for each in Decision.objects.order_by("id")]
    return {"first": sizes[0], "rest_mean": round(sum(sizes[1:]) / max(1, len(sizes) - 1))}


def milliseconds(found: list[Watch]) -> Mapping[str, dict[str, float]]:
    """Medians by part."""
    return {
        part: {
            "cpu": round(1_000 * median(watch.cpu[part] for watch in found), 1),
            "wall": round(1_000 * median(watch.wall[part] for watch in found), 1),
        }
        for part in found[0].wall
    }


def measure(held: int, count: int) -> dict[str, Any]:
    """One site."""
    with database() as servers:
        servers.valkey_ensure()
        lab = site_make(held)
        first, *rest = turns(lab, count)
        return {
            "held": held,
            "first": milliseconds([first]),
            "one_more": milliseconds(rest),
            "decision_bytes": stored(),
        }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.turn", description=__doc__)
    parser.add_argument("--held", type=int, nargs="+", default=[1_000, 5_000, 10_000])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--out", type=Path, default=None, help="folder for turn.json")
    options = parser.parse_args()
    sites = [measure(held, options.turns) for held in options.held]
    result = {"bench": "turn", "sites": sites, "machine": machine()}
    report("turn", result, options.out)
    print(json.dumps(result))  # noqa: T201 (a result, to stdout)


if __name__ == "__main__":
    main()
