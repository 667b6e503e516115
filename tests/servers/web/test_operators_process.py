"""Operators' pages and calls are answered by a process of their own, at the same address."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from urllib.parse import urlencode, urlsplit

import pyotp
import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from allocation.models import Node
from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from tenants.models import SecondFactor, Session, User
from tenants.services import token_create
from tenants.services.sign_in.second_factor import factor_secret
from tenants.services.sign_in.sessions import session_digest
from tenants.web.sessions import SessionStore
from tests.builders import a_member, a_project, an_actor, an_operator
from tests.builders_allocation import a_node
from tests.roles import as_owner, as_system
from tests.servers.live import operators_program, web_program
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


def ask(
    address: str, path: str, *, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """One request, with headers as they are given."""
    found = urlsplit(address)
    with closing(http.client.HTTPConnection(str(found.hostname), found.port, timeout=20)) as link:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        link.request(method, path, body, sent)
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def cookie_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def token_of(user: User) -> str:
    actor = an_actor(a_member(a_project(), user=user))
    with as_owner():
        _, clear = token_create(actor=actor, name="t", days=1, now=timezone.now())
    return f"Bearer {clear}"


@pytest.fixture
def alone(real_db: Servers, valkey_url: str) -> Iterator[str]:
    """A web process whose operators' process is not there."""
    port = free_port()
    program = web_program(real_db, port)
    process = start(program)
    yield f"http://127.0.0.1:{port}"
    stop(process, program)


@pytest.fixture
def operators(real_db: Servers, valkey_url: str) -> Iterator[str]:
    """The operators' process itself, as somebody who got past the web would meet it."""
    port = free_port()
    program = operators_program(real_db, port, port)
    process = start(program)
    yield f"http://127.0.0.1:{port}"
    stop(process, program)


def test_an_operator_reads_and_writes_at_the_webs_address(live_portal: str) -> None:
    operator = an_operator()
    cookie = cookie_of(operator)
    status, headers, page = ask(live_portal, "/ops/tiers", Cookie=cookie)
    assert (status, headers["Cache-Control"]) == (200, "no-store, private")
    assert "Content-Security-Policy" in headers
    mark = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    sent = urlencode({"csrfmiddlewaretoken": mark, "act": "nothing"}).encode()
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    csrf = headers["Set-Cookie"].partition(";")[0]
    status, _, _ = ask(
        live_portal, "/ops/tiers", method="POST", body=sent, Cookie=f"{cookie}; {csrf}", **form
    )
    assert status == 422
    # Without the browser's mark the form is refused before it is passed on.
    status, _, _ = ask(live_portal, "/ops/tiers", method="POST", body=sent, Cookie=cookie, **form)
    assert status == 403


def test_an_operators_calls_with_a_body_and_a_key_are_passed_on(live_portal: str) -> None:
    with as_system():
        a_node()
        node = Node.objects.get()
    token = token_of(an_operator())
    sent = {"Authorization": token, "Idempotency_Key": "once", "Content_Type": "application/json"}
    path = f"/api/v1/fleet/nodes/{node.name}/drain"
    body = json.dumps({"reason": "fan"}).encode()
    first = ask(live_portal, path, method="POST", body=body, **sent)
    again = ask(live_portal, path, method="POST", body=body, **sent)
    assert (first[0], again[0]) == (200, 200), first
    assert again[1]["Idempotency-Replayed"] == "true"
    with as_system():
        assert Node.objects.get().state == Node.State.DRAINING


def test_members_are_answered_by_the_web_and_never_by_the_operators_process(
    alone: str, operators: str
) -> None:
    member = a_member(a_project())
    token, home = token_of(member.user), f"/t/{member.tenant.slug}/"
    assert ask(alone, "/api/v1/me", Authorization=token)[0] == 200
    assert ask(operators, "/api/v1/me", Authorization=token)[0] == 401
    cookie = cookie_of(member.user)
    assert ask(alone, home, Cookie=cookie)[0] == 200
    for path in ("/ops/tiers", home, "/sign-in"):
        assert ask(operators, path, Cookie=cookie)[0] == 404


def test_without_its_process_operators_read_that_the_portal_is_busy(alone: str) -> None:
    operator = an_operator()
    status, headers, _ = ask(alone, "/ops/tiers", Cookie=cookie_of(operator))
    assert (status, headers["Retry-After"]) == (503, "5")
    status, headers, body = ask(alone, "/api/v1/me", Authorization=token_of(operator))
    assert (status, headers["Content-Type"]) == (503, "application/problem+json")
    assert json.loads(body)["code"] == "busy"


def test_the_client_is_who_the_web_saw_whatever_it_says_of_itself(live_portal: str) -> None:
    """Only an address that settings allow reads the metrics without a token."""
    assert ask(live_portal, "/metrics")[0] == 200
    assert ask(live_portal, "/metrics", X_Portal_Client="203.0.113.9")[0] == 200
    assert ask(live_portal, "/metrics", X_Forwarded_For="203.0.113.9")[0] == 401


def test_an_agents_enrolment_is_passed_on_only_with_a_good_token(alone: str) -> None:
    body = json.dumps({"token": "gpup_enrol_wrong", "inventory": {}}).encode()
    status, _, said = ask(
        alone, "/api/v1/agents/enrol", method="POST", body=body, Content_Type="application/json"
    )
    assert status in (403, 422), said


def test_a_second_factor_is_checked_by_the_operators_process(live_portal: str) -> None:
    """For members, too: the web process has neither the secret nor the right to sign in."""
    user, now = a_member(a_project()).user, timezone.now()
    with as_owner():
        factor = SecondFactor.objects.create(user=user, salt=b"s", created=now, confirmed=now)
        key = "k" * 32
        Session.objects.create(
            digest=session_digest(key),
            pending=user,
            data=SessionStore().encode({}),
            created=now,
            last_seen=now,
            expires=now + timedelta(hours=1),
        )
    cookie = f"{settings.SESSION_COOKIE_NAME}={key}"
    assert ask(live_portal, "/account", Cookie=cookie)[0] == 302
    status, headers, page = ask(live_portal, "/second-factor", Cookie=cookie)
    assert (status, user.username in page) == (200, True)
    mark = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    code = pyotp.TOTP(factor_secret(factor)).now()
    sent = urlencode({"csrfmiddlewaretoken": mark, "act": "check", "code": code}).encode()
    status, headers, _ = ask(
        live_portal,
        "/second-factor",
        method="POST",
        body=sent,
        Content_Type="application/x-www-form-urlencoded",
        Cookie=f"{cookie}; {headers['Set-Cookie'].partition(';')[0]}",
        Origin=live_portal,
    )
    assert status == 302
    cookies = [each.partition(";")[0] for each in headers.get_all("Set-Cookie", [])]
    (new,) = (each for each in cookies if each.startswith(settings.SESSION_COOKIE_NAME))
    assert new != cookie
    assert ask(live_portal, "/account", Cookie=new)[0] == 200
    assert ask(live_portal, "/second-factor/setup", Cookie=new)[0] == 200
