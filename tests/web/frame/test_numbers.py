"""Numbers in every path, parameter, form and body: no value is answered with a server error."""

import json
import logging
import re
from collections.abc import Iterator
from functools import partial
from itertools import count, cycle, islice, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.test import Client

from tests.api.builders import Site, a_site, said
from tests.web.crawl import Crawler, filled, routes
from tests.web.frame.test_hostile_text import ALL, example, operations, parameters, undone

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
NUMBERS = (
    "9" * 40,
    "9" * 5_000,
    "9223372036854775807",
    "9223372036854775808",
    "2147483648",
    "32768",
    "-1",
    "0",
    "00",
    "1.5",
    "1e3",
    "1e400",
    "NaN",
    "Infinity",
    "٣٤",
    "²",
    "१",
    "\uff11\uff12",
    "+1",
    "1_0",
    "0x1f",
    " 1",
    "1\x00",
)
"""Forms of numbers that some reader of numbers takes, and that no column can hold."""
AMOUNTS = [pytest.param(2, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)]
OF_JSON = (
    10**40,
    -(10**40),
    2**63,
    2**63 - 1,
    -(2**63) - 1,
    2**31,
    2**15,
    -1,
    0,
    1.5,
    1e308,
    -0.0,
    "9" * 40,
    "٣٤",
    "1e400",
    "-1",
    "NaN",
    "1\x00",
)
RAW_JSON = ("9" * 5_000, "1e999999999", "-1e-999999999", "0." + "1" * 5_000, "NaN", "-Infinity")
"""What `json` does not write itself."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of refusals are written to no log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


@pytest.fixture
def crawlers(site: Site) -> list[Crawler]:
    found = []
    for role in ("admin", "operator"):
        client = Client(raise_request_exception=False)
        client.force_login(site.people[role])
        token = {"Authorization": f"Bearer {getattr(site, role).token}"}
        found.append(Crawler(role, client, token))
    return found


@pytest.fixture
def names(site: Site) -> dict[str, str]:
    """Real names of what routes take."""
    booking = said(site.researcher.post("bookings", {"project": "folding", "request": "1 h100 1h"}))
    return {
        "tenant": "helix",
        "slug": "folding",
        "name": "gpu-a1-01",
        "reference": booking["number"],
        "number": "1",
        "budget_id": str(site.budget.id),
        "version": "1",
        "month": "2026-11",
        "day": "2026-11-28",
        "index": "0",
        "username": "mara",
    }


def nothing_broken(crawlers: list[Crawler], at_least: int) -> None:
    assert [line for one in crawlers for line in one.broken] == []
    assert sum(one.asked for one in crawlers) >= at_least


def test_no_number_in_the_place_of_a_number_in_a_path_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str]
) -> None:
    for route in routes():
        for name in re.findall(r"<int:(\w+)>", route):
            for number in NUMBERS:
                address = filled(route, {**names, name: quote(number)}, "1")
                for one, method in product(crawlers, ("GET", "POST")):
                    undone(partial(one.ask, method, address, why=number[:20]))
    nothing_broken(crawlers, 1_000)


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_number_in_the_place_of_a_text_in_a_path_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    numbers, turn = cycle(NUMBERS), cycle(crawlers)
    for route in routes():
        for name in re.findall(r"<(?!int:|uuid:)(?:\w+:)?(\w+)>", route):
            for number in islice(numbers, min(most, len(NUMBERS))):
                address = filled(route, {**names, name: quote(number)}, "1")
                undone(partial(next(turn).ask, "GET", address, why=number[:20]))
    nothing_broken(crawlers, 200)


def page_parameters() -> set[str]:
    """The names of the query parameters that pages read."""
    found: set[str] = set()
    for app in ("allocation", "billing", "tenants", "portal"):
        for path in (Path(settings.BASE_DIR) / app).rglob("web/**/*.py"):
            found.update(re.findall(r"GET(?:\.get\(|\.getlist\(|\[)\s*\"(\w+)\"", path.read_text()))
    return found


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_number_in_a_parameter_of_a_page_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    asked = sorted(page_parameters())
    assert {"page", "before", "part"} <= set(asked)
    numbers, turn = cycle(NUMBERS), cycle(crawlers)
    for route in routes():
        if route.startswith(("/api/", "/scim/")):
            continue
        address = filled(route, names, "1")
        for number in islice(numbers, min(most, len(NUMBERS))):
            query = "&".join(f"{name}={quote(number)}" for name in asked if name != "part")
            undone(partial(next(turn).ask, "GET", f"{address}?{query}", why=number[:20]))
    nothing_broken(crawlers, 150)


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_number_in_a_parameter_of_the_api_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    numbers, turn = cycle(NUMBERS), cycle(crawlers)
    for route, name in parameters():
        address = filled(route.replace("{", "<").replace("}", ">"), names, "1")
        for number in islice(numbers, min(most, len(NUMBERS))):
            next(turn).ask("GET", f"{address}?{name}={quote(number)}", why=number[:20])
    nothing_broken(crawlers, 150)


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_number_in_a_body_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    turn, place = cycle(crawlers), count()
    for method, route, properties in operations():
        address = filled(route.replace("{", "<").replace("}", ">"), names, "1")
        good = {name: example(one) for name, one in properties.items()}
        for name, one in properties.items():
            found = list(bodies(good, name, one))
            start = next(place) * most % len(found)
            for body in (found[start:] + found[:start])[:most]:
                ask = partial(next(turn).ask, method, address, body, "application/json")
                undone(partial(ask, why=f"{route} {name}"))
    nothing_broken(crawlers, 300)


def bodies(good: dict[str, object], name: str, schema: dict[str, Any]) -> Iterator[bytes]:
    """The good body with each number in a field; in texts only those that texts can hold."""
    is_number = schema.get("type") in ("integer", "number") or "format" in schema
    values: tuple[object, ...] = OF_JSON if is_number else (10**40, "9" * 40, "-1", "٣٤")
    for value in values:
        yield json.dumps({**good, name: value}).encode()
    if is_number:
        for raw in RAW_JSON:
            yield json.dumps({**good, name: "HERE"}).replace('"HERE"', raw).encode()
