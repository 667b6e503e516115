"""Streams of events: many over two threads, behind the wall, resumed, and ended with the token."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import connection
from django.utils import timezone

from allocation.models import Booking
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from portal.integrations.relay import outbox_relay
from portal.web.serving import streams
from portal.web.serving.streams import MOST_OF_TOKEN, Follower, Streams
from tenants.models import ApiToken
from tenants.platform.deferred import Follow
from tenants.services import token_create
from tests.builders_allocation import Lab, a_booking, a_lab
from tests.roles import as_owner, as_system
from tests.servers.live import web_program
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


@dataclass(frozen=True)
class Web:
    """A web process with two threads; tokens of a member and of a neighbour."""

    process: "subprocess.Popen[bytes]"
    rest: httpx.AsyncClient
    booking: Booking
    tokens: tuple[str, str, str]

    @asynccontextmanager
    async def stream(self, token: str, **headers: str) -> AsyncIterator["httpx.Response"]:
        sent = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream", **headers}
        async with self.rest.stream("GET", "/api/v1/events", headers=sent) as response:
            yield response


def _token(lab: Lab, name: str) -> str:
    with as_owner():
        return token_create(actor=lab.actor, name=name, days=1, now=timezone.now())[1]


@pytest.fixture
def web(real_db: Servers, valkey_url: str) -> Iterator[Web]:
    port = free_port()
    plain = web_program(real_db, port)
    program = replace(plain, environment={**plain.environment, "WEB_THREADS": "2"})
    process = start(program)
    with as_system():
        lab, neighbour = a_lab("helix"), a_lab("north", gpus=0)
        tokens = (_token(lab, "first"), _token(lab, "second"), _token(neighbour, "other"))
    booking = a_booking(lab.project, lab.actor.user_id)
    limits = httpx.Limits(max_connections=None)
    rest = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, limits=limits)
    yield Web(process, rest, booking, tokens)
    stop(process, program)


def happened(booking: Booking, kind: str) -> None:
    now = timezone.now()
    try:
        with as_system():
            event_add(booking, kind=kind, sentence=event_text("time_over"), now=now)
            outbox_relay(now)
    finally:
        connection.close()


def revoked(name: str) -> None:
    try:
        with as_system():
            ApiToken.objects.filter(name=name).update(revoked=timezone.now())
    finally:
        connection.close()


async def event_of(response: httpx.Response, lines: AsyncIterator[str]) -> dict[str, Any]:
    """The next event of a stream; without one the client's time-out is an error."""
    assert response.status_code == 200
    async for line in lines:
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return event
    raise AssertionError("the stream ended")


async def test_an_error_ends_the_streams_instead_of_leaving_them_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(streams, "_look_in_thread", failing)
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0)
    follow = Follow(uuid4(), b"", frozenset(), 0, lambda *_: ((), 0))
    async with asyncio.timeout(5):
        parts = [each async for each in Streams()._parts(Follower(follow, 0))]
    assert parts == [b"retry: 2000\n\n"]


async def test_streams_hold_no_thread_and_give_each_its_own_events(web: Web) -> None:
    first, second, other = web.tokens
    async with asyncio.timeout(120), web.rest as rest, web.stream(other) as foreign:
        foreign_lines = foreign.aiter_lines()
        assert await anext(foreign_lines) == "retry: 2000"

        async def follower(token: str) -> dict[str, Any]:
            async with web.stream(token) as response:
                lines = response.aiter_lines()
                assert await anext(lines) == "retry: 2000"
                open_ones.release()
                return await event_of(response, lines)

        open_ones = asyncio.Semaphore(0)
        crowd = [
            asyncio.create_task(follower(token)) for token in (first, second) for _ in range(MOST_OF_TOKEN)
        ]
        for _ in crowd:
            await asyncio.wait_for(open_ones.acquire(), 20)
        # One more stream of this token is refused; both threads are free for other calls.
        async with web.stream(first) as refused:
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        headers = {"Authorization": f"Bearer {first}"}
        await asyncio.to_thread(happened, web.booking, "started")
        events = await asyncio.gather(*crowd)
        assert {each["type"] for each in events} == {"booking.started"}
        listed = (await rest.get("/api/v1/events", headers=headers)).json()["items"]
        assert events == listed * len(crowd)
        await asyncio.to_thread(happened, web.booking, "ending")
        async with web.stream(second, **{"Last-Event-ID": listed[0]["id"]}) as resumed:
            assert resumed.headers["Cache-Control"] == "no-store"
            lines = resumed.aiter_lines()
            assert (await event_of(resumed, lines))["type"] == "booking.ending"
            await asyncio.to_thread(revoked, "second")
            assert not any([line.startswith("data") async for line in lines])
        web.process.send_signal(signal.SIGTERM)
        # The neighbour's stream had nothing to say, and ends with the process.
        assert "".join([line async for line in foreign_lines]) == ""
