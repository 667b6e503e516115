"""Changes, batches, offers and arrays: `python -m tests.bench.live.requests --rate 5 --seconds 20`.

- Bookings of slices far ahead are made longer by `PATCH` at a steady rate; times count from the
  moment the request was due until its change is decided.
- One batch of 1,000 with one key: until it is answered, and until all are decided.
- A node is full, a person waits for an offer, and the booking there is cancelled: until the offer.
- An array of 1,000 on 2 GPUs next to one other person, without a site: when that person starts, and
  what a cycle costs meanwhile.
"""

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import httpx

from solver import Policy
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.solver.builders import HOUR, NOON, gpus
from tests.solver.claims.story import MINUTE, TIERS, asks
from tests.worlds.draw import Drawn
from tests.worlds.life import World
from tests.worlds.requests import Requests

PART = "tenant_admin"
SLICES = {"project": "language-models", "count": 1, "classes": ["h100"], "profile": "1g.10gb"}
NODE = {"project": "protein-folding", "count": 4, "classes": ["l40s"], "profile": None}
# The demo's seed has no booking later than this.
FREE_FROM = timedelta(days=9)
BATCH = 1_000
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60
ELEMENTS, PARALLEL, ELEMENT_HOURS = 1_000, 100, 1
Body = dict[str, Any]


class WrongResult(Exception):
    """An answer was wrong, so the speed does not count."""


def body(asked: Body, starts: datetime, seconds: int) -> Body:
    """A request for a fixed window."""
    ask = {name: value for name, value in asked.items() if name != "project"}
    ask |= {"starts": starts.strftime("%Y-%m-%dT%H:%M:%SZ"), "duration": seconds}
    return {"project": asked["project"], "tier": "standard", "ask": ask, "zone": daytime_zone()}


def daytime_zone() -> str:
    """A time zone in which it is noon: at night nobody gets an offer."""
    ahead = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-ahead:+d}"


async def booked(rest: httpx.AsyncClient, request: Body) -> str:
    """The number of a booking that is scheduled."""
    headers = {"Idempotency-Key": str(uuid4()), "Prefer": "wait=20"}
    answer = await rest.post("/bookings", json=request, headers=headers)
    if answer.status_code != httpx.codes.CREATED or answer.json()["state"] != "scheduled":
        raise WrongResult(answer.text)
    return str(answer.json()["number"])


async def until(found: Any, what: str) -> float:  # noqa: ANN401  an async function
    """Seconds until it returns something true."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_SECONDS:
        if await found():
            return time.monotonic() - began
        await asyncio.sleep(LOOK_SECONDS)
    raise WrongResult(f"{what} after {PATIENCE_SECONDS} s")


class Changes:
    """Bookings that become longer at a steady rate."""

    def __init__(self, rest: httpx.AsyncClient) -> None:
        """Nothing is measured yet."""
        self._rest = rest
        self.answered: list[float] = []
        self.decided: list[float] = []
        self.states: dict[str, int] = {}
        self._asked: dict[str, datetime] = {}

    async def run(self, numbers: list[str], rate: float) -> None:
        """One booking each `1 / rate` seconds."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for at, number in enumerate(numbers):
                due = began + at / rate
                await asyncio.sleep(due - time.monotonic())
                tasks.create_task(self._one(number, due))
        await self._read()

    async def _one(self, number: str, due: float) -> None:
        asked = datetime.now(UTC)
        etag = (await self._rest.get(f"/bookings/{number}")).headers["ETag"]
        headers = {"If-Match": etag}
        answer = await self._rest.patch(f"/bookings/{number}", json={"duration": "PT30M"}, headers=headers)
        self.answered.append(time.monotonic() - due)
        if answer.status_code != httpx.codes.ACCEPTED:
            raise WrongResult(f"{answer.status_code}: {answer.text}")
        self._asked[number] = asked

    async def _read(self) -> None:
        """When each was decided, as the portal says. Many questions meanwhile would slow it."""
        for number, asked in self._asked.items():
            change: Body = {}

            async def is_decided(of: str = number, found: Body = change) -> bool:
                found |= (await self._rest.get(f"/bookings/{of}")).json()["change"]
                return bool(found["state"] != "asked")

            await until(is_decided, f"{number} is not decided")
            at = datetime.fromisoformat(change["decided_at"])
            self.decided.append((at - asked).total_seconds())
            self.states[change["state"]] = self.states.get(change["state"], 0) + 1


