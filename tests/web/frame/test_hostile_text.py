"""Nothing that anybody sends is answered with a server error: every address, method and form.

Each run tries every route with every method, and rotates hostile texts and roles through paths,
parameters, forms and JSON; `-m long` tries all of them everywhere.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from itertools import cycle, islice
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

from tenants.platform.text import first_invisible, without_invisible
from tests.api.builders import Site, a_site, row_counts, said
from tests.web.crawl import METHODS, TEXTS, Crawler, Form, escaped, filled, forms_of, routes

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
ROLES = ("researcher", "admin", "operator")
ALL = 1000
PAGES_OF_A_ROUTE = 2
FIELDS = 3
AMOUNTS = [pytest.param(1, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)]
START = ["/", "/t/helix/", "/sign-in", "/ops/fleet"]
VALUES: tuple[Any, ...] = (
    *TEXTS.values(),
    "a\x00b",
    "\ud800",
    10**400,
    -1,
    1e308,
    0.5,
    True,
    None,
    [],
    {},
    [None],
    [["x"]],
    {"a": {"b": []}},
    ["x"] * 300,
)


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
    found = [Crawler("anonymous", Client(raise_request_exception=False))]
    for role in ROLES:
        client = Client(raise_request_exception=False)
        client.force_login(site.people[role])
        found.append(Crawler(role, client, {"Authorization": f"Bearer {getattr(site, role).token}"}))
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
        "number": booking["number"],
        "budget_id": str(site.budget.id),
        "version": "1",
    }


def undone(work: Any) -> Any:  # noqa: ANN401 (whatever the work gives)
    """What the work answers; what it changed is taken back."""
    mark = transaction.savepoint()
    try:
        return work()
    finally:
        transaction.savepoint_rollback(mark)


def nothing_broken(crawlers: list[Crawler], at_least: int) -> None:
    assert [line for one in crawlers for line in one.broken] == []
    assert sum(one.asked for one in crawlers) >= at_least


@pytest.mark.parametrize(
    "some", [pytest.param(3, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)]
)
def test_every_route_takes_every_method_of_everybody(
    crawlers: list[Crawler], names: dict[str, str], some: int
) -> None:
    for at, route in enumerate(routes()):
        address = filled(route, names, "1")
        turn, first = islice(cycle(crawlers), at, None), at % len(METHODS)
        methods = (METHODS[first:] + METHODS[:first])[:some]
        for method, one in zip(methods, turn, strict=False):
            undone(partial(one.ask, method, address, why=route))
    nothing_broken(crawlers, 600)


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_text_in_a_path_or_a_parameter_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    texts, turn = cycle(escaped().items()), cycle(crawlers)
    for route in routes():
        address = filled(route, names, "1")
        for why, text in islice(texts, min(most, len(escaped()))):
            one = next(turn)
            if "<" in route:
                undone(partial(one.ask, "GET", filled(route, {"tenant": "helix"}, text), why=why))
            query = f"q={text}&page={text}&{text}={text}&q={text}"
            undone(partial(one.ask, "GET", f"{address}?{query}", why=why))
    nothing_broken(crawlers, 300)


def pages_of(one: Crawler) -> dict[str, str]:
    """Pages that links lead to, by path: of each route the first two, such as days of a chart."""
    found: dict[str, str] = {}
    of_route: Counter[str] = Counter()
    waiting = list(START)
    while waiting:
        address = waiting.pop()
        path = address.partition("?")[0]
        if path in found or path.startswith(("/api/", "/static/")):
            continue
        route = resolve(path).route
        if of_route[route] == PAGES_OF_A_ROUTE:
            continue
        of_route[route] += 1
        answer = one.ask("GET", address)
        found[path] = ""
        if answer.status_code == 200 and "text/html" in answer["Content-Type"]:
            found[path] = answer.content.decode()
            waiting += [
                link if link.startswith("/") else path + link for link in forms_of(path, found[path])[1]
            ]
    return found


def forms(one: Crawler, seen: set[tuple[str, ...]]) -> Iterator[Form]:
    """Every form that the role sees; of forms with the same fields and act the first."""
    for path, html in pages_of(one).items():
        for form in forms_of(path, html)[0]:
            mark = (form.method, form.fields.get("act", ""), *sorted(form.fields))
            if mark not in seen and "sign-out" not in form.action:
                seen.add(mark)
                yield form


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_text_in_a_form_breaks_anything(crawlers: list[Crawler], most: int) -> None:
    texts = cycle(escaped().items())
    seen: set[tuple[str, ...]] = set()
    for one in crawlers:
        for at, form in enumerate(forms(one, seen)):
            fields = list(form.fields)
            if most < ALL and fields:
                # Each has the same reader of text.
                fields = (fields[at % len(fields) :] + fields)[:FIELDS]
            for name in fields:
                for why, text in islice(texts, min(most, len(escaped()))):
                    undone(partial(one.submit, form, {**form.fields, name: text}, why))
    nothing_broken(crawlers, 300)
    assert len(seen) > 25


@cache
def openapi() -> Any:  # noqa: ANN401 (a document)
    """The API as it describes itself."""
    generator: Any = SchemaGenerator
    return generator().get_schema(request=None, public=True)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every call of the API that takes a body: method, route, the body's properties."""
    document = openapi()
    schemas = document["components"]["schemas"]
    for route, methods in document["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name:
                yield method.upper(), route, schemas[name].get("properties", {})


def parameters() -> Iterator[tuple[str, str]]:
    """Every route of the API with each parameter that it takes."""
    document = openapi()
    for route, methods in document["paths"].items():
        for one in methods.get("get", {}).get("parameters", []):
            if one["in"] == "query":
                yield route, one["name"]


def example(schema: dict[str, Any]) -> object:
    """A value that fits a property, roughly."""
    kinds = {"integer": 1, "boolean": True, "array": [], "object": {}, "number": 1}
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    formats = {"date-time": "2030-01-01T00:00:00Z", "date": "2030-01-01", "duration": "PT1H"}
    return kinds.get(kind, formats.get(schema.get("format", ""), "folding"))


@pytest.mark.parametrize("most", AMOUNTS)
def test_no_value_in_json_or_a_parameter_of_the_api_breaks_anything(
    crawlers: list[Crawler], names: dict[str, str], most: int
) -> None:
    values, turn, texts = cycle(VALUES), cycle(crawlers), cycle(escaped().items())
    for method, route, properties in operations():
        address = filled(route.replace("{", "<").replace("}", ">"), names, "1")
        good = {name: example(one) for name, one in properties.items()}
        for name in properties:
            for value in islice(values, min(most, len(VALUES))):
                body = json.dumps({**good, name: value}).encode()
                undone(partial(next(turn).ask, method, address, body, "application/json"))
    for route, name in parameters():
        address = filled(route.replace("{", "<").replace("}", ">"), names, "1")
        for why, text in islice(texts, min(most, len(escaped()))):
            for method in ("GET", "HEAD"):
                next(turn).ask(method, f"{address}?{name}={text}", why=why)
    nothing_broken(crawlers, 300)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"\xff\xfe"),
        ("application/json", b"[" * 100_000),
        ("application/json", b'{"a":' * 5_000),
        ("text/plain", b"{}"),
        ("", b"{}"),
        ("application/json; charset=utf-7", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data"),
        ("multipart/form-data; boundary=" + "y" * 300, b"--y"),
        ("\x00", b"{}"),
        ("application/x-www-form-urlencoded", b"a=1&" * 2_000),
        ("application/x-www-form-urlencoded; charset=nonsense", b"act=%00"),
        ("application/x-www-form-urlencoded", b"&" * 1_100_000),
    ],
)
def test_no_body_breaks_anything(crawlers: list[Crawler], content_type: str, body: bytes) -> None:
    for address in ("/api/v1/bookings", "/api/v1/agents/enrol", "/sign-in", "/t/helix/people"):
        for one in crawlers:
            one.ask("POST", address, body, content_type)
    nothing_broken(crawlers, 16)


