"""Many requests that wait for one decision: `python -m tests.bench.live.waiting --waiters 2000`.

The bench stops the solver, books, and sends the requests that wait for the decision. It reads an
ordinary page repeatedly before and while they wait. Then the solver continues, and every waiting
request is answered.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options

PART = "researcher"
REQUEST_TEXT = {"project": "protein-folding", "request": "1 1g.10gb h100 10m"}
# Requests that are sent at the same time.
ARRIVING = 50
WAIT_SECONDS = 50
PAGE_SECONDS = 15
PAGE_EVERY = 0.05
QUICK_IN_A_ROW = 5


class WrongResult(Exception):
    """An answer was wrong, so the speed does not count."""


@contextmanager
def solver_stopped(site: Site) -> Iterator[None]:
    """Stops the solver inside the block, and first its watchdog, which would end it."""
    pid = json.loads((site.var / "pids" / "solver.pid").read_text(encoding="utf-8"))["pid"]
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    # The watchdog leads a session of its own, and is in no group of the solver.
    children = [int(word) for word in text.split()]
    own = [child for child in children if os.getpgid(child) != pid]
    for child in own:
        os.kill(child, signal.SIGSTOP)
    os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGCONT)
        for child in own:
            os.kill(child, signal.SIGCONT)


async def measured(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The page's times before and while requests wait, and when they were answered."""
    async with site.client(PART) as pages:
        before = await _page_times(pages, PAGE_SECONDS)
        with solver_stopped(site):
            made = (await pages.post("/bookings", json=REQUEST_TEXT)).raise_for_status().json()
            began, gate = time.monotonic(), asyncio.Semaphore(ARRIVING)
            waiters = [asyncio.create_task(_one(site, made["id"], gate)) for _ in range(options.waiters)]
            await asyncio.sleep(0)
            arrived = await _all_wait(pages, gate, median(before), began)
            during = await _page_times(pages, PAGE_SECONDS)
            if any(waiter.done() for waiter in waiters):
                raise WrongResult("a request was answered before the decision")
        went_on = time.monotonic()
        answers = await asyncio.gather(*waiters)
        await pages.post(f"/bookings/{made['number']}/cancel", json={})
    states = Counter((answer.status, answer.state != "requested") for answer in answers)
    if states != {(200, True): options.waiters}:
        raise WrongResult(f"not all were answered with the decision: {states}")
    return {
        "bench": "waiting",
        "waiters": options.waiters,
        "arrived_after_s": round(arrived, 1),
        "page_before": spread(before),
        "page_while_they_wait": spread(during),
        "answered_after": spread([answer.at - went_on for answer in answers]),
        "machine": machine(),
    }


@dataclass(frozen=True)
class Answer:
    """The answer to one waiting request, and its time."""

    status: int
    state: str
    at: float


async def _one(site: Site, booking: str, gate: asyncio.Semaphore) -> Answer:
    """Sends one request on a new connection; opens the gate again when it is sent."""
    address = urlsplit(site.url)
    head = (
        f"GET /api/v1/bookings/{booking} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {site.tokens[PART]}\r\nPrefer: wait={WAIT_SECONDS}\r\n"
        "Connection: close\r\n\r\n"
    )
    async with gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(head.encode())
        await writer.drain()
    raw = await reader.read()
    at = time.monotonic()
    writer.close()
    said, _, body = raw.partition(b"\r\n\r\n")
    return Answer(int(said.split()[1]), json.loads(body).get("state", ""), at)


async def _all_wait(rest: httpx.AsyncClient, gate: asyncio.Semaphore, usual: float, began: float) -> float:
    """Seconds until all of them are sent and pages are as quick as before: then nobody is still on
    the way to a thread."""
    for _ in range(ARRIVING):
        await gate.acquire()
    quick = 0
    while quick < QUICK_IN_A_ROW:
        [took] = await _page_times(rest, 0)
        quick = quick + 1 if took <= 2 * usual else 0
    return time.monotonic() - began


async def _page_times(rest: httpx.AsyncClient, seconds: float) -> list[float]:
    """Measures one page's REST call repeatedly, at least once."""
    times: list[float] = []
    until = time.monotonic() + seconds
    while not times or time.monotonic() < until:
        began = time.monotonic()
        (await rest.get("/bookings", params={"limit": 20})).raise_for_status()
        times.append(time.monotonic() - began)
        await asyncio.sleep(PAGE_EVERY)
    return times


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run."""
    return asyncio.run(measured(site, options))


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiters", type=int, default=2000)
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
