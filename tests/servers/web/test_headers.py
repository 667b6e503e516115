"""Headers of every kind of answer let browsers trust and keep nothing: of pages, errors, REST,
files, downloads, refusals before Django, and answers that the operators' process gives."""

from collections.abc import Mapping

import httpx
import pytest
from django.test import Client

from portal.web.policy import OWN, UNUSED
from portal.web.serving.costly import _refusal
from tenants.platform.errors import Refused
from tests.builders import a_member, a_project
from tests.web.crawl import filled, routes

pytestmark = pytest.mark.turn
FIXED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def missing(headers: Mapping[str, str]) -> list[str]:
    """The headers that an answer lacks."""
    wrong = [name for name, value in FIXED.items() if headers.get(name) != value]
    policy = headers.get("Content-Security-Policy", "")
    if "default-src 'self'" not in policy or "frame-ancestors 'none'" not in policy:
        wrong.append("Content-Security-Policy")
    permissions = headers.get("Permissions-Policy", "")
    refused = [f"{each}=()" in permissions for each in UNUSED]
    if not all(refused) or not all(f"{each}=(self)" in permissions for each in OWN):
        wrong.append("Permissions-Policy")
    if "Cache-Control" not in headers:
        wrong.append("Cache-Control")
    return wrong


@pytest.mark.django_db
def test_every_route_and_method_has_the_headers() -> None:
    browser = Client()
    browser.force_login(a_member(a_project()).user)
    browser.raise_request_exception = False
    wrong = {}
    for route in routes():
        for client in (browser, Client()):
            path = filled(route, {}, "1")
            for method in ("GET", "TRACE"):
                answer = client.generic(method, path)
                if lacks := missing(answer.headers):
                    wrong[method, path, answer.status_code] = lacks
    assert wrong == {}


KINDS = {
    "a page": ("GET", "/sign-in", {}, 200),
    "a redirect": ("GET", "/", {}, 302),
    "a missing page": ("GET", "/nowhere", {}, 404),
    "a page that only operators have": ("GET", "/ops/fleet", {}, 302),
    "a page of the operators' process": ("GET", "/second-factor/passkey", {}, 200),
    "no method of a page": ("TRACE", "/sign-in", {}, 405),
    "a form of another site": ("POST", "/sign-in", {}, 403),
    "REST": ("GET", "/api/v1/openapi.json", {}, None),
    "REST without a token": ("GET", "/api/v1/me", {}, 401),
    "REST with a wrong token": ("GET", "/api/v1/me", {"Authorization": "Bearer x"}, 401),
    "a missing route of REST": ("GET", "/api/v1/nowhere", {}, 404),
    "a directory's call": ("GET", "/scim/v2/Users", {}, 401),
    "another host": ("GET", "/sign-in", {"Host": "evil.example"}, 400),
    "another host for REST": ("GET", "/api/v1/me", {"Host": "evil.example"}, 400),
    "a file": ("GET", "/static/css/base.css", {}, 200),
    "a picture that could have scripts": ("GET", "/static/img/mark.svg", {}, 200),
    "a missing file": ("GET", "/static/nothing.css", {}, 404),
    "health": ("GET", "/healthz", {}, 200),
    "metrics": ("GET", "/metrics", {}, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_has_the_headers(live_portal: str, kind: str) -> None:
    method, path, sent, status = KINDS[kind]
    answer = httpx.request(method, live_portal + path, headers=sent, timeout=20)
    assert status in (None, answer.status_code)
    assert missing(answer.headers) == []


@pytest.mark.parametrize("path", ["/sign-in", "/api/v1/me"])
def test_a_refusal_before_django_has_the_headers(live_portal: str, path: str) -> None:
    answer = httpx.post(live_portal + path, content=b"x" * (2**20 * 9), timeout=20)
    assert answer.status_code == 413
    assert missing(answer.headers) == []


@pytest.mark.parametrize("path", ["/t/helix/bookings", "/api/v1/quotes"])
@pytest.mark.parametrize("headers", [[], [(b"x-fragment", b"1")]])
def test_a_refusal_of_costly_work_has_the_headers(path: str, headers: list[tuple[bytes, bytes]]) -> None:
    refused = Refused("too_many_requests", "Wait.", numbers={"retry_after_seconds": 1})
    answer = _refusal({"path": path, "headers": headers}, refused)
    found = httpx.Headers([(name.decode(), said.decode()) for name, said in answer.headers])
    assert missing(found) == []
