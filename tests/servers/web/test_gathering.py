"""Requests that are written together hold no thread, and each is answered as if it were alone."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import httpx
import psycopg
import pytest
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from allocation.models import Booking
from billing.models import Transfer
from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from portal.web.serving import gathering
from portal.web.serving.gathering import Answers, Gathering, InThread
from tenants.api.gathered import GatheredResponse
from tenants.models import IdempotencyKey
from tests.api.builders import a_site
from tests.roles import as_system
from tests.servers.live import web_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

TENANT = uuid4()
REQUEST = {"project": "folding", "tier": "standard", "request": "1g.10gb h100 for 10m"}
WRITERS = 40


class Work:
    """Answers requests by their numbers. Batches wait for `go`."""

    def __init__(self, together: Callable[[Sequence[int]], Sequence[int | None]]) -> None:
        self.room = Gathering(self._together)
        self._doubled = together
        self.batches: list[list[int]] = []
        self.alone: list[int] = []
        self.go, self.began = Event(), Event()
        self.in_thread: InThread = self._in_thread

    def _together(self, requests: Sequence[GatheredResponse]) -> Answers:
        numbers = [cast(Any, each.intake).number for each in requests]
        self.batches.append(numbers)
        self.began.set()
        assert self.go.wait(10)
        return [None if each is None else HttpResponse(str(each)) for each in self._doubled(numbers)]

    async def _in_thread(
        self, answer: Callable[..., HttpResponseBase], *arguments: object
    ) -> HttpResponseBase:
        return answer(*arguments)

    def ask(self, *numbers: int) -> "list[asyncio.Task[str]]":
        """The requests of these numbers, in their order."""
        return [asyncio.create_task(self._answer(number)) for number in numbers]

    async def _answer(self, number: int) -> str:
        def alone() -> HttpResponse:
            self.alone.append(number)
            return HttpResponse(f"{2 * number} alone")

        intake = SimpleNamespace(
            actor=SimpleNamespace(tenant_id=TENANT),
            number=number,
            alone=alone,
            refused=lambda refusal: HttpResponse(refusal.code),
        )
        answer = await self.room.answer(GatheredResponse(cast(Any, intake)), self.in_thread)
        return cast(HttpResponse, answer).content.decode()

    async def run(self, *numbers: int) -> list[str]:
        """The answers of a first request and of these, which come while the first is written."""
        [first] = self.ask(0)
        await asyncio.to_thread(self.began.wait, 10)
        others = self.ask(*numbers)
        await asyncio.sleep(0)
        self.go.set()
        assert await first == "0"
        return await asyncio.gather(*others)


async def test_those_who_come_while_a_batch_is_written_are_the_next_batch() -> None:
    work = Work(lambda numbers: [2 * each for each in numbers])
    assert await work.run(1, 2, 3) == ["2", "4", "6"]
    assert (work.batches, work.alone) == ([[0], [1, 2, 3]], [])
    assert not work.room._waiting


async def test_who_gets_no_answer_works_alone() -> None:
    work = Work(lambda numbers: [None if each == 2 else 2 * each for each in numbers])
    assert await work.run(1, 2, 3) == ["2", "4 alone", "6"]


async def test_after_a_failure_each_works_alone_and_so_do_the_next() -> None:
    def fail(numbers: Sequence[int]) -> Sequence[int]:
        return [2 * each // (len(numbers) == 1) for each in numbers]

    work = Work(fail)
    assert await work.run(1, 2) == ["2 alone", "4 alone"]
    assert await asyncio.gather(*work.ask(4, 5)) == ["8 alone", "10 alone"]
    assert work.batches == [[0], [1, 2]]


async def test_behind_a_batch_that_is_kept_waiting_requests_work_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "PATIENCE_SECONDS", 0.01)
    work = Work(lambda numbers: [2 * each for each in numbers])
    [first] = work.ask(0)
    await asyncio.to_thread(work.began.wait, 10)
    assert await asyncio.gather(*work.ask(1, 2)) == ["2 alone", "4 alone"]
    work.go.set()
    assert await first == "0"


async def test_requests_that_work_alone_leave_threads_to_others() -> None:
    work = Work(lambda numbers: [None] * len(numbers))
    work.go.set()
    are_free = asyncio.Event()
    count, most = 0, 0

    async def held(answer: Callable[..., HttpResponseBase], *arguments: object) -> HttpResponseBase:
        nonlocal count, most
        count += 1
        most = max(most, count)
        await are_free.wait()
        count -= 1
        return answer(*arguments)

    work.in_thread = held
    asked = work.ask(*range(10))
    while count < gathering.ALONE_AT_ONCE:
        await asyncio.sleep(0.001)
    are_free.set()
    await asyncio.gather(*asked)
    assert (len(work.alone), most) == (10, gathering.ALONE_AT_ONCE)


async def test_too_many_are_refused_and_who_waits_at_a_stop_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "MOST_WAITING", 2)
    work = Work(lambda numbers: [2 * each for each in numbers])
    [first] = work.ask(0)
    await asyncio.to_thread(work.began.wait, 10)
    waiting = work.ask(1, 2)
    await asyncio.sleep(0)
    assert await asyncio.gather(*work.ask(3)) == ["too_many_requests"]
    work.room.close()
    assert await asyncio.gather(*waiting, *work.ask(4)) == ["busy"] * 3
    work.go.set()
    assert await first == "0"
    assert (work.batches, work.alone) == ([[0]], [])


async def test_a_client_that_goes_away_leaves_the_others_in_their_batch() -> None:
    work = Work(lambda numbers: [2 * each for each in numbers])
    [first] = work.ask(0)
    await asyncio.to_thread(work.began.wait, 10)
    gone, stays = work.ask(1, 2)
    await asyncio.sleep(0)
    gone.cancel()
    work.go.set()
    assert (await first, await stays) == ("0", "4")


@dataclass(frozen=True)
class Web:
    """A web process with two threads, and its site."""

    process: "subprocess.Popen[bytes]"
    url: str
    token: str

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            limits=httpx.Limits(max_connections=None),
        )


def post(
    rest: httpx.AsyncClient, key: str, changes: Mapping[str, object] = MappingProxyType({})
) -> "asyncio.Task[httpx.Response]":
    """Sends a booking."""
    headers = {"Idempotency-Key": key}
    return asyncio.create_task(rest.post("/api/v1/bookings", json={**REQUEST, **changes}, headers=headers))


@pytest.fixture
def web(real_db: Servers, valkey_url: str) -> Iterator[Web]:
    site, port = a_site(budget="100000"), free_port()
    program = web_program(real_db, port)
    process = start(program)
    yield Web(process, f"http://127.0.0.1:{port}", site.researcher.token or "")
    stop(process, program)


@pytest.mark.turn
def test_a_crowd_is_written_once_and_a_stop_refuses_who_waits(web: Web, real_db: Servers) -> None:
    asyncio.run(a_crowd(web))
    with as_system():
        assert Booking.objects.count() == WRITERS + 1
        assert Transfer.objects.filter(kind="hold").count() == WRITERS + 1
        keys = set(IdempotencyKey.objects.values_list("key", flat=True))
    asyncio.run(a_stop(web, real_db))
    with as_system():
        assert Booking.objects.count() == WRITERS + 2
        assert set(IdempotencyKey.objects.values_list("key", flat=True)) == {*keys, "at hand"}


async def a_crowd(web: Web) -> None:
    """Each is answered as a single request."""
    other_tier, too_long = {"tier": "gold"}, {"request": "1 h100 for 9000h"}
    async with web.client() as rest:
        single = await post(rest, "single")
        written, again, refused, long = await asyncio.gather(
            asyncio.gather(*(post(rest, f"k{n}") for n in range(WRITERS))),
            asyncio.gather(*(post(rest, f"k{n}") for n in range(4))),
            asyncio.gather(*(post(rest, f"r{n}", other_tier) for n in range(2))),
            post(rest, "long", too_long),
        )
        kept = await post(rest, "r0", other_tier)
        reused = await post(rest, "k0", {"name": "other"})
    assert {answer.status_code for answer in (*written, *again)} == {201}
    assert len({answer.json()["number"] for answer in written}) == WRITERS
    assert [a.content for a in again] == [a.content for a in written[:4]]
    assert {answer.status_code for answer in refused} == {422}
    assert long.status_code in (409, 422)
    expected = common_headers(single)
    assert "default-src 'self'" in expected["content-security-policy"]
    for answer in written[4:]:
        assert common_headers(answer) == expected
        assert answer.headers["location"].endswith(answer.json()["id"])
    assert len({a.headers["x-request-id"] for a in (single, *written, *again)}) == WRITERS + 5
    # A refusal is kept under its key, and another body is refused.
    assert (kept.content, kept.headers["idempotency-replayed"]) == (refused[0].content, "true")
    assert reused.json()["code"] == "idempotency_key_reused"


def common_headers(answer: httpx.Response) -> dict[str, str]:
    """The headers that all answers have in common."""
    own = {"x-request-id", "location", "date", "content-length"}
    return {name: value for name, value in answer.headers.items() if name not in own}


async def a_stop(web: Web, real_db: Servers) -> None:
    """The batch at hand is finished, and who waits is refused."""
    async with web.client() as rest:
        with psycopg.connect(real_db.owner_dsn) as other:
            other.execute("LOCK TABLE billing_account IN EXCLUSIVE MODE")
            at_hand = post(rest, "at hand")
            await asyncio.to_thread(wait_until, lambda: is_blocked(real_db), seconds=10)
            waiting = [post(rest, f"waits {n}") for n in range(5)]
            for _ in range(2):
                await rest.get("/healthz")
            web.process.send_signal(signal.SIGTERM)
            refused = await asyncio.gather(*waiting)
            other.rollback()
        assert (await at_hand).status_code == 201
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["code"] for answer in refused} == {"busy"}


def is_blocked(servers: Servers) -> bool:
    """Whether a statement waits for a lock."""
    with psycopg.connect(servers.owner_dsn) as connection:
        found = connection.execute("SELECT FROM pg_locks WHERE NOT granted LIMIT 1").fetchone()
    return found is not None
