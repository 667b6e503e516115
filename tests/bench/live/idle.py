"""What an idle site takes: `python -m tests.bench.live.idle --held 10000 --seconds 120`.

A demo; so many bookings more, a quarter of an hour each, are planned one after another on its
largest node, later than all others, and five wait for room behind them. Nobody asks for anything.
JSON: processor time of each program in percent of one core, its children included, and of
PostgreSQL and Valkey. Agents, which run on other machines, are apart.
"""

import argparse
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.bench.live.inside import processor_seconds, shares, site_enter
from tests.bench.machine import machine
from tests.bench.site import Site, bench_run, site_options

if TYPE_CHECKING:
    from allocation.models import Allocation, Booking, Gpu

WAITING, LENGTH = 5, timedelta(minutes=15)
# The demo's seed has no booking later than this.
FREE_FROM = timedelta(days=10)
NODE = "gpu-a1-01"
AGENTS = "gpu-"


def held_add(count: int, now: datetime) -> None:
    """Adds the bookings."""
    from django.db import transaction  # noqa: PLC0415 (Django is there only now)

    from allocation.models import Allocation, Booking, Gpu  # noqa: PLC0415

    like = Booking.objects.filter(planned_class="h100").order_by("number").first()
    if like is None:
        raise LookupError("the demo has no booking on H100")
    gpus = list(Gpu.objects.filter(node__name=NODE).order_by("index"))
    made = list(_held(like, gpus, count, now + FREE_FROM))
    waiting = [
        _booking(like, count + number, now, now + FREE_FROM, state="queued") for number in range(WAITING)
    ]
    with transaction.atomic():
        Booking.objects.bulk_create((*(each for each, _ in made), *waiting), batch_size=500)
        Allocation.objects.bulk_create((row for _, row in made), batch_size=500)


def _held(
    like: "Booking", gpus: "list[Gpu]", count: int, first: datetime
) -> "Iterator[tuple[Booking, Allocation]]":
    from tests.builders_allocation import a_row  # noqa: PLC0415

    for number in range(count):
        starts = first + number // len(gpus) * LENGTH
        booking = _booking(like, number, starts, starts + LENGTH, state="scheduled")
        booking.planned_starts, booking.planned_ends = starts, starts + LENGTH
        booking.planned_class = "h100"
        yield booking, a_row(booking, gpus[number % len(gpus)], starts=starts, ends=starts + LENGTH)


def _booking(like: "Booking", number: int, since: datetime, until: datetime, *, state: str) -> "Booking":
    from allocation.models import Booking  # noqa: PLC0415
    from tests.builders_allocation import an_ask  # noqa: PLC0415

    length = int((until - since).total_seconds())
    return Booking(
        id=uuid4(),
        tenant_id=like.tenant_id,
        project_id=like.project_id,
        owner_id=like.owner_id,
        number=2_000_000 + number,
        tier_id="standard",
        state=state,
        not_before=since,
        ask=an_ask(hours=length / 3600).to_json(),
        duration_seconds=length,
        submitted=since,
        price_version=like.price_version,
        price_per_hour=like.price_per_hour,
        hold_amount=like.price_per_hour,
        currency=like.currency,
    )


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Percent of one core by program."""
    site_enter(site)
    from django.db import connection  # noqa: PLC0415 (Django is there only now)
    from django.utils import timezone  # noqa: PLC0415

    if options.held:
        held_add(options.held, timezone.now())
    connection.close()
    time.sleep(options.settle)
    before, began = processor_seconds(site), time.monotonic()
    time.sleep(options.seconds)
    found = shares(before, processor_seconds(site), time.monotonic() - began)
    agents = sum(used for name, used in found.items() if name.startswith(AGENTS))
    return {
        "bench": "idle",
        "held": options.held,
        "seconds": options.seconds,
        "site_percent": round(sum(found.values()) - agents, 1),
        "agents_percent": round(agents, 1),
        "programs": found,
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.idle", description=__doc__)
    parser.add_argument("--held", type=int, default=10_000, help="0: as the site is")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--settle", type=float, default=60, help="seconds before it is measured")
    site_options(parser)
    bench_run(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
