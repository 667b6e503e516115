"""Pages of other people while one person asks for quotes: `python -m tests.bench.live.crowd`.

1,450 bookings are queued. One researcher keeps 60 requests for quotes on their way; a refused one
is sent again after the time that its answer names, or at once with `--rude`. Meanwhile a member of
another organisation and somebody who is not signed in open pages at random moments, whatever the
portal does: the time is from the moment a page was due until its last byte.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.bench.live.admissions import burst, capacity_make
from tests.bench.live.inside import processor_seconds, shares, site_enter
from tests.bench.live.noise import _all_decided as all_decided
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

GREEDY, OTHER, OTHERS_PAGES = "researcher", "other_tenant_researcher", "/t/northlab"
BODY = {"project": "language-models", "request": "1 h100 2h"}
GOAL_MS = 300


class WrongResult(Exception):
    """A page or a quote had another status than it should have, so the speed does not count."""


@dataclass
class Quotes:
    """How the quotes were answered, and in which time."""

    statuses: Counter[int] = field(default_factory=Counter)
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)


async def _quotes(rest: httpx.AsyncClient, is_rude: bool, until: float, seen: Quotes) -> None:  # noqa: FBT001
    """One of the requests that are on their way at once, again and again."""
    while (began := time.monotonic()) < until:
        answer = await rest.post("/quotes", json=BODY, timeout=120)
        seen.statuses[answer.status_code] += 1
        took = time.monotonic() - began
        if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
            seen.answered.append(took)
            continue
        seen.refused.append(took)
        if not is_rude:
            await asyncio.sleep(float(answer.headers["Retry-After"]))


async def _pages(
    browser: httpx.AsyncClient, options: argparse.Namespace, until: float, cookie: str
) -> dict[str, list[float]]:
    """The seconds from the moment each page was due until it was there, by its address."""
    took: dict[str, list[float]] = {}
    chance = random.Random(5)  # noqa: S311  the same arrivals each time
    addresses = [("/sign-in", "")]
    addresses += [(f"{OTHERS_PAGES}/{page}", cookie) for page in ("bookings", "people", "tiers")]

    async def open_page(due: float) -> None:
        address, session = chance.choice(addresses)
        headers = {"Cookie": session} if session else {}
        page = await browser.get(address, headers=headers, timeout=120)
        if page.status_code != httpx.codes.OK:
            raise WrongResult(f"{address}: {page.status_code}")
        took.setdefault(address, []).append(time.monotonic() - due)

    async with asyncio.TaskGroup() as tasks:
        due = time.monotonic()
        while due < until:
            await asyncio.sleep(due - time.monotonic())
            tasks.create_task(open_page(due))
            due += chance.expovariate(options.rate)
    return took


async def crowd(
    site: Site, options: argparse.Namespace, quotes: int
) -> tuple[dict[str, list[float]], Quotes]:
    """The pages of the others next to so many quotes at once."""
    # Signed in before the crowd comes.
    seen, cookie = Quotes(), await site.session(OTHER)
    # Clients are made before, because each takes this process some milliseconds.
    async with site.client(GREEDY) as rest, httpx.AsyncClient(base_url=site.url) as browser:
        until = time.monotonic() + options.seconds
        async with asyncio.TaskGroup() as tasks:
            pages = tasks.create_task(_pages(browser, options, until, cookie))
            for _ in range(quotes):
                tasks.create_task(_quotes(rest, options.rude, until, seen))
    strange = {code for code in seen.statuses if code not in (200, 429)}
    if strange:
        raise WrongResult(f"Quotes were answered with {sorted(strange)}.")
    return pages.result(), seen


def _figures(pages: dict[str, list[float]]) -> dict[str, Any]:
    together = [each for times in pages.values() for each in times]
    return {
        "pages": len(together),
        "all": spread(together),
        "by_page": {page: spread(times) for page, times in sorted(pages.items())},
    }


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The others' pages without quotes, and next to them."""
    site_enter(site)
    capacity_make()
    waiting = burst(options.waiting) if options.waiting else []
    wait_until(lambda: all_decided(waiting), seconds=300, every=0.5)
    calm, _ = asyncio.run(crowd(site, options, 0))
    before, began = processor_seconds(site), time.monotonic()
    pages, seen = asyncio.run(crowd(site, options, options.quotes))
    seconds = time.monotonic() - began
    return {
        "bench": "crowd",
        "waiting": len(waiting),
        "quotes_at_once": options.quotes,
        "goal_p99_ms": GOAL_MS,
        "without_quotes": _figures(calm),
        "next_to_quotes": _figures(pages),
        "quotes_by_status": dict(sorted(seen.statuses.items())),
        "quote_answered": spread(seen.answered),
        "quote_refused": spread(seen.refused),
        "of_a_core_percent": shares(before, processor_seconds(site), seconds),
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.crowd", description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_450, help="bookings in the queue")
    parser.add_argument("--quotes", type=int, default=60, help="requests for quotes at once")
    parser.add_argument("--rude", action="store_true", help="ask again at once when refused")
    parser.add_argument("--rate", type=float, default=10.0, help="pages a second of the others")
    parser.add_argument("--seconds", type=float, default=20)
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
