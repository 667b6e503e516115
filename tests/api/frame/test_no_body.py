"""Operations that take no body refuse one, and those that take one refuse what they do not know."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from django.test import Client

from tests.api.builders import Site, a_site, row_counts, said
from tests.web.crawl import filled
from tests.web.frame.test_hostile_text import openapi, undone

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
SENT: tuple[bytes, ...] = (
    b'{"bogus": 1}',
    b'{"starts": "2030-01-01T00:00:00Z"}',
    b"[]",
    b"null",
    b"1",
    b"{",
    b"bogus=1",
)
OTHERS = {"/api/v1/device/codes", "/api/v1/device/token"}
"""OAuth's forms, which a device sends before anybody has signed in."""


def operations(*, bodies: bool) -> Iterator[tuple[str, str]]:
    """Every operation of the document, with or without a body."""
    for route, methods in openapi()["paths"].items():
        for method, one in methods.items():
            if method in ("post", "put", "patch", "delete", "get") and (("requestBody" in one) is bodies):
                yield method.upper(), route


def ask(
    site: Site,
    method: str,
    route: str,
    body: bytes,
    kind: str = "application/json",
    **headers: str,
) -> Any:  # noqa: ANN401 (any answer)
    names = {
        "tenant": "helix",
        "slug": "folding",
        "name": "gpu-a1-01",
        "number": "1",
        "version": "1",
        "budget_id": str(site.budget.id),
    }
    address = filled(route.replace("{", "<").replace("}", ">"), names, "1")
    is_of_operators = "operators)" in str(openapi()["paths"][route][method.lower()]["summary"])
    token = (site.operator if is_of_operators else site.admin).token
    headers["Authorization"] = f"Bearer {token}"
    client = Client(raise_request_exception=False)
    return client.generic(method, address, body, content_type=kind, headers=headers)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def test_an_operation_without_a_body_refuses_one(site: Site) -> None:
    found = list(operations(bodies=False))
    assert ("POST", "/api/v1/policy/versions/{number}/withdraw") in found
    assert {"POST", "DELETE", "GET"} <= {method for method, _ in found}
    before, others = row_counts(), cycle(SENT[1:])
    for method, route in found:
        for body in (SENT[0], next(others)):
            answer = undone(lambda: ask(site, method, route, body))  # noqa: B023 (called now)
            assert 400 <= answer.status_code < 500, (method, route, body)
            # An address with a made-up id is not found before its body is read.
            assert answer.status_code in (400, 401, 403, 404, 422), (method, route, body)
    assert row_counts() == before


def test_the_live_policy_stays_if_its_activation_says_more(site: Site) -> None:
    made = site.operator.post("policy/versions", {"document": {"grid": 600}})
    number = said(made)["number"]
    for body in ({"start": "2030-01-01T00:00:00Z"}, {"bogus": 1}):
        refused = site.operator.post(f"policy/versions/{number}/activate", body)
        assert (refused.status_code, said(refused)["code"]) == (400, "unknown_field"), body
        assert said(site.operator.get(f"policy/versions/{number}"))["state"] == "draft"


def test_an_operation_with_a_body_refuses_what_it_does_not_know(site: Site) -> None:
    before = row_counts()
    for method, route in operations(bodies=True):
        if route not in OTHERS:
            answer = undone(lambda: ask(site, method, route, SENT[0]))  # noqa: B023 (called now)
            assert 400 <= answer.status_code < 500, (method, route)
    assert row_counts() == before


def test_a_request_without_a_dry_run_refuses_one_and_writes_nothing(site: Site) -> None:
    """Each operation that changes something: one that ignored it would book in earnest."""
    before, dry, refused = row_counts(), Counter[bool](), 0
    for method, route in (*operations(bodies=False), *operations(bodies=True)):
        if method == "GET" or route in OTHERS or route.endswith("/messages"):
            continue
        declared = openapi()["paths"][route][method.lower()].get("parameters", [])
        has_one = any("dry-run" in each.get("description", "") for each in declared)
        dry[has_one] += 1
        if has_one:
            continue
        answer = undone(lambda: ask(site, method, route, b"", prefer="dry-run"))  # noqa: B023 (called now)
        # Addresses with ids of another form than 1 are not found.
        assert answer.status_code in (400, 401, 403, 404), (method, route)
        if answer.status_code == 400:
            assert said(answer)["code"] == "no_dry_run", (method, route)
            refused += 1
    assert dry[True] > 8
    assert dry[False] > 150
    assert refused > 50
    assert row_counts() == before


def test_a_batch_has_no_dry_run(site: Site) -> None:
    body = {"items": [{"project": "folding", "request": "1 h100 1h"}]}
    refused = site.researcher.post("bookings/batch", body, prefer="dry-run")
    assert (refused.status_code, said(refused)["code"]) == (400, "no_dry_run")
    assert said(site.researcher.get("bookings"))["items"] == []
