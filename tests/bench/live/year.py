"""What a year of a busy site takes in the database: `python -m tests.bench.live.year --days 8`.

The services simulate a site of 28 GPUs as they do for the demo (docs/decisions/tests.md): people request,
cancel, extend and release bookings, the cycle decides, nodes report. The demand is `--load` percent
of the GPU time, at random moments, by seven people of two tenants: half of the bookings are for
slices, most start as early as possible, some the next day, one in four may be paused. In the last
`--readings-hours` each node sends all readings every ten seconds, as an agent does.

Then all sweeps run, the database is vacuumed, and each table is measured with its indexes. Rows
without a retention time grow by what the second half of the days added; others are counted for
their retention time. Decisions are reported separately: `manage.py archive` moves their bytes after
90 days.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid5
from zoneinfo import ZoneInfo

import psycopg

from tests.bench.live.telemetry import database
from tests.bench.machine import machine, report
from tests.servers.servers import DATABASE, Servers

if TYPE_CHECKING:
    import wire
    from allocation.services.inbox.batch import StreamMessage
    from devtools.demo.history import TimedAction
    from devtools.demo.nodes import DemoFleet, DemoNode
    from devtools.demo.week import People

UNTIL = datetime(2026, 11, 21, tzinfo=UTC)
YEAR, GOAL_MB = 365, 5_000
GPUS = 28
# Days after which rows of a table are removed; other rows stay longer than a year.
KEPT = {
    "allocation_gpusample": 2,
    "allocation_gpuuse": 90,
    "tenants_outboxmessage": 7,
    "tenants_mail": 30,
}
READINGS = ("allocation_gpusample", "allocation_gpuuse")
DECISION_BYTES = "allocation_decision, bytes"
EVERY_S, BATCH = 10, timedelta(minutes=15)
SWEEP = timedelta(hours=12)

FOLDING, CRYO = ("helix", "protein-folding"), ("helix", "cryo-em")
WORDS, CLIMATE = ("helix", "language-models"), ("northlab", "climate")


@dataclass(frozen=True)
class Work:
    """A kind of job: its owner, its request, its hours, and its number of GPUs."""

    owner: str
    project: tuple[str, str]
    tier: str
    what: str
    hours: tuple[int, int]
    gpus: float


# By class, with its number of GPUs; each kind is requested equally often.
WORKS: Mapping[str, tuple[int, tuple[Work, ...]]] = {
    "h100": (
        8,
        (
            Work("mara", FOLDING, "standard", "2 h100", (3, 8), 2),
            Work("tomas", WORDS, "assured", "1 h100", (2, 8), 1),
            Work("jonas", FOLDING, "standard", "1 h100", (2, 6), 1),
            Work("nils", CLIMATE, "spot", "1 h100", (2, 8), 1),
            Work("mara", FOLDING, "standard", "1 1g.10gb h100", (2, 6), 1 / 7),
            Work("mara", WORDS, "standard", "1 2g.20gb h100", (2, 6), 2 / 7),
            Work("nils", CLIMATE, "spot", "1 3g.40gb h100", (2, 6), 1 / 2),
            Work("freya", CLIMATE, "standard", "1 1g.20gb h100", (2, 6), 1 / 4),
        ),
    ),
    "a100": (
        8,
        (
            Work("ines", CRYO, "assured", "2 a100", (3, 8), 2),
            Work("mara", WORDS, "standard", "1 a100", (2, 8), 1),
            Work("nils", CLIMATE, "standard", "1 a100", (2, 6), 1),
            Work("jonas", FOLDING, "spot", "2 a100", (2, 8), 2),
            Work("tomas", CRYO, "standard", "1 2g.20gb a100", (2, 6), 2 / 7),
            Work("tomas", WORDS, "standard", "1 1g.10gb a100", (2, 6), 1 / 7),
            Work("mara", WORDS, "spot", "1 3g.40gb a100", (2, 6), 1 / 2),
        ),
    ),
    "a100-40": (
        8,
        (
            Work("ines", CRYO, "standard", "1 a100-40", (2, 8), 1),
            Work("tomas", CRYO, "spot", "2 a100-40", (2, 8), 2),
            Work("ines", CRYO, "standard", "1 1g.5gb a100-40", (2, 6), 1 / 7),
            Work("ines", CRYO, "standard", "1 3g.20gb a100-40", (2, 6), 1 / 2),
            Work("tomas", CRYO, "spot", "2 2g.10gb a100-40", (2, 6), 4 / 7),
        ),
    ),
    "l40s": (
        4,
        (
            Work("tomas", WORDS, "spot", "1 l40s", (2, 6), 1),
            Work("mara", FOLDING, "standard", "1 l40s", (2, 8), 1),
        ),
    ),
}
MONEY = Decimal(1_000_000)


def acts(people: "People", load: float, since: datetime, until: datetime) -> "Iterator[TimedAction]":
    """Yields all actions of people, the same in each run."""
    dice = random.Random("a busy site")  # noqa: S311 (not for secrets)
    number = 0
    for gpus, works in WORKS.values():
        mean = sum(work.gpus * sum(work.hours) / 2 for work in works) / len(works)
        between, at = timedelta(hours=mean / (gpus * load)), since
        while (at := (at + dice.expovariate(1) * between).replace(microsecond=0)) < until:
            number += 1
            yield from _life(people, dice, dice.choice(works), number, at)


def _life(
    people: "People", dice: random.Random, work: Work, number: int, at: datetime
) -> "Iterator[TimedAction]":
    """Yields the actions of a booking, which is mostly used to its end."""
    from allocation.services.bookings.release import booking_cancel, booking_release  # noqa: PLC0415
    from devtools.demo.features import _booking_extends  # noqa: PLC0415
    from devtools.demo.history import TimedAction  # noqa: PLC0415
    from devtools.demo.week import NAMESPACE, ZONE, BookingText, owner_does  # noqa: PLC0415

    hours, starts, text = dice.randint(*work.hours), at, ""
    if dice.random() < 0.15:
        starts = (at + timedelta(hours=dice.randint(3, 24))).replace(minute=0, second=0)
        text = f" at {starts.astimezone(ZoneInfo(ZONE)):%H:%M on %Y-%m-%d}"
    key = uuid5(NAMESPACE, f"busy {number}")
    line = BookingText(
        key, f"job-{number}", work.owner, work.project, work.tier, f"{work.what} {hours}h{text}"
    )
    yield TimedAction(at, partial(people.book, line))
    length = timedelta(hours=hours)
    (fate,) = dice.choices(("", "release", "cancel", "extend"), (72, 15, 8, 5))
    if fate == "release":
        yield TimedAction(starts + length * 3 / 5, owner_does(booking_release, key))
    elif fate == "cancel":
        yield TimedAction(at + (starts - at) / 2 + timedelta(minutes=2), owner_does(booking_cancel, key))
    elif fate == "extend":
        yield TimedAction(starts + length * 3 / 5, owner_does(_booking_extends, key))


def readings(fleet: "DemoFleet", now: datetime) -> None:
    """Sends the readings of all nodes since the last batch, every ten seconds, and a heartbeat."""
    from allocation.services.inbox.batch import messages_apply  # noqa: PLC0415

    said = [each for node in fleet.nodes.values() for each in _words(node, now)]
    messages_apply(said, now)


def _words(node: "DemoNode", now: datetime) -> "Iterator[StreamMessage]":
    import wire  # noqa: PLC0415

    first = int((now - BATCH).timestamp())
    for at in range(first + EVERY_S, int(now.timestamp()) + 1, EVERY_S):
        node._readings += 1
        samples = tuple(_samples(node, at))
        yield node._signed(wire.Telemetry(sent_at=at, samples=samples, seq=node._readings))
    yield node._signed(
        wire.Heartbeat(
            seq=node._readings,
            observed_generation=node._generation,
            sent_at=int(now.timestamp()),
            epoch=node._epoch,
        )
    )


def _samples(node: "DemoNode", at: int) -> "Iterator[wire.Sample]":
    """Yields a reading of each whole GPU, and of each slice with a booking."""
    whole = {uuid: None for uuid, mode in node._modes.items() if mode == "whole"}
    held = [(key, place) for key, place in node._places.items() if place.state == "ready"]
    for key, place in held:
        if place.desired.profile:
            yield _sample(place.gpu, key, place.desired.slot, place.desired.size, at)
        else:
            whole.pop(place.gpu, None)
            yield _sample(place.gpu, key, None, None, at)
    for uuid in whole:
        yield _sample(uuid, None, None, None, at)


def _sample(gpu: str, key: str | None, slot: int | None, size: int | None, at: int) -> "wire.Sample":
    import wire  # noqa: PLC0415

    busy = key is not None
    return wire.Sample(
        gpu=gpu,
        slot=slot,
        size=size,
        allocation=key,
        utilisation=at // EVERY_S % 60 + 40 if busy else 0,
        memory_used_mb=50_000 if busy else 0,
        memory_total_mb=81_559,
        power_mw=400_000 + at % 50_000 if busy else 60_000,
        temperature_c=61,
        processes=1 if busy else 0,
        bandwidth=40 if busy else 0,
        tensor=30 if busy else 0,
        sm_mhz=1_755,
        throttle=0,
        pcie_rx_kb=at % 5_000,
        pcie_tx_kb=at % 7_000,
        nvlink_rx_kb=at % 90_000,
        nvlink_tx_kb=at % 80_000,
        energy_mj=at * 400,
    )


def sweeps(now: datetime) -> None:
    """Runs the worker's removals."""
    from allocation.services.nodes.telemetry import (  # noqa: PLC0415
        telemetry_sweep,
        usage_roll_up,
        usage_sum_up,
    )
    from portal.integrations.mail.send import mails_sweep  # noqa: PLC0415
    from portal.integrations.relay import outbox_sweep  # noqa: PLC0415

    usage_roll_up(now)
    usage_sum_up(now)
    telemetry_sweep(now)
    outbox_sweep(now)
    mails_sweep(now)


