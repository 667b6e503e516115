"""DNS rebinding: names that lead elsewhere a moment later, and the portal under another's name.

The first answer of the name server is allowed, each later one is a server of the site. Whatever the
portal calls, the second server gets no request.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_network
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
from pytest_django import Settings
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from portal.integrations.chat.child import Connections
from portal.integrations.openid.fetch import ProviderFault, fetch_json
from tenants.rules.webhooks import BadTarget
from tenants.services.outgoing.pinned import pinned
from tenants.services.policy_hooks.calls import hook_post

pytestmark = pytest.mark.turn
NAME = "rebind.example"
CHECKED, INSIDE = "127.0.0.2", "127.0.0.1"
SECRET = "whsec_" + "A" * 32


@dataclass
class Heard:
    """Where requests came in, and how often the name was resolved."""

    port: int
    requests: list[str] = field(default_factory=list)
    lookups: int = 0


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Heard]:
    """A server at each address, with the same port, and a name server that changes its mind."""
    settings.WEBHOOK_ALLOW = settings.SIGN_ON_ALLOW = [ip_network(f"{CHECKED}/32")]
    first = _server(CHECKED, 0, [])
    found = Heard(first.server_port)
    first.heard = found.requests  # type: ignore[attr-defined]
    servers = [first, _server(INSIDE, found.port, found.requests)]
    real = socket.getaddrinfo

    def answer(host: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if host != NAME:
            return real(host, *arguments, **options)
        found.lookups += 1
        return real(CHECKED if found.lookups == 1 else INSIDE, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield found
    for server in servers:
        server.shutdown()
        server.server_close()


def _server(address: str, port: int, heard: list[str]) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            """Writes nothing."""

        def _answer(self) -> None:
            self.server.heard.append(address)  # type: ignore[attr-defined]
            self.send_response(307)
            # By a redirect the same request would be sent to the site's own server.
            own = cast(HTTPServer, self.server).server_port
            self.send_header("Location", f"http://{NAME}:{own}/in")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = _answer

    server = HTTPServer((address, port), Handler)
    server.heard = heard  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _provider(url: str) -> None:
    with suppress(ProviderFault):
        fetch_json(url)


def _hook(url: str) -> None:
    hook_post(
        url,
        data={},
        key=UUID(int=1),
        secrets=(SECRET,),
        timeout_ms=5_000,
        now=datetime(2026, 11, 2, tzinfo=UTC),
    )


def _receiver(url: str) -> None:
    """As webhooks and Jira are called: their bodies go over the same connection."""

    async def sent() -> None:
        async with pinned(url) as receiver:
            for _ in range(2):
                async with receiver.send("POST", "/", content=b"{}", headers={}) as response:
                    assert response.status_code == 307

    asyncio.run(sent())


def _chat(url: str) -> None:
    port = httpx.URL(url).port or 80
    allowed = Connections([ip_network(f"{CHECKED}/32")])
    with allowed.connect((NAME, port)) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
        assert link.recv(100)
    # The library follows redirects by itself, and each connection is checked anew.
    with pytest.raises(OSError, match="address_private"):
        allowed.connect((NAME, port))


@pytest.mark.parametrize("call", [_provider, _hook, _receiver, _chat])
def test_a_name_that_changes_leads_nobody_inside(heard: Heard, call: Any) -> None:  # noqa: ANN401
    call(f"http://{NAME}:{heard.port}/")
    assert heard.requests
    assert set(heard.requests) == {CHECKED}
    assert heard.lookups == (2 if call is _chat else 1)


@pytest.mark.parametrize("call", [_provider, _hook, _receiver])
def test_a_name_that_leads_inside_at_once_is_not_called(heard: Heard, call: Any) -> None:  # noqa: ANN401
    heard.lookups = 1
    with suppress(BadTarget):
        call(f"http://{NAME}:{heard.port}/")
    assert heard.requests == []


HOSTS = ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example"]
HOSTS += ["localhost@evil.example", "localhost:{port}@evil.example", "evil.example#localhost"]
HOSTS += ["[::1", "localhost, evil.example", "169.254.169.254", "0.0.0.0", "2130706433", ""]  # noqa: S104


@pytest.mark.parametrize("path", ["/sign-in", "/api/v1/me", "/healthz", "/ops/fleet", "/sso"])
def test_the_portal_answers_to_its_own_names_only(live_portal: str, path: str) -> None:
    """A page whose name was pointed at the portal would otherwise read its answers."""
    port = httpx.URL(live_portal).port
    for host in HOSTS:
        for more in ({}, {"X-Forwarded-Host": "localhost"}, {"Forwarded": "host=localhost"}):
            sent = {"Host": host.format(port=port), **more}
            answer = httpx.get(live_portal + path, headers=sent, timeout=20)
            assert answer.status_code == 400, sent
            assert "evil" not in answer.text
    trusted = {"X-Forwarded-Host": "evil.example", "X-Host": "evil.example"}
    answer = httpx.get(live_portal + path, headers=trusted, timeout=20)
    assert answer.status_code < 500
    assert "evil" not in answer.text + str(answer.headers)


def test_no_socket_opens_for_a_page_of_another_name(live_portal: str) -> None:
    """After rebinding, origin and host are both the attacker's and agree."""
    url = httpx.URL(live_portal)
    for name in ("evil.example", f"evil.example:{url.port}"):
        link = socket.create_connection((url.host, url.port))
        address, origin = f"ws://{name}/ws/anything", Origin(f"http://{name}")
        with (
            pytest.raises(InvalidStatus) as refusal,
            connect(address, sock=link, origin=origin),
        ):
            pass
        assert refusal.value.response.status_code == 403
