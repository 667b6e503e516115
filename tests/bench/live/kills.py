"""Kills one program at a time and books: `python -m tests.bench.live.kills --kills 60`.

For each server and program in turn: `kill -9`, and in the same second a request for a slice, sent
again until it is answered. The probe has to be decided within ten seconds of the kill. Meanwhile
somebody books and cancels twice a second, so that tasks are under way when a server dies.
`--only valkey` kills one of them.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from devtools.launch.processes import process_birth
from tests.bench.live.admissions import PROJECT, capacity_make
from tests.bench.live.inside import site_enter
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options

PART = "tenant_admin"
KILLED = (
    *("valkey", "postgres", "solver", "worker", "beat", "reader", "web"),
    *("valkey-agents", "operators", "sender"),
)
ASK = "1 1g.10gb h100 10m"
LOOK_EVERY_S, GIVE_UP_S, STALL_S = 0.1, 120.0, 10.0
# A probe that is decided may have to wait for a free slice.
RUN_S = 20.0
# The launcher starts a program that has run for so long again after half a second.
LIVED_S = 6.0


class Stalled(Exception):
    """A probe was not decided in time."""


@dataclass
class Probes:
    """Seconds from each kill of one program to the decision and to the run of its probe."""

    decided: list[float] = field(default_factory=list)
    active: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, Any]:
        """The figures."""
        return {
            "kills": len(self.decided),
            "stalls": sum(seconds > STALL_S for seconds in self.decided),
            "decided": spread(self.decided),
            "active": spread(self.active) if self.active else {},
            "not_active": len(self.decided) - len(self.active),
            "errors": dict(self.errors),
        }


async def asked(rest: httpx.AsyncClient, method: str, path: str, body: object, errors: Counter[str]) -> Any:  # noqa: ANN401 (JSON)
    """Sends a request until it is answered without a server error; returns the answer's JSON."""
    headers = {"Idempotency-Key": str(uuid4())} if method == "POST" else {}
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        try:
            answer = await rest.request(method, path, json=body, headers=headers, timeout=10)
        except httpx.TransportError as lost:
            errors[type(lost).__name__] += 1
        else:
            is_busy = answer.status_code == httpx.codes.CONFLICT and "in_flight" in answer.text
            if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR and not is_busy:
                return answer.json()
            errors[str(answer.status_code)] += 1
        await asyncio.sleep(LOOK_EVERY_S)
    raise Stalled(f"{method} {path} got no answer in {GIVE_UP_S:.0f} s: {dict(errors)}")


async def probed(rest: httpx.AsyncClient, began: float, probes: Probes) -> None:
    """Books, waits for the decision and for the run, and gives the place back."""
    body = {"project": PROJECT, "name": "probe", "request": ASK}
    made = await asked(rest, "POST", "/bookings", body, probes.errors)
    path = f"/bookings/{made['number']}"
    seen: dict[str, float] = {}
    while "active" not in seen and time.monotonic() < began + seen.get("decided", GIVE_UP_S) + RUN_S:
        state = (await asked(rest, "GET", path, None, probes.errors))["state"]
        at = time.monotonic() - began
        if state != "requested":
            seen.setdefault("decided", at)
        if state == "active":
            seen["active"] = at
        await asyncio.sleep(LOOK_EVERY_S)
    probes.decided.append(seen.get("decided", GIVE_UP_S))
    if "active" in seen:
        probes.active.append(seen["active"])
    await asked(rest, "POST", f"{path}/release", {}, probes.errors)


async def crowd(rest: httpx.AsyncClient, rate: float) -> None:
    """Books and cancels at random moments until it is cancelled itself."""
    chance = random.Random(5)  # noqa: S311  the same arrivals each time
    errors: Counter[str] = Counter()

    async def person() -> None:
        with suppress(Stalled, KeyError):
            body = {"project": PROJECT, "name": "crowd", "request": ASK}
            made = await asked(rest, "POST", "/bookings", body, errors)
            await asyncio.sleep(chance.expovariate(0.5))
            path = f"/bookings/{made['number']}"
            said = await asked(rest, "POST", f"{path}/cancel", {}, errors)
            if "code" in said:
                await asked(rest, "POST", f"{path}/release", {}, errors)

    async with asyncio.TaskGroup() as people:
        while True:
            await asyncio.sleep(chance.expovariate(rate))
            people.create_task(person())


async def killed(site: Site, name: str, kills: int, rest: httpx.AsyncClient) -> Probes:
    """Kills one program again and again, each time at another moment."""
    chance, probes = random.Random(name), Probes()  # noqa: S311  the same moments each time
    started = time.monotonic()
    for number in range(kills):
        await asyncio.sleep(max(0.0, started + LIVED_S - time.monotonic()) + chance.random())
        pid = await running(site, name)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await probed(rest, began, probes)
        print(  # noqa: T201 (an hour without output would look like a stall)
            f"{name} {number + 1}/{kills}: decided after {probes.decided[-1]:.1f} s",
            flush=True,
        )
        await running(site, name)
        started = time.monotonic() if probes.decided[-1] > LIVED_S else began + 1
    return probes


async def running(site: Site, name: str) -> int:
    """Waits until the launcher has started the program; returns its process."""
    path = site.var / "pids" / f"{name}.pid"
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if process_birth(record["pid"]) == record["born"]:
                return int(record["pid"])
        await asyncio.sleep(LOOK_EVERY_S)
    raise Stalled(f"{name} was not started again in {GIVE_UP_S:.0f} s")


async def measured(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The figures by program."""
    found: dict[str, Any] = {}
    async with site.client(PART) as rest:
        load = asyncio.create_task(crowd(rest, options.rate))
        try:
            # A new site has not decided anything yet.
            await probed(rest, time.monotonic(), Probes())
            for name in options.only:
                found[name] = (await killed(site, name, options.kills, rest)).row()
        finally:
            load.cancel()
            await asyncio.wait({load})
    return found


def _watchdog_ends(site: Site) -> int:
    """How many programs their watchdogs have ended."""
    paths = (site.var / "logs").glob("*.log")
    return sum(path.read_text("utf-8", "replace").count("watchdog: ended") for path in paths)


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the run."""
    site_enter(site)
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from allocation.services.decide.invariants import invariants_check  # noqa: PLC0415

    capacity_make()
    connection.close()
    found = asyncio.run(measured(site, options))
    result = {
        "bench": "kills",
        "programs": found,
        "ended_by_watchdogs": _watchdog_ends(site),
        "broken_promises": len(invariants_check()),
        "machine": machine(),
    }
    if result["broken_promises"] or any(row["stalls"] for row in found.values()):
        raise Stalled(json.dumps(result, indent=1))
    return result


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of each program")
    parser.add_argument("--only", nargs="+", choices=KILLED, default=KILLED, metavar="NAME")
    parser.add_argument("--rate", type=float, default=2, help="bookings of others a second")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
