"""A real OpenID Connect provider on loopback, and the browser's part of a sign-in."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import httpx
from django.http import HttpResponse
from django.test import Client

from devtools.launch.embedded import free_port, http_answers
from devtools.launch.processes import Program, start, stop
from tests.servers.servers import ROOT

SECONDS = 10


@dataclass(frozen=True)
class Provider:
    """Its address, which is its issuer, and its people."""

    port: int

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def person(self, subject: str, **claims: object) -> None:
        """Sets what the provider says about the person from now on."""
        answer = httpx.put(f"{self.issuer}/users/{subject}", json=claims, timeout=SECONDS)
        assert answer.status_code == HTTPStatus.NO_CONTENT

    def signs_in(self, url: str, subject: str) -> str:
        """Signs the person in at the address that the portal named; returns where it leads."""
        answer = httpx.post(url, data={"sub": subject}, timeout=SECONDS)
        assert answer.status_code == HTTPStatus.FOUND, answer.text
        return answer.headers["location"].removeprefix("http://localhost:8000")


@contextmanager
def a_provider() -> Iterator[Provider]:
    """One that runs until the end of the block."""
    port = free_port()
    program = Program(
        name="oidc-provider-mock",
        command=(sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port)),
        environment={**os.environ, "NO_COLOR": "1"},
        folder=ROOT,
        is_ready=lambda: http_answers(port, "/.well-known/openid-configuration"),
        ready_seconds=30,
    )
    process = start(program)
    try:
        yield Provider(port)
    finally:
        stop(process, program)


def sent_to(client: Client, slug: str, after: str = "/account") -> str:
    """Starts a sign-in; returns the provider's address that the browser is sent to."""
    answer = client.get(f"/sso/{slug}?next={after}")
    assert answer.status_code == HTTPStatus.FOUND, answer.content.decode()
    return str(answer["Location"])


def sign_in_by(provider: Provider, client: Client, slug: str, subject: str) -> HttpResponse:
    """A whole sign-in; returns the portal's last answer."""
    return cast(HttpResponse, client.get(provider.signs_in(sent_to(client, slug), subject)))
