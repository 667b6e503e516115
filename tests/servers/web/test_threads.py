"""Requests get a thread in the order in which they came."""

import asyncio
import threading
from collections.abc import Mapping
from typing import IO, Any

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
                return Answer({"type": "http.response.start"}, [])

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
