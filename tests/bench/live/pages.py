"""What pages take at size: `python -m tests.bench.live.pages --bookings 20000`.

The demo's bookings are copied until their organisation has so many, over the last eight weeks. Each page
of the browser's list is then requested as its readers do, one after the other: the time is until the
whole answer is there, next to all programs of the site. The first request of a page is not counted. The
size is that of the page as it is sent, compressed, without the files that a browser keeps. Quotes are asked
for by REST, one after the other.
"""

import argparse
import asyncio
import time
from typing import Any

import httpx

from tests.bench.live.inside import as_owner, site_enter
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.browser.screens import PAGES

GOAL_MS, GOAL_KB = 150, 100
QUOTES = (
    "1 h100 2h",
    "2 h100 6h tomorrow 9:00",
    "4 h100 8h by friday",
    "1g.10gb h100 2h now",
    "2 a100 or h100 12h",
    "1 l40s 30m",
    "8 h100 24h",
    "half l40s 4h",
)
SLOWEST = 15
WEEKS = 8


def bookings_copy(site: Site, wanted: int) -> int:
    """Copies bookings that are over until the organisation has `wanted`; returns how many it has."""
    site_enter(site)
    from django.db import connections  # noqa: PLC0415 (Django is there only now)

    from allocation.models import Booking  # noqa: PLC0415

    other = {
        "id": "gen_random_uuid()",
        "number": "top.number + row_number() OVER ()",
        "submitted": "now() - b.age",
        "ended_at": "now() - b.age * 0.99",
        "charged": "0",
        "series_id": "NULL",
        "array_id": "NULL",
    }
    names = [str(field.column) for field in Booking._meta.local_fields]
    values = ", ".join(other.get(name, f"b.{name}") for name in names)
    with connections[as_owner(site)].cursor() as cursor:
        cursor.execute("SELECT id FROM tenants_tenant WHERE slug = 'helix'")
        tenant = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('portal.tenant', %s, false)", [str(tenant)])
        cursor.execute(
            f"INSERT INTO allocation_booking ({', '.join(names)}) SELECT {values}"  # noqa: S608 (columns)
            " FROM (SELECT max(number) AS number, count(*) AS count FROM allocation_booking"
            "   WHERE tenant_id = %(tenant)s) top,"
            f" LATERAL (SELECT o.*, random() * interval '{WEEKS} weeks' AS age"
            "   FROM allocation_booking o, generate_series(1, %(wanted)s) n"
            "   WHERE o.tenant_id = %(tenant)s AND o.state = 'ended'"
            "   LIMIT greatest(0, %(wanted)s - top.count)) b",
            {"tenant": tenant, "wanted": wanted},
        )
        cursor.execute("ANALYZE allocation_booking")
        cursor.execute("SELECT count(*) FROM allocation_booking WHERE tenant_id = %s", [tenant])
        return int(cursor.fetchone()[0])


async def pages_ask(site: Site, rounds: int) -> dict[str, dict[str, Any]]:
    """Times and size of each page by its name."""
    found: dict[str, dict[str, Any]] = {}
    for role, pages in PAGES.items():
        cookie = {"Cookie": await site.session(role), "Accept-Encoding": "gzip"}
        async with httpx.AsyncClient(base_url=site.url, headers=cookie, timeout=60) as browser:
            for name, address in pages:
                if address.startswith("/"):
                    found[name] = await _asked(browser, address, rounds)
    return found


async def quotes_ask(site: Site, rounds: int) -> dict[str, float]:
    """Times of quotes: each request as often as each page."""
    times = []
    async with site.client("researcher") as rest:
        for number, request in enumerate(QUOTES * (rounds + 1)):
            began = time.perf_counter()
            answer = await rest.post("/quotes", json={"project": "language-models", "request": request})
            if not answer.is_success:
                raise ValueError(f"{request}: {answer.status_code} {answer.text[:200]}")
            if number >= len(QUOTES):
                times.append(time.perf_counter() - began)
    return spread(times)


async def _asked(browser: httpx.AsyncClient, address: str, rounds: int) -> dict[str, Any]:
    times, size = [], 0
    for number in range(rounds + 1):
        began = time.perf_counter()
        async with browser.stream("GET", address) as answer:
            parts = [part async for part in answer.aiter_raw()]
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise ValueError(f"{address}: {answer.status_code}")
        if number:
            times.append(time.perf_counter() - began)
            size = sum(map(len, parts))
    return {**spread(times), "kb": round(size / 1000, 1)}


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Copies the bookings, and asks for all pages."""
    bookings = bookings_copy(site, options.bookings)
    pages = asyncio.run(pages_ask(site, options.rounds))
    slow = sorted(pages.items(), key=lambda each: -each[1]["p50_ms"])
    return {
        "bench": "pages",
        "bookings": bookings,
        "pages": len(pages),
        "quotes": asyncio.run(quotes_ask(site, options.rounds)),
        "p50_of_all": spread([each["p50_ms"] / 1000 for each in pages.values()]),
        "above_goal": [name for name, each in pages.items() if each["p50_ms"] > GOAL_MS],
        "too_large": [name for name, each in pages.items() if each["kb"] > GOAL_KB],
        "slowest": dict(slow[:SLOWEST]),
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.pages", description=__doc__)
    site_options(parser)
    parser.add_argument("--bookings", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    bench_run(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
