"""Bookings per second: `python -m tests.bench.live.bookings --clients 8 --seconds 20`.

Each client sends the next request when it has the answer to the last; solver, worker, reader and
agents run on the same cores. Every request has its own key. Afterwards the bench looks for each
accepted booking in the list, and measures the time until all of them are decided, and the processor
time of each program until then for each booking.

`--hot`: many writers request the same ten slots, each a fixed window of a whole node, and wait for
the decision. Exactly ten are granted, and nothing fails.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx

from tests.bench.link import Link
from tests.bench.machine import cpu_of_machine, cpu_of_programs, cpu_seconds, machine, spread
from tests.bench.site import Site, bench_run, site_options

PART = "tenant_admin"
SPREAD_PROJECT = "language-models"
HOT_PROJECT = "protein-folding"
HOT_SLOTS = 10
# The demo's seed has no booking later than this.
FREE_FROM = timedelta(days=9)
DECIDED_SECONDS = 120
Body = dict[str, Any]


class WrongResult(Exception):
    """An answer was wrong, so the speed does not count."""


@dataclass
class Answers:
    """The answers so far."""

    statuses: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)

    async def ask(self, link: Link, body: Body, prefer: str) -> None:
        """Sends one request with a new key, and records the answer."""
        headers = {"Idempotency-Key": str(uuid4()), **({"Prefer": prefer} if prefer else {})}
        began = time.monotonic()
        answer = await link.post("/bookings", body, headers)
        self.seconds.append(time.monotonic() - began)
        self.statuses[answer.status] += 1
        if answer.status == httpx.codes.CREATED:
            self.accepted.append(answer.json()["number"])
        else:
            self.codes[answer.json().get("code", "")] += 1

    @property
    def failures(self) -> int:
        """Answers that are errors of the portal."""
        return sum(n for status, n in self.statuses.items() if status >= 500)


def request_at(project: str, starts: datetime, ask: Mapping[str, Any]) -> Body:
    """A request for a fixed window."""
    window = {"starts": starts.strftime("%Y-%m-%dT%H:%M:%SZ"), **ask}
    return {"project": project, "tier": "standard", "ask": window}


def spread_request(chance: random.Random, first: datetime) -> Body:
    """A request for a slice for a quarter of an hour within four days."""
    starts = first + timedelta(minutes=15 * chance.randrange(4 * 96))
    ask = {"count": 1, "classes": ["h100"], "profile": "1g.10gb", "duration": 900}
    return request_at(SPREAD_PROJECT, starts, ask)


async def spread_load(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the throughput."""
    chance = random.Random(8)  # noqa: S311  the same requests each time
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + FREE_FROM
    async with site.client(PART) as rest:
        await _clients(site, options.clients, 2, Answers(), lambda: spread_request(chance, first))
        answers = Answers()
        before = await _numbers(rest, SPREAD_PROJECT)
        own, (busy, total) = cpu_seconds(), cpu_of_machine()
        programs = cpu_of_programs(site.var / "pids")
        began = time.monotonic()
        await _clients(site, options.clients, options.seconds, answers, lambda: spread_request(chance, first))
        seconds = time.monotonic() - began
        own, (busy_now, total_now) = cpu_seconds() - own, cpu_of_machine()
        decided = await _all_decided(rest, time.monotonic())
        used = _of_each(programs, cpu_of_programs(site.var / "pids"), len(answers.accepted))
        found = await _numbers(rest, SPREAD_PROJECT)
        lost = set(answers.accepted) - set(found)
        if lost or answers.failures or len(found) - len(before) < len(answers.accepted):
            raise WrongResult(f"lost {sorted(lost)}, statuses {dict(answers.statuses)}")
        await _cancel_all(rest, answers.accepted, options)
    return {
        "clients": options.clients,
        "seconds": round(seconds, 1),
        "per_second": round(len(answers.seconds) / seconds, 1),
        "accepted": len(answers.accepted),
        "lost": len(lost),
        "statuses": dict(answers.statuses),
        "refused_as": dict(answers.codes),
        "answer": spread(answers.seconds),
        "all_decided_after_s": round(decided, 1),
        "processor_ms_each": used,
        "states": dict(Counter(found[number] for number in answers.accepted)),
        "client_cpu_percent": round(own / seconds * 100, 1),
        "machine_busy_percent": round((busy_now - busy) / (total_now - total) * 100, 1),
    }


