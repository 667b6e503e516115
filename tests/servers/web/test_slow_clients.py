"""What arrives too slowly or is too large ends, before it costs a thread or the disk."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from portal.web.serving import server as web_server
from portal.web.serving import threads
from portal.web.serving.server import BoundedProtocol
from portal.web.serving.threads import ThreadedHandler

pytestmark = pytest.mark.turn


async def _application(scope: dict[str, object], receive: object, send: object) -> None:
    """Answers every request at once."""
    await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server with our protocol that is impatient."""
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.3)
    config = uvicorn.Config(
        _application, port=0, http=BoundedProtocol, lifespan="off", log_level="critical", ws="none"
    )
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    await task


async def answered(port: int, *parts: bytes, pause: float = 0.1) -> bytes:
    """All that the server says to parts sent with pauses, until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        return await asyncio.wait_for(reader.read(), 8)
    except ConnectionError:
        return b"ended"
    finally:
        writer.close()


@pytest.mark.parametrize("parts", [(), (b"GET / HTTP/1.1\r\n",), (b"GET", b" /", b" HTTP")])
async def test_a_head_that_does_not_come_ends_the_connection(port: int, parts: tuple[bytes, ...]) -> None:
    assert (await answered(port, *parts)).startswith(b"HTTP/1.1 408 ")


async def test_drops_of_a_head_win_no_time(port: int) -> None:
    drops = [b"GET / HTTP/1.1\r\n", *(b"X-A: b\r\n" for _ in range(30))]
    said = await answered(port, *drops, pause=0.05)
    assert said in (b"ended",) or said.startswith(b"HTTP/1.1 408 ")


async def test_a_head_may_not_be_endless(port: int) -> None:
    parts = [b"GET / HTTP/1.1\r\n", *(b"X-A: " + b"b" * 30_000 + b"\r\n" for _ in range(20))]
    said = await answered(port, *parts, pause=0)
    assert said in (b"ended",) or said.startswith(b"HTTP/1.1 431 ")


async def test_who_is_quick_is_served_again_and_again(port: int) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    said = await answered(port, *[request] * 4, pause=0.15)
    assert said.count(b"HTTP/1.1 204 ") == 4


async def asked(path: str, *messages: dict[str, object], stalls: bool = False) -> tuple[int, bytes]:
    """Status and body of a request whose messages arrive so, and then nothing more."""
    said: list[dict[str, object]] = []
    waiting = list(messages)

    async def receive() -> dict[str, object]:
        if not waiting and stalls:
            await asyncio.Event().wait()
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        said.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": [], "query_string": b""}
    await ThreadedHandler(1)(scope, receive, send)  # type: ignore[arg-type]
    status, body = said[0]["status"], said[1]["body"]
    assert isinstance(status, int)
    assert isinstance(body, bytes)
    return status, body


def part(size: int) -> dict[str, object]:
    """A part of a body, of which more comes."""
    return {"type": "http.request", "body": b"x" * size, "more_body": True}


async def test_a_body_may_not_be_endless_whatever_its_head_claims() -> None:
    status, body = await asked("/api/v1/bookings", *[part(200_000)] * 6)
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert (await asked("/t/helix/people", *[part(200_000)] * 6))[0] == 413


async def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "BODY_SECONDS", 0.1)
    status, body = await asked("/api/v1/bookings", part(1), stalls=True)
    assert (status, json.loads(body)["code"]) == (408, "too_slow")