@pytest.mark.parametrize(
    "text", ["a\x00b", "a\u202eb", "\u200f", "a\u200bb", "\ufeffa", "\ud800", "a\u2066b", "\ue000"]
)
def test_what_can_not_be_seen_is_found_and_taken_out(text: str) -> None:
    assert first_invisible(text)
    assert not first_invisible(without_invisible(text))


@pytest.mark.parametrize("text", ["", "Jürgen", "می‌خواهم", "👩‍🚀", "日本", "naïve – “x”", "שלום"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert not first_invisible(text)
    assert without_invisible(text) == text


def test_a_form_is_refused_beside_its_field_and_shows_what_is_left(site: Site) -> None:
    client = Client()
    client.force_login(site.people["admin"])
    form = {"act": "set", "project": "folding", "username": "ve\u202era\x00", "role": "lead"}
    answer = client.post("/t/helix/people", form)
    page = answer.content.decode()
    assert "U+202E" in page
    assert "has the invisible character" in page
    assert "\u202e" not in page
    assert "\x00" not in page


def test_a_form_without_a_place_for_the_message_does_nothing_and_says_so(site: Site) -> None:
    client = Client()
    client.force_login(site.people["operator"])
    before = row_counts()
    answer = client.post("/ops/fleet/gpu-a1-01/drain", {"reason": "fans\u200b"})
    assert (answer.status_code, row_counts()) == (422, before)
    assert "U+200B" in answer.content.decode()


def test_an_address_keeps_what_can_be_seen(site: Site) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    answer = client.get("/t/helix/bookings?project=%00fold%E2%80%8Bing")
    assert answer.status_code == 200
    assert "\u200b" not in answer.content.decode()


def test_the_api_names_the_character_and_the_field(site: Site) -> None:
    body = {"project": "folding", "request": "1 h100 1h", "name": "a\u202eb"}
    found = said(site.researcher.post("bookings", body))
    assert (found["code"], found["param"]) == ("bad_text", "name")
    assert "U+202E" in found["detail"]
    found = said(site.researcher.get("bookings", project="a\x00"))
    assert (found["code"], found["param"]) == ("bad_text", "project")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/", 404, "not_found"),
        ("GET", "/api/v2/bookings", 404, "not_found"),
        ("POST", "/api/v1/docs/", 405, "method_not_allowed"),
        ("GET", "/api/v1/a%0Ab", 404, "not_found"),
        ("PATCH", "/api/v1/me", 405, None),
    ],
)
def test_every_error_of_the_api_is_a_problem(
    site: Site, method: str, path: str, status: int, code: str | None
) -> None:
    headers = {"Authorization": f"Bearer {site.admin.token}"}
    answer = Client().generic(method, path, headers=headers)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert code in (None, answer.json()["code"])
    if status == 405:
        assert answer["Allow"]


def test_a_host_that_is_not_ours_and_a_fault_of_ours_are_problems_too(
    monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    answer = Client().get("/api/v1/me", headers={"Host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")

    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("tenants.api.members.me.Me.get", broken)
    client = Client(raise_request_exception=False)
    answer = client.get("/api/v1/me", headers={"Authorization": f"Bearer {site.admin.token}"})
    assert (answer.status_code, answer.json()["code"]) == (500, "broken")
    assert "secret" not in answer.content.decode()
