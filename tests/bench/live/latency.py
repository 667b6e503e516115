"""From request to active: `python -m tests.bench.live.latency --rate 5 --seconds 30`.

People book for an immediate start at a steady rate, whatever the portal does, and follow the live
channel, whose messages have the state of the booking. `--look` fetches the booking at each message
instead, as a page does that shows all of it. An active booking is released at once, so that GPUs
stay free. Times count from the moment the request was due.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.bench.machine import cpu_of_machine, cpu_seconds, machine, report, spread
from tests.bench.site import Site, site_of, site_options

TENANT = "helix"
PART = "researcher"
OPEN = {"requested", "queued", "scheduled", "starting"}
# Slices on three nodes, so that the bench does not run out of free places.
ASKS = ("1 1g.10gb h100 10m", "1 1g.10gb a100 10m", "1 1g.5gb a100-40 10m")
PATIENCE_SECONDS = 30
# A page fetches at the first hint at once, and later at most this often.
LOOK_GAP_SECONDS = 0.15


@dataclass(eq=False)
class Trip:
    """One booking: when its request was due, and the seconds until each step."""

    due: float
    measured: bool
    label: str = ""
    state: str = ""
    answered: float = 0.0
    reached: dict[str, float] = field(default_factory=dict)
    looks: int = 0
    next_look: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Page:
    """An open page of the portal: the live channel, and the bookings it shows."""

    def __init__(self, rest: httpx.AsyncClient, *, is_looking: bool) -> None:
        self._rest, self._is_looking = rest, is_looking
        self._shown: dict[str, Trip] = {}
        # The channel may report a booking before its maker has read the answer.
        self._early: dict[str, str] = {}
        self.messages = 0

    async def listen(self, channel: ClientConnection) -> None:
        """Notes the states of the bookings that the portal reports as changed."""
        async for text in channel:
            message = json.loads(text)
            self.messages += 1
            # Others' bookings come without a state.
            if "state" not in message:
                continue
            label = message["booking"]
            if label in self._shown:
                self._note(self._shown[label], message["state"])
            else:
                self._early[label] = message["state"]

    async def follow(self, trip: Trip) -> None:
        """Waits until the booking is active or over."""
        self._shown[trip.label] = trip
        if trip.label in self._early:
            self._note(trip, self._early.pop(trip.label))
        try:
            while trip.state in OPEN:
                await asyncio.wait_for(trip.changed.wait(), PATIENCE_SECONDS)
                trip.changed.clear()
                if self._is_looking:
                    await self._look(trip)
        finally:
            del self._shown[trip.label]

    def _note(self, trip: Trip, state: str) -> None:
        trip.changed.set()
        if not self._is_looking:
            self._reach(trip, state)

    async def _look(self, trip: Trip) -> None:
        await asyncio.sleep(trip.next_look - time.monotonic())
        trip.changed.clear()
        trip.next_look = time.monotonic() + LOOK_GAP_SECONDS
        answer = await self._rest.get(f"/bookings/{trip.label}")
        trip.looks += 1
        self._reach(trip, answer.json()["state"])

    def _reach(self, trip: Trip, state: str) -> None:
        trip.state = state
        trip.reached.setdefault(state, time.monotonic() - trip.due)


class Load:
    """The people who book."""

    def __init__(self, rest: httpx.AsyncClient, page: Page, options: argparse.Namespace) -> None:
        self._rest = rest
        self._page = page
        self._options = options
        self.trips: list[Trip] = []
        self.statuses: Counter[int] = Counter()

    async def run(self) -> None:
        """Starts a trip whenever one is due, and waits for all of them."""
        chance = random.Random(5)  # noqa: S311  the same arrivals each time
        rate, warm = self._options.rate, self._options.warm
        began = due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while due < began + warm + self._options.seconds:
                await asyncio.sleep(due - time.monotonic())
                trip = Trip(due, measured=due >= began + warm)
                self.trips.append(trip)
                tasks.create_task(self._trip(trip, len(self.trips)))
                due += chance.expovariate(rate)

    async def _trip(self, trip: Trip, number: int) -> None:
        asks = self._options.ask
        body = {
            "project": self._options.project,
            "tier": "standard",
            "request": asks[number % len(asks)],
        }
        answer = await self._rest.post("/bookings", json=body)
        trip.answered = time.monotonic() - trip.due
        self.statuses[answer.status_code] += 1
        if answer.status_code != httpx.codes.CREATED:
            trip.state = f"answered {answer.status_code}: {answer.json().get('code')}"
            return
        trip.label, trip.state = answer.json()["number"], answer.json()["state"]
        try:
            await self._page.follow(trip)
        except TimeoutError:
            trip.state = f"still {trip.state}"
        await self._give_back(trip)

    async def _give_back(self, trip: Trip) -> None:
        act = "release" if trip.state == "active" else "cancel"
        await self._rest.post(f"/bookings/{trip.label}/{act}", json={})


async def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The result of the whole run."""
    before = machine()
    headers = {"Cookie": await site.session(PART)}
    socket = f"{site.url.replace('http', 'ws', 1)}/ws/t/{TENANT}/"
    async with (
        site.client(PART) as rest,
        connect(socket, origin=site.url, additional_headers=headers) as channel,  # type: ignore[arg-type]  # a NewType of str
    ):
        page = Page(rest, is_looking=options.look)
        listening = asyncio.create_task(page.listen(channel))
        load = Load(rest, page, options)
        began, own, (busy, total) = time.monotonic(), cpu_seconds(), cpu_of_machine()
        await load.run()
        seconds, own = time.monotonic() - began, cpu_seconds() - own
        busy, total = (now - then for now, then in zip(cpu_of_machine(), (busy, total), strict=True))
        listening.cancel()
    measured = [trip for trip in load.trips if trip.measured]
    active = [trip for trip in measured if "active" in trip.reached]
    return {
        "bench": "latency",
        "rate": options.rate,
        "seconds": options.seconds,
        "asks": options.ask,
        "asked": len(measured),
        "active": len(active),
        "ended_as": dict(Counter(trip.state for trip in measured)),
        "statuses": dict(load.statuses),
        "request_to_active": spread([trip.reached["active"] for trip in active]),
        "request_to_answer": spread([trip.answered for trip in measured]),
        "live_messages": page.messages,
        "looks_per_booking": round(sum(trip.looks for trip in active) / max(1, len(active)), 2),
        "client_cpu_percent": round(own / seconds * 100, 1),
        "machine_busy_percent": round(busy / total * 100, 1),
        "machine": before,
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5, help="bookings a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm", type=float, default=5, help="seconds before the measured ones")
    parser.add_argument("--project", default="language-models")
    parser.add_argument("--ask", nargs="+", default=list(ASKS), help="asked for in turn")
    parser.add_argument("--look", action="store_true", help="fetch the booking at each message")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    with site_of(options) as site:
        result = asyncio.run(measure(site, options))
    report("latency", result, options.out)


if __name__ == "__main__":
    main()
