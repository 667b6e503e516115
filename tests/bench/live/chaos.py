"""Kills programs while people book: `python -m tests.bench.live.chaos --seconds 360`.

Makes eight bookings a second by REST, each with an idempotency key, and repeats each request until
it is answered. More than half of the decided ones are cancelled, some are extended. Every seven
seconds one program of the site is killed with `kill -9`; its launcher starts it again. Afterwards
the bench looks for every accepted booking, which must exist once, and checks all invariants.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx

from tests.bench.live.admissions import PROJECT, TENANT, capacity_make
from tests.bench.live.inside import site_enter
from tests.bench.machine import cpu_of_machine, machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

PART = "tenant_admin"
KILLED = ("web", "solver", "worker", "beat", "reader", "valkey", "valkey-agents", "postgres")
AGAIN_EVERY_S, LOOK_EVERY_S, PATIENCE_S = 0.2, 0.2, 60
CANCELLED, EXTENDED = 0.6, 0.15


class WrongResult(Exception):
    """A booking was lost or duplicated, or an invariant is violated."""


@dataclass
class Record:
    """When bookings were requested, accepted and decided, in seconds of the wall clock by name, and
    which were cancelled before a decision."""

    sent: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, tuple[float, str]] = field(default_factory=dict)
    decided: dict[str, float] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    kills: list[tuple[float, str]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def undecided(self) -> dict[str, str]:
        """The names by id of accepted bookings without a decision."""
        return {
            each: name
            for name, (_, each) in self.accepted.items()
            if name not in self.decided and name not in self.left
        }


async def _response(rest: httpx.AsyncClient, path: str, body: object, book: Record) -> httpx.Response:
    """Repeats a POST with the same key until it is answered; returns the answer."""
    headers = {"Idempotency-Key": str(uuid4())}
    while True:
        try:
            answer = await rest.post(path, json=body, headers=headers, timeout=10)
        except httpx.TransportError as lost:
            book.statuses[type(lost).__name__] += 1
        else:
            book.statuses[str(answer.status_code)] += 1
            is_busy = answer.status_code == httpx.codes.CONFLICT and "in_flight" in answer.text
            if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR and not is_busy:
                return answer
        await asyncio.sleep(AGAIN_EVERY_S)


async def _person(rest: httpx.AsyncClient, number: int, chance: random.Random, book: Record) -> None:
    name = f"chaos-{number}"
    body = {"project": PROJECT, "name": name, "request": "1 1g.10gb h100 10m"}
    book.sent[name] = time.time()
    answer = await _response(rest, "/bookings", body, book)
    if answer.status_code != httpx.codes.CREATED:
        book.refused.append(f"{answer.status_code}: {answer.text[:200]}")
        return
    said = answer.json()
    book.accepted[name] = (time.time(), str(UUID(said["id"].removeprefix("bk_"))))
    drawn = chance.random()
    await asyncio.sleep(chance.expovariate(1.0))
    if drawn < CANCELLED:
        await _response(rest, f"/bookings/{said['number']}/cancel", {}, book)
    elif drawn < CANCELLED + EXTENDED:
        # Without a JSON answer the booking is not extended.
        with suppress(httpx.HTTPError, ValueError):
            now = (await rest.get(f"/bookings/{said['number']}")).json()
            if now.get("planned_ends"):
                until = datetime.fromisoformat(now["planned_ends"]) + timedelta(minutes=5)
                body = {"until": until.isoformat()}
                await _response(rest, f"/bookings/{said['number']}/extend", body, book)


async def people(site: Site, options: argparse.Namespace, book: Record) -> None:
    """Books at random moments, whatever is killed meanwhile."""
    chance = random.Random(7)  # noqa: S311  the same arrivals each time
    async with site.client(PART) as rest, asyncio.TaskGroup() as tasks:
        tasks.create_task(_kill(site, options, book))
        looks = tasks.create_task(_look(book))
        due, number = time.time(), 0
        until = due + options.seconds
        asking = []
        while due < until:
            await asyncio.sleep(due - time.time())
            asking.append(tasks.create_task(_person(rest, number, chance, book)))
            number, due = number + 1, due + chance.expovariate(options.rate)
        await asyncio.gather(*asking)
        patience = time.time() + PATIENCE_S
        while book.undecided() and time.time() < patience:
            await asyncio.sleep(LOOK_EVERY_S)
        looks.cancel()


async def _kill(site: Site, options: argparse.Namespace, book: Record) -> None:
    chance = random.Random(11)  # noqa: S311  the same victims each time
    until = time.time() + options.seconds - options.kill_every
    while time.time() < until:
        await asyncio.sleep(options.kill_every)
        name = chance.choice(KILLED)
        try:
            pid = json.loads((site.var / "pids" / f"{name}.pid").read_text(encoding="utf-8"))["pid"]
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            # It is still restarting.
            continue
        book.kills.append((time.time(), name))


async def _look(book: Record) -> None:
    while True:
        pending = book.undecided()
        answered = await asyncio.to_thread(_answered, list(pending))
        now = time.time()
        book.decided |= {pending[each]: now for each, is_decided in answered if is_decided}
        book.left |= {pending[each] for each, is_decided in answered if not is_decided}
        await asyncio.sleep(LOOK_EVERY_S)


def _answered(ids: list[str]) -> list[tuple[str, bool]]:
    """Bookings that are no longer queued, and whether a decision was made about them."""
    from django.db import DatabaseError, connection  # noqa: PLC0415 (Django is there only now)

    from allocation.models import Booking  # noqa: PLC0415

    try:
        rows = Booking.objects.filter(id__in=ids).exclude(state="requested")
        return [(str(each), made is not None) for each, made in rows.values_list("id", "decision")]
    except DatabaseError:
        return []
    finally:
        connection.close()


def _check(book: Record) -> dict[str, int]:
    from allocation.models import Booking  # noqa: PLC0415
    from allocation.services.decide.invariants import invariants_check  # noqa: PLC0415

    rows = Booking.objects.filter(tenant__slug=TENANT, name__startswith="chaos-")
    there = Counter(rows.values_list("name", flat=True))
    ids = set(rows.values_list("id", flat=True))
    return {
        "accepted": len(book.accepted),
        "refused": len(book.refused),
        "lost": sum(UUID(each) not in ids for _, each in book.accepted.values()),
        "twice": sum(count > 1 for count in there.values()),
        "left_before_a_decision": len(book.left),
        "undecided": len(book.undecided()),
        "broken_promises": len(invariants_check()),
    }


def _healed(book: Record) -> tuple[list[float], list[float]]:
    """The times from each kill until a later request was accepted, and decided."""
    accepted, decided = [], []
    for at, _ in book.kills:
        after = [name for name, sent in book.sent.items() if sent >= at]
        accepted.append(min(book.accepted[name][0] for name in after if name in book.accepted) - at)
        decided.append(min(book.decided[name] for name in after if name in book.decided) - at)
    return accepted, decided


def _slowest(book: Record, decided: list[float]) -> dict[str, float]:
    """The longest time in seconds from a kill to the next decision, for each program."""
    longest: dict[str, float] = {}
    for (_, name), seconds in zip(book.kills, decided, strict=True):
        longest[name] = max(longest.get(name, 0.0), round(seconds, 1))
    return longest


def _restarts(log: Path) -> dict[str, Any]:
    """The number of restarts by the launcher, and its longest delay before one."""
    if not log.exists():
        return {}
    said = re.findall(r"(\S+) ended \(.*again in ([0-9.]+) s", log.read_text("utf-8", "replace"))
    longest = max((float(seconds) for _, seconds in said), default=0.0)
    return {"times": dict(Counter(name for name, _ in said)), "longest_pause_s": longest}


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the run."""
    site_enter(site)
    from django.db import connection  # noqa: PLC0415

    from allocation.models import EventCounter  # noqa: PLC0415

    capacity_make()
    connection.close()
    book = Record()
    busy, total = cpu_of_machine()
    asyncio.run(people(site, options, book))
    busy, total = (n - t for n, t in zip(cpu_of_machine(), (busy, total), strict=True))
    wait_until(lambda: _answered([]) == [], seconds=PATIENCE_S)
    checked = _check(book)
    accepted, decided = _healed(book)
    took = [book.decided[name] - book.sent[name] for name in book.decided]
    kept = ("plans_dropped:", "answers_withheld:")
    result = {
        "bench": "chaos",
        "seconds": options.seconds,
        "kills": len(book.kills),
        "killed": dict(Counter(name for _, name in book.kills)),
        "restarts": _restarts(site.var / "launcher.log"),
        "answers": dict(book.statuses),
        **checked,
        "request_to_decided": spread(took),
        "kill_to_accepted": spread(accepted),
        "kill_to_decided": spread(decided),
        "slowest_to_decided_s": _slowest(book, decided),
        "tallies": {
            name: count
            for name, count in EventCounter.objects.values_list("name", "count")
            if name.startswith(kept)
        },
        "machine_busy_percent": round(busy / total * 100, 1),
        "machine": machine(),
    }
    if book.refused:
        result["first_refusal"] = book.refused[0]
    wrong = [name for name in ("lost", "twice", "undecided", "broken_promises") if checked[name]]
    if wrong:
        raise WrongResult(json.dumps(result, indent=1))
    return result


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.chaos", description=__doc__)
    parser.add_argument("--rate", type=float, default=8, help="bookings a second")
    parser.add_argument("--kill-every", type=float, default=7)
    parser.add_argument("--seconds", type=float, default=360)
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