def site_make(since: datetime) -> None:
    """Creates the demo's hardware and people, with very large budgets."""
    from billing.models import Budget  # noqa: PLC0415
    from billing.rules import BudgetTerms, Period  # noqa: PLC0415
    from billing.services import budget_put  # noqa: PLC0415
    from devtools.demo.nodes import nodes_enrol  # noqa: PLC0415
    from devtools.demo.people import people_seed  # noqa: PLC0415
    from devtools.demo.site import catalogue_seed  # noqa: PLC0415

    catalogue_seed(since)
    people_seed(UNTIL.date(), since)
    for each in Budget.objects.all():
        terms = BudgetTerms(Period(each.starts, each.ends), MONEY)
        budget_put(actor_id=None, owner=each.owner, terms=terms, now=since)
    nodes_enrol(since)


def live(options: argparse.Namespace, servers: Servers) -> dict[str, Any]:
    """Simulates the days; returns sizes after the first half and at the end, and counts."""
    from devtools.demo.history import Intervals, TimedAction, history_simulate  # noqa: PLC0415
    from devtools.demo.nodes import DemoFleet  # noqa: PLC0415
    from devtools.demo.week import People  # noqa: PLC0415

    since = UNTIL - timedelta(days=options.days)
    half, began = since + (UNTIL - since) / 2, time.perf_counter()
    site_make(since)
    people = People(set())
    fleet = DemoFleet(people.no_shows)
    todo = [*acts(people, options.load / 100, since, UNTIL)]
    at = UNTIL - timedelta(hours=options.readings_hours)
    while (at := at + BATCH) < UNTIL:
        todo.append(TimedAction(at, partial(readings, fleet)))
    todo += [TimedAction(since + SWEEP * n, sweeps) for n in range(1, options.days * 2)]
    intervals = Intervals(timedelta(minutes=options.turn_minutes), timedelta(minutes=1))
    history_simulate(todo, fleet, since=since, until=half, intervals=intervals)
    before = sizes(servers)
    history_simulate(todo, fleet, since=half, until=UNTIL, intervals=intervals)
    sweeps(UNTIL)
    return {
        **happened(half),
        "lived_s": round(time.perf_counter() - began),
        **extrapolated(before, sizes(servers), options),
    }


