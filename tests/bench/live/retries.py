"""Clients that ask again while the web is killed: `python -m tests.bench.live.retries`.

160 clients with tokens of several people, two tokens of each, ask for quotes, lists and bookings
one after the other. Every 15 s the web is ended with `kill -9`, and every client sends its request
again until it has an answer or a refusal that names a time (429 or 503 with `Retry-After`). The
time of a request is from its first attempt. A client gives up after 20 s.
"""

import argparse
import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from uuid import uuid4

import httpx

from tests.bench.live.admissions import capacity_make
from tests.bench.live.inside import processor_seconds, shares, site_enter
from tests.bench.live.kills import running
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options

PEOPLE = ("researcher", "lead", "tenant_admin", "viewer", "other_tenant_researcher")
TOKENS_EACH = 2
GOAL_S, GIVE_UP_S = 5.0, 20.0
AGAIN_S, PAUSE_S = 0.25, 2.0
BUSY = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
ASK = "1 1g.10gb h100 10m"


@dataclass(frozen=True)
class Credential:
    """A token's REST client, and a project of its person."""

    rest: httpx.AsyncClient
    project: str


@dataclass
class Seen:
    """What all clients saw: when each request began, and its seconds to an answer or a refusal."""

    took: list[tuple[float, float]] = field(default_factory=list)
    by_path: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kinds: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    gave_up: int = 0
    kills: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)

    def near_kills(self) -> list[float]:
        """The seconds of requests that were on their way at a kill or began soon after."""
        return [
            seconds
            for began, seconds in self.took
            if any(began < kill + 10 and began + seconds > kill for kill in self.kills)
        ]


def _request(turn: int, project: str) -> tuple[str, str, object]:
    """Quotes, lists and bookings in turn."""
    match turn % 4:
        case 0:
            return "POST", "/quotes", {"project": project, "request": ASK}
        case 1:
            return "POST", "/bookings", {"project": project, "name": "retry", "request": ASK}
        case _:
            return "GET", "/bookings", None


async def _answered(one: Credential, turn: int, seen: Seen) -> float:
    """Sends a request until it has an answer or a refusal; returns the seconds to wait then."""
    method, path, body = _request(turn, one.project)
    headers = {"Idempotency-Key": str(uuid4())} if path == "/bookings" and body else {}
    began = time.monotonic()
    while (waited := time.monotonic() - began) < GIVE_UP_S:
        try:
            answer = await one.rest.request(
                method, path, json=body, headers=headers, timeout=GIVE_UP_S - waited
            )
        except httpx.TransportError as lost:
            seen.errors[type(lost).__name__] += 1
        else:
            is_refusal = answer.status_code in BUSY and "Retry-After" in answer.headers
            if is_refusal or answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                seen.took.append((began, time.monotonic() - began))
                seen.by_path[f"{method} {path} {answer.status_code}"].append(seen.took[-1][1])
                seen.kinds[str(answer.status_code)] += 1
                return float(answer.headers.get("Retry-After", 0))
            seen.errors[str(answer.status_code)] += 1
        await asyncio.sleep(AGAIN_S * random.uniform(1, 2))  # noqa: S311
    seen.gave_up += 1
    return 0


async def _client(one: Credential, number: int, until: float, seen: Seen) -> None:
    chance = random.Random(number)  # noqa: S311  the same pauses each time
    turn = number
    await asyncio.sleep(chance.uniform(0, PAUSE_S))
    while time.monotonic() < until:
        pause = await _answered(one, turn, seen)
        await asyncio.sleep(max(pause, chance.uniform(0, 2 * PAUSE_S)))
        turn += 1


async def _killer(site: Site, options: argparse.Namespace, seen: Seen) -> None:
    async with httpx.AsyncClient(base_url=site.url) as probe:
        for _ in range(options.kills):
            await asyncio.sleep(options.every * random.uniform(0.8, 1.2))  # noqa: S311
            pid = await running(site, "web")
            seen.kills.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)
            seen.back.append(await _back(probe, seen.kills[-1]))


async def _back(probe: httpx.AsyncClient, kill: float) -> float:
    """The seconds from the kill to the first answer of the new process to anybody."""
    while True:
        try:
            await probe.get("/healthz", timeout=10)
        except httpx.TransportError:
            await asyncio.sleep(0.05)
        else:
            return time.monotonic() - kill


def _credential(site: Site, token: str, project: str) -> Credential:
    client = httpx.AsyncClient(
        base_url=f"{site.url}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        limits=httpx.Limits(max_keepalive_connections=64, keepalive_expiry=2),
    )
    return Credential(client, project)


async def _credentials(site: Site) -> list[Credential]:
    """Some tokens of each person."""
    found = []
    for part in PEOPLE:
        async with site.client(part) as rest:
            project = (await rest.get("/projects")).raise_for_status().json()["items"][0]["slug"]
            found.append(_credential(site, site.tokens[part], project))
            for number in range(1, TOKENS_EACH):
                body = {"name": f"retry {number}", "days": 1}
                made = (await rest.post("/tokens", json=body)).raise_for_status().json()
                found.append(_credential(site, made["token"], project))
    return found


async def retries(site: Site, options: argparse.Namespace) -> Seen:
    """Runs the clients and the kills."""
    seen, credentials = Seen(), await _credentials(site)
    until = time.monotonic() + options.every * 1.2 * options.kills + GIVE_UP_S
    turns = cycle(credentials)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_killer(site, options, seen))
            for number in range(options.clients):
                tasks.create_task(_client(next(turns), number, until, seen))
    finally:
        for each in credentials:
            await each.rest.aclose()
    return seen


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the run."""
    site_enter(site)
    capacity_make()
    before, began = processor_seconds(site), time.monotonic()
    seen = asyncio.run(retries(site, options))
    near = seen.near_kills()
    return {
        "bench": "retries",
        "clients": options.clients,
        "kills": len(seen.kills),
        "goal_s": GOAL_S,
        "requests": len(seen.took),
        "all": spread([seconds for _, seconds in seen.took]),
        "near_kills": {"requests": len(near), **spread(near)},
        "by_answer": {path: spread(times) for path, times in sorted(seen.by_path.items())},
        "over_goal": sum(seconds > GOAL_S for _, seconds in seen.took),
        "gave_up": seen.gave_up,
        "web_back": spread(seen.back),
        "by_status": dict(sorted(seen.kinds.items())),
        "errors": dict(sorted(seen.errors.items())),
        "of_a_core_percent": shares(before, processor_seconds(site), time.monotonic() - began),
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.retries", description=__doc__)
    parser.add_argument("--clients", type=int, default=160)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--every", type=float, default=15, help="seconds from one kill to the next")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
