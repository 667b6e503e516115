"""Requests get a thread in the order in which they came or are refused; files hold none."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import IO, Any

import pytest
from django.http import StreamingHttpResponse

from portal.web.serving import persons, threads
from portal.web.serving.threads import Answer, ThreadedHandler
from tenants.services.credentials.tokens import token_digest

PEOPLE = {token_digest(name): f"person {name[0]}" for name in ("a1", "a2", "a3", "a4", "b1")}


async def keep(sent: list[Mapping[str, Any]], message: Mapping[str, Any]) -> None:
    """Keeps what is sent."""
    sent.append(message)


@pytest.fixture(autouse=True)
def _people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people; the first has four tokens."""
    monkeypatch.setattr(persons, "_person_of", lambda credential: PEOPLE[credential])


def request(path: str, token: str = "") -> dict[str, Any]:
    """A request that needs what is looked at here."""
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    return {"path": path, "method": "GET", "query_string": b"", "headers": headers}


async def receive() -> Mapping[str, Any]:
    """A request without a body."""
    return {"type": "http.request", "body": b""}


async def send(_: Mapping[str, Any]) -> None:
    """Answers are not looked at."""


def test_a_request_that_comes_when_a_thread_is_free_does_not_overtake() -> None:
    order: list[str] = []

    async def serve() -> None:
        second_came = threading.Event()

        class Handler(ThreadedHandler):
            def served(self, scope: dict[str, Any], body: IO[bytes]) -> Answer:
                order.append(scope["path"])
                if scope["path"] == "first":
                    assert second_came.wait(10)
                return Answer({"type": "http.response.start"}, b"")

        handler = Handler(1)

        async def client(*paths: str) -> None:
            for path in paths:
                if path == "second":
                    second_came.set()
                await handler(request(path), receive, send)

        # The first client sends its next request in the moment in which it has its answer.
        await asyncio.gather(client("first", "third"), client("second"))

    asyncio.run(serve())
    assert order == ["first", "second", "third"]


def test_a_large_file_is_read_as_fast_as_its_client_takes_it_and_is_closed() -> None:
    events: list[str] = []

    def file() -> Iterator[bytes]:
        try:
            for part in (b"one", b"", b"two"):
                events.append(f"read {part.decode()}")
                yield part
        finally:
            events.append("closed")

    class Handler(ThreadedHandler):
        def served(self, scope: dict[str, Any], body: IO[bytes]) -> Answer:
            rest = None if scope["path"] == "small" else StreamingHttpResponse(file())
            return Answer({"type": "http.response.start"}, b"", rest)

    async def client() -> None:
        handler = Handler(1)

        async def take(message: Mapping[str, Any]) -> None:
            if message.get("more_body"):
                # The only thread serves another request meanwhile.
                await handler(request("small"), receive, send)
                events.append(f"took {message['body'].decode()}")

        await handler(request("file"), receive, take)

    asyncio.run(client())
    assert events == ["read one", "took one", "read ", "took ", "read two", "took two", "closed"]


def test_one_person_never_takes_all_threads_with_many_tokens() -> None:
    async def serve() -> None:
        other_served = threading.Event()
        at_once: list[str] = []

        class Handler(ThreadedHandler):
            def served(self, scope: dict[str, Any], body: IO[bytes]) -> Answer:
                if scope["path"] == "other":
                    other_served.set()
                else:
                    at_once.append(scope["path"])
                    assert other_served.wait(10)
                return Answer({"type": "http.response.start"}, b"")

        handler = Handler(8)
        crowd = [
            asyncio.create_task(handler(request(str(each), f"a{each % 4 + 1}"), receive, send))
            for each in range(60)
        ]
        while len(at_once) < 2:
            await asyncio.sleep(0.01)
        await handler(request("other", "b1"), receive, send)
        # A quarter of the threads; the others waited.
        assert len(at_once) == 2
        await asyncio.gather(*crowd)
        assert len(at_once) == 60

    asyncio.run(serve())


def test_who_waits_for_a_thread_in_vain_is_refused_and_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    monkeypatch.setattr("portal.web.serving.costly.traffic_add", counted.append)

    async def serve() -> None:
        release, begun = threading.Event(), threading.Event()
        served: list[str] = []

        class Handler(ThreadedHandler):
            def served(self, scope: dict[str, Any], body: IO[bytes]) -> Answer:
                served.append(scope["path"])
                begun.set()
                assert release.wait(10)
                return Answer({"type": "http.response.start", "status": 200}, b"")

        handler = Handler(1)
        slow = asyncio.create_task(handler(request("slow", "a1"), receive, send))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.05)
        for path, token in (("/api/v1/bookings", "a2"), ("/no/such/page", "b1"), ("/sign-in", "")):
            sent: list[Mapping[str, Any]] = []

            await handler(request(path, token), receive, partial(keep, sent))
            assert sent[0]["status"] == 503
            assert dict(sent[0]["headers"])[b"retry-after"] == b"2"
            if path.startswith("/api/"):
                assert json.loads(sent[1]["body"])["code"] == "busy"
        # One that has a thread takes as long as it needs, and the places are free afterwards.
        monkeypatch.setattr(threads, "PATIENCE_SECONDS", 30)
        release.set()
        await slow
        await handler(request("next", "a2"), receive, send)
        assert served == ["slow", "next"]

    asyncio.run(serve())