def sizes(servers: Servers) -> dict[str, tuple[int, int]]:
    """Rows and bytes of each table with its indexes, after VACUUM; bytes of decisions apart."""
    with psycopg.connect(servers.dsn("postgres", DATABASE), autocommit=True) as admin:
        admin.execute("VACUUM ANALYZE")
        found = admin.execute(
            "SELECT relname, reltuples::bigint, pg_total_relation_size(oid),"
            " CASE WHEN reltoastrelid = 0 THEN 0 ELSE pg_total_relation_size(reltoastrelid) END"
            " FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        ).fetchall()
    rows = {name: (max(0, count), taken) for name, count, taken, _ in found}
    toast = next(bytes_ for name, *_, bytes_ in found if name == "allocation_decision")
    count, taken = rows["allocation_decision"]
    rows["allocation_decision"], rows[DECISION_BYTES] = (count, taken - toast), (count, toast)
    return rows


def happened(half: datetime) -> dict[str, Any]:
    """The load of the second half, by the portal's records."""
    from django.db.models import Count  # noqa: PLC0415

    from allocation.models import Allocation, Booking, Decision, Pause  # noqa: PLC0415

    days = (UNTIL - half) / timedelta(days=1)
    new = Booking.objects.filter(submitted__gte=half)
    ran = (Allocation.State.ACTIVE, Allocation.State.RELEASING, Allocation.State.ENDED)
    runs = Allocation.objects.filter(state__in=ran, period__overlap=(half, UNTIL))
    hours = sum(
        (min(row.period.upper, UNTIL) - max(row.period.lower, half)) / timedelta(hours=1) * row.size / 8
        for row in runs
    )
    by_outcome = new.values_list("outcome").annotate(n=Count("id"))
    return {
        "bookings_a_day": round(new.count() / days),
        "decisions_a_day": round(Decision.objects.filter(at__gte=half).count() / days),
        "pauses_a_day": round(Pause.objects.filter(notified_at__gte=half).count() / days, 1),
        "gpus_busy_percent": round(100 * hours / (24 * days * GPUS)),
        "outcomes": {name or "open": n for name, n in by_outcome},
    }


def extrapolated(
    before: Mapping[str, tuple[int, int]],
    after: Mapping[str, tuple[int, int]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Megabytes after a year by table, the largest first."""
    lived, tables = options.days / 2, {}
    for name, (rows, taken) in after.items():
        first_rows, first = before[name]
        kept, days = KEPT.get(name, YEAR), lived
        if name in READINGS:
            first_rows, first, days = 0, 0, options.readings_hours / 24
        if name == DECISION_BYTES:
            kept = 90
        daily = (taken - first) / days
        year = taken if kept <= options.days and name not in READINGS else taken + daily * kept
        tables[name] = {
            "rows_a_day": round((rows - first_rows) / days),
            "kb_a_day": round(daily / 1_000, 1),
            "days_kept": kept,
            "year_mb": round(year / 1e6, 1),
        }
    aside = tables.pop(DECISION_BYTES)
    ordered = dict(sorted(tables.items(), key=lambda each: -float(each[1]["year_mb"])))
    total = sum(float(each["year_mb"]) for each in tables.values())
    return {
        "tables": {name: each for name, each in ordered.items() if float(each["year_mb"]) >= 1},
        "decisions_bytes": aside,
        "year_mb_without_decisions": round(total),
        "goal_mb": GOAL_MB,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs on a new database and a new Valkey."""
    from tests.roles import as_owner  # noqa: PLC0415 (Django is there only in it)

    with database() as servers:
        servers.valkey_ensure()
        with as_owner():
            result = live(options, servers)
    return {"bench": "year", "days": options.days, "load": options.load, **result, "machine": machine()}


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.year", description=__doc__)
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--load", type=int, default=95, help="percent of all GPUs asked for")
    parser.add_argument("--readings-hours", type=int, default=12)
    parser.add_argument("--turn-minutes", type=int, default=10, help="a turn while anybody waits")
    parser.add_argument("--out", type=Path, default=None, help="folder for year.json")
    return parser


def main() -> None:
    """Measures and prints; the last line is the whole result."""
    options = arguments().parse_args()
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "bench-year-mail"  # noqa: S108
    folder.mkdir(exist_ok=True)
    os.environ["MAIL_URL"] = f"file://{folder}"
    result = measure(options)
    report("year", result, options.out)
    print(json.dumps(result))  # noqa: T201 (a result, to stdout)


if __name__ == "__main__":
    main()
