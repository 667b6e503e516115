"""Requests that wait for a decision hold no thread, and each of them is answered."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import httpx
import pytest
import redis
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from allocation.models import Booking
from allocation.services.bookings.creation import booking_request
from allocation.services.publish.live import DECIDED_CHANNEL
from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from portal.web.serving import waiting
from portal.web.serving.waiting import Waiter, Waiting
from tenants.platform.deferred import Deferred, DeferredResponse, Wait
from tenants.services import token_create
from tests.builders_allocation import NOW, a_booking_request, a_lab
from tests.roles import as_owner, as_system
from tests.servers.live import web_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn

THREADS = 2
CROWD = 200


@dataclass(frozen=True)
class Web:
    """A web process with two threads, and a booking that is not decided."""

    process: "subprocess.Popen[bytes]"
    url: str
    token: str
    booking: UUID

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            limits=httpx.Limits(max_connections=None),
        )

    def asking(self, rest: httpx.AsyncClient, seconds: int) -> "asyncio.Task[httpx.Response]":
        path = f"/api/v1/bookings/bk_{self.booking.hex}"
        return asyncio.create_task(rest.get(path, headers={"Prefer": f"wait={seconds}"}))


def _token_and_booking() -> tuple[str, UUID]:
    with as_system():
        lab = a_lab("helix")
        with as_owner():
            _, token = token_create(actor=lab.actor, name="waits", days=1, now=timezone.now())
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=NOW)
    return token, booking.id


@pytest.fixture
def web(real_db: Servers, valkey_url: str) -> Iterator[Web]:
    port = free_port()
    plain = web_program(real_db, port)
    program = replace(plain, environment={**plain.environment, "WEB_THREADS": str(THREADS)})
    process = start(program)
    yield Web(process, f"http://127.0.0.1:{port}", *_token_and_booking())
    stop(process, program)


def decide(booking: UUID, *, hint: bool = True) -> None:
    """The solver answers, and says so as it does after its commit."""
    try:
        with as_system():
            Booking.objects.filter(id=booking).update(state="queued")
    finally:
        connection.close()
    if not hint:
        return
    with redis.Redis.from_url(settings.CHANNELS_REDIS_URL) as server:
        server.publish(DECIDED_CHANNEL, b"")


def listened(server: "redis.Redis") -> None:
    """Returns when the web process listens for hints."""
    wait_until(lambda: server.pubsub_numsub(DECIDED_CHANNEL)[0][1] == 1, seconds=10)


@pytest.mark.long
async def test_two_hundred_wait_and_others_are_served(web: Web) -> None:
    async with web.client() as rest, web.client() as others:
        crowd = [web.asking(rest, 40) for _ in range(CROWD)]
        for _ in range(20):
            answer = await others.get("/api/v1/tiers")
            assert answer.status_code == 200
        assert not any(asked.done() for asked in crowd)
        await asyncio.to_thread(decide, web.booking)
        answers = await asyncio.gather(*crowd)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["state"] for answer in answers} == {"queued"}
    assert {answer.headers["Preference-Applied"] for answer in answers} == {"wait=40"}
    # What the middlewares give to every answer is there, too.
    assert "default-src 'self'" in answers[0].headers["Content-Security-Policy"]
    assert answers[0].headers["Cache-Control"] == "no-store"
    assert int(answers[0].headers["Content-Length"]) == len(answers[0].content)


async def test_without_a_decision_the_answer_comes_when_the_time_is_over(web: Web) -> None:
    async with web.client() as rest:
        began = time.monotonic()
        answer = await web.asking(rest, 1)
    assert 1 <= time.monotonic() - began < 5
    assert (answer.json()["state"], answer.headers["Preference-Applied"]) == ("requested", "wait=1")


async def test_a_lost_hint_costs_a_second(web: Web) -> None:
    async with web.client() as rest:
        asked = web.asking(rest, 40)
        with redis.Redis.from_url(settings.CHANNELS_REDIS_URL) as server:
            await asyncio.to_thread(listened, server)
        await asyncio.to_thread(decide, web.booking, hint=False)
        assert (await asked).json()["state"] == "queued"


async def test_a_process_that_stops_answers_those_who_wait(web: Web) -> None:
    async with web.client() as rest:
        crowd = [web.asking(rest, 40) for _ in range(20)]
        with redis.Redis.from_url(settings.CHANNELS_REDIS_URL) as server:
            await asyncio.to_thread(listened, server)
        await rest.get("/healthz")
        began = time.monotonic()
        web.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*crowd)
        assert time.monotonic() - began < 3
    assert {(each.status_code, each.json()["state"]) for each in answers} == {(200, "requested")}


def a_response(tenant: UUID) -> DeferredResponse:
    """A request of `tenant` that would wait for ten minutes."""

    def conclude(found: object, applied: bool) -> HttpResponseBase:  # noqa: FBT001 (as in use)
        return HttpResponse(f"{found} {applied}")

    wait = Wait(tenant, uuid4(), 600, lambda found, applied: DeferredResponse(None))
    response = DeferredResponse(None)
    response.deferred = Deferred(wait, conclude)
    return response


def due_alone(everybody: Mapping[UUID, Sequence[Waiter]]) -> waiting.Answers:
    """A look that finds nothing decided."""
    return [
        (waiter, waiter.deferred.conclude("nothing", waiter.applied))
        for waiters in everybody.values()
        for waiter in waiters
        if waiter.is_due
    ]


async def test_one_tenant_takes_a_part_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_look_in_thread", due_alone)
    room, (ours, theirs) = Waiting(most=3, most_each=2), (uuid4(), uuid4())
    first = [asyncio.create_task(room.answer(a_response(ours))) for _ in range(2)]
    await asyncio.sleep(0)
    third = await asyncio.wait_for(room.answer(a_response(ours)), 5)
    other = asyncio.create_task(room.answer(a_response(theirs)))
    await asyncio.sleep(0)
    fourth = await asyncio.wait_for(room.answer(a_response(theirs)), 5)
    assert [third.content, fourth.content] == [b"nothing False"] * 2  # type: ignore[attr-defined]
    assert not any(each.done() for each in (*first, other))
    room.close()
    assert [(await each).content for each in (*first, other)] == [b"nothing True"] * 3  # type: ignore[attr-defined]


async def test_a_cancellation_at_any_moment_ends_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_look_in_thread", due_alone)
    for steps in range(6):
        room = Waiting()
        room._begin()
        look, listen = room._tasks
        await asyncio.sleep(0.01)
        room._wake.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        look.cancel()
        done, _ = await asyncio.wait({look}, timeout=2)
        look.cancel()
        listen.cancel()
        await asyncio.wait({listen}, timeout=2)
        assert done, steps


@pytest.mark.parametrize("sent", range(1, 4))
async def test_a_cancellation_while_it_sends_ends_listening(
    sent: int, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain, count = asyncio.StreamWriter.drain, [0]

    async def cancelling(writer: asyncio.StreamWriter) -> None:
        await drain(writer)
        count[0] += 1
        if count[0] == sent:
            listen.cancel()

    monkeypatch.setattr(asyncio.StreamWriter, "drain", cancelling)
    listen = asyncio.create_task(Waiting()._listen())
    done, _ = await asyncio.wait({listen}, timeout=2)
    listen.cancel()
    await asyncio.wait({listen}, timeout=2)
    assert done


async def test_a_fault_of_a_look_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(everybody: object) -> waiting.Answers:
        raise KeyError("a bug")

    monkeypatch.setattr(waiting, "_look_in_thread", broken)
    room, response = Waiting(), a_response(uuid4())
    assert await asyncio.wait_for(room.answer(response), 5) is response
    monkeypatch.setattr(waiting, "_look_in_thread", due_alone)
    again = asyncio.create_task(room.answer(a_response(uuid4())))
    await asyncio.sleep(0)
    room.close()
    assert (await asyncio.wait_for(again, 5)).content == b"nothing True"  # type: ignore[attr-defined]
