"""Requests get a thread in the order in which they came."""

import asyncio
from collections.abc import Mapping
from typing import Any

from portal.web.serving.threads import ThreadedHandler


async def receive() -> Mapping[str, Any]:
    """A request without a body."""
    return {"type": "http.request", "body": b""}


async def send(_: Mapping[str, Any]) -> None:
    """Nothing is answered here."""
    raise AssertionError


def test_a_request_that_comes_when_a_thread_is_free_does_not_overtake() -> None:
    order: list[str] = []

    async def serve() -> None:
        second_came = asyncio.Event()

        class Handler(ThreadedHandler):
            async def handle(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI's)
                order.append(scope["path"])
                if scope["path"] == "first":
                    await second_came.wait()

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
