"""Requests get a thread in the order in which they came, and files hold none."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

from django.http import StreamingHttpResponse

from portal.web.serving.threads import Answer, ThreadedHandler


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
                await handler({"path": path}, receive, send)

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
                await handler({"path": "small"}, receive, send)
                events.append(f"took {message['body'].decode()}")

        await handler({"path": "file"}, receive, take)

    asyncio.run(client())
    assert events == ["read one", "took one", "read ", "took ", "read two", "took two", "closed"]