async def hot_load(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Every writer requests every slot, each in a different order."""
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + FREE_FROM
    first += timedelta(minutes=15 * options.offset)
    ask = {"count": 4, "classes": ["l40s"], "profile": None, "duration": 900}
    slots = [first + timedelta(minutes=15 * number) for number in range(HOT_SLOTS)]
    answers = Answers()
    async with site.client(PART) as rest:

        async def writer(number: int) -> None:
            order = random.Random(number).sample(slots, len(slots))  # noqa: S311
            link = Link.to(site, PART)
            for starts in order:
                await answers.ask(link, request_at(HOT_PROJECT, starts, ask), "wait=10")
            await link.close()

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.writers):
                tasks.create_task(writer(number))
        seconds = time.monotonic() - began
        states = Counter([(await rest.get(f"/bookings/{n}")).json()["state"] for n in answers.accepted])
        await _cancel_all(rest, answers.accepted, options)
    tries = options.writers * HOT_SLOTS
    result = {
        "writers": options.writers,
        "slots": HOT_SLOTS,
        "tries": tries,
        "granted": states["scheduled"],
        "statuses": dict(answers.statuses),
        "refused_as": dict(answers.codes),
        "seconds": round(seconds, 1),
        "answer": spread(answers.seconds),
    }
    expected = {201: HOT_SLOTS, 409: tries - HOT_SLOTS}
    if dict(answers.statuses) != expected or states["scheduled"] != HOT_SLOTS:
        raise WrongResult(f"expected {expected}, saw {result}")
    return result


async def _clients(
    site: Site, count: int, seconds: float, answers: Answers, body: Callable[[], Body]
) -> None:
    until = time.monotonic() + seconds

    async def client() -> None:
        link = Link.to(site, PART)
        while time.monotonic() < until:
            await answers.ask(link, body(), "")
        await link.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(client())


def _of_each(before: Mapping[str, float], after: Mapping[str, float], bookings: int) -> dict[str, float]:
    """The processor time of each program for each booking, in milliseconds, and their sum."""
    used = {name: seconds - before.get(name, 0) for name, seconds in after.items()}
    each = {name: round(seconds / bookings * 1000, 2) for name, seconds in used.items()}
    return {"all": round(sum(each.values()), 2), **each}


async def _all_decided(rest: httpx.AsyncClient, began: float) -> float:
    """Seconds from `began` until every booking has a first decision."""
    while time.monotonic() < began + DECIDED_SECONDS:
        answer = await rest.get(
            "/bookings", params={"project": SPREAD_PROJECT, "state": "requested", "limit": 1}
        )
        if not answer.json()["items"]:
            return time.monotonic() - began
        # Seldom, because the list costs the site more than a booking.
        await asyncio.sleep(0.25)
    raise WrongResult(f"undecided after {DECIDED_SECONDS} s")


async def _numbers(rest: httpx.AsyncClient, project: str) -> dict[str, str]:
    """The states of all bookings of the project by number."""
    found: dict[str, str] = {}
    asked: dict[str, Any] = {"project": project, "limit": 100}
    while True:
        page = (await rest.get("/bookings", params=asked)).json()
        found.update({item["number"]: item["state"] for item in page["items"]})
        if page["next"] is None:
            return found
        asked["cursor"] = page["next"]


async def _cancel_all(rest: httpx.AsyncClient, numbers: list[str], options: argparse.Namespace) -> None:
    """Cancels all bookings of the load on a running site."""
    if options.url:
        for number in numbers:
            await rest.post(f"/bookings/{number}/cancel", json={})


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one of the two loads."""
    facts = machine()
    load = hot_load if options.hot else spread_load
    return {
        "bench": "bookings-hot" if options.hot else "bookings",
        **asyncio.run(load(site, options)),
        "machine": facts,
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--hot", action="store_true", help="ten slots instead of throughput")
    parser.add_argument("--writers", type=int, default=16, help="with --hot")
    parser.add_argument("--offset", type=int, default=0, help="with --hot: other slots, by number")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