async def changes(rest: httpx.AsyncClient, options: argparse.Namespace) -> Body:
    """The times of changes."""
    first = _first()
    count = int(options.rate * options.seconds)
    starts = (first + timedelta(hours=number // 8) for number in range(count))
    answer = await batch_sent(rest, [body(SLICES, at, 900) for at in starts])
    numbers = [item["booking"]["number"] for item in answer.json()["items"]]
    await until(partial(are_decided, rest), "undecided")
    load = Changes(rest)
    await load.run(numbers, options.rate)
    return {
        "rate": options.rate,
        "asked": count,
        "states": load.states,
        "answered": spread(load.answered),
        "decided": spread(load.decided),
    }


async def batch_sent(rest: httpx.AsyncClient, items: list[Body]) -> httpx.Response:
    """The answer to one batch, with one key, of which all items are accepted."""
    answer = await rest.post(
        "/bookings/batch",
        json={"items": items, "mode": "all"},
        headers={"Idempotency-Key": str(uuid4())},
    )
    if answer.status_code != httpx.codes.CREATED:
        raise WrongResult(answer.text[:500])
    return answer


async def are_decided(rest: httpx.AsyncClient) -> bool:
    """Whether no booking of the project waits for its first decision."""
    asked: Body = {"project": SLICES["project"], "state": "requested", "limit": 1}
    return not (await rest.get("/bookings", params=asked)).json()["items"]


async def batch(rest: httpx.AsyncClient) -> Body:
    """One batch, with one key."""
    first = _first() + timedelta(days=5)
    items = [body(SLICES, first + timedelta(minutes=15 * (number // 4)), 900) for number in range(BATCH)]
    began = time.monotonic()
    await batch_sent(rest, items)
    answered = time.monotonic() - began
    await until(partial(are_decided, rest), "undecided")
    return {
        "items": BATCH,
        "answered_s": round(answered, 2),
        "decided_s": round(time.monotonic() - began, 2),
    }


async def offers(rest: httpx.AsyncClient, times: int) -> Body:
    """From a cancelled booking to the offer of its room."""
    seconds = []
    for number in range(times):
        starts = _first() + timedelta(days=15, hours=2 * number)
        asked = body(NODE, starts, 3_600)
        taken = [await booked(rest, asked)]
        while True:
            answer = await rest.post(
                "/bookings",
                json=asked,
                headers={"Idempotency-Key": str(uuid4()), "Prefer": "wait=20"},
            )
            if answer.status_code != httpx.codes.CREATED:
                break
            taken.append(answer.json()["number"])
        entry = await rest.post("/waitlist", json=asked, headers={"Idempotency-Key": str(uuid4())})
        if entry.status_code != httpx.codes.CREATED:
            raise WrongResult(entry.text)
        began = time.monotonic()
        (await rest.post(f"/bookings/{taken[0]}/cancel", json={})).raise_for_status()

        async def is_offered() -> bool:
            return bool((await rest.get("/offers")).json()["items"])

        await until(is_offered, "no offer")
        seconds.append(time.monotonic() - began)
        for name in (*taken[1:], entry.json()["number"]):
            await rest.post(f"/bookings/{name}/cancel", json={})
    return {"offers": times, "cancelled_to_offer": spread(seconds)}


def array() -> Body:
    """An array of 1,000 hours on 2 GPUs; another person asks for one hour a minute later."""
    element = asks("array", "a", "std", ELEMENT_HOURS)
    names = ["array", *(f"array[{number}]" for number in range(1, ELEMENTS))]
    jobs = [asks(name, "a", "std", ELEMENT_HOURS) for name in names]
    parents = {names[at]: names[at - PARALLEL] for at in range(PARALLEL, ELEMENTS)}
    other = asks("other", "a", "std", ELEMENT_HOURS, at=MINUTE, owner="eve")
    drawn = Drawn(
        Policy(1),
        gpus(2),
        (),
        tuple(TIERS.values()),
        (),
        (*jobs, other),
        (),
        is_plain=False,
        requests=Requests(parents=parents),
    )
    world, cycles = World.of_drawn(drawn), list[float]()
    began = time.process_time()
    for turn in world.turns():
        cycles.append(time.process_time() - began)
        began = time.process_time()
        if "other" in world.started or turn.site.now > NOON + 4 * HOUR:
            break
    return {
        "elements": ELEMENTS,
        "parallel": PARALLEL,
        "next_end_s": element.seconds,
        "other_started_s": world.started.get("other", 0) - NOON,
        "cycle_cpu": spread(cycles),
    }


def _first() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + FREE_FROM


async def measured(site: Site, options: argparse.Namespace) -> Body:
    """The loads on one site, one after the other."""
    async with site.client(PART) as rest:
        return {
            "changes": await changes(rest, options),
            "batch": await batch(rest),
            "offers": await offers(rest, options.offers),
        }


def measure(site: Site, options: argparse.Namespace) -> Body:
    """The figures of one run."""
    facts = machine()
    loads = asyncio.run(measured(site, options))
    return {"bench": "requests", **loads, "array": array(), "machine": facts}


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5, help="changes a second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--offers", type=int, default=5)
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
