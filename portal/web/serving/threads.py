"""Serves HTTP in a fixed pool of threads.

Django's handler uses a new thread and new connections per request and switches threads at each
middleware. All code here is synchronous, so one thread serves a whole request. Requests queue while
all threads are busy: overload takes longer and is not refused. A request that waits for a decision
returns its thread first.
"""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any, cast

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from portal.api.errors import PROBLEM_JSON
from portal.api.problems import API, problem_of
from portal.web.serving.streams import streams_here
from portal.web.serving.waiting import waiting_here
from tenants.platform.deferred import DeferredResponse, FollowResponse

Message = Mapping[str, Any]

# Limits for reading the body, equal to the limits of REST and forms.
BODY_SECONDS = 30
BODY_BYTES = 1024 * 1024

# The key of a scope for its thread.
_LEASE = "portal.lease"
BODY = "portal.body"
"""The key of a scope for the body, as a file that can be read again."""


class BodyTooLarge(Exception):
    """The body exceeds the limit."""


@dataclass(frozen=True, slots=True)
class _Received:
    """The complete body; calling it waits for a disconnect."""

    body: IO[bytes]
    receive: Callable[[], Awaitable[Message]]

    async def __call__(self) -> Message:
        return await self.receive()


@dataclass(slots=True)
class _Lease:
    """The thread of one request; returned once, as early as possible."""

    thread: Executor
    free: list[Executor]
    places: asyncio.Semaphore
    is_over: bool = False

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.free.append(self.thread)
            self.places.release()


async def _body(receive: Callable[[], Awaitable[Message]]) -> IO[bytes]:
    """Reads the body into memory. Raises BodyTooLarge, RequestAborted."""
    body = io.BytesIO()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        body.write(message.get("body", b""))
        if body.tell() > BODY_BYTES:
            raise BodyTooLarge
        if not message.get("more_body", False):
            body.seek(0)
            return body


async def _refuse(
    scope: Message, send: Callable[[Message], Awaitable[None]], status: HTTPStatus
) -> None:
    """Sends an error without a thread and without Django; the rest of the body is not read."""
    is_api = scope["path"].startswith(API)
    said = json.dumps(problem_of(status)) if is_api else f"{status.value} {status.phrase}\n"
    kind = PROBLEM_JSON if is_api else "text/plain"
    headers = [(b"content-type", kind.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": said.encode()})


class ThreadedHandler(ASGIHandler):
    """Django's handler with `threads` threads that each serve one request at a time."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        # Last in, first out: under low load few threads keep a connection.
        self._free: list[Executor] = [
            ThreadPoolExecutor(1, thread_name_prefix="web") for _ in range(threads)
        ]
        # Requests get a thread in the order in which they came. A queue would give it to one that
        # comes just when it is free, and let those that wait for it wait on.
        self._places = asyncio.Semaphore(threads)

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Serves a request once its body is complete: a slow client holds no thread, and a body
        that is too slow or too large is refused."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive)
        except RequestAborted:
            return
        except TimeoutError:
            await _refuse(scope, send, HTTPStatus.REQUEST_TIMEOUT)
            return
        except BodyTooLarge:
            await _refuse(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        # Kept for a request that is forwarded (portal.web.operators).
        scope[BODY] = body
        await self._places.acquire()
        lease = _Lease(self._free.pop(), self._free, self._places)
        scope[_LEASE] = lease
        try:
            async with ThreadSensitiveContext(executor=lease.thread):
                await self.handle(scope, _Received(body, receive), send)
        finally:
            lease.end()

    async def read_body(self, receive: Any) -> IO[bytes]:  # noqa: ANN401 (what we gave it)
        """Returns the body that was read before the thread was taken."""
        body: IO[bytes] = receive.body
        return body

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's signature)
        """Loads the middleware as synchronous, in the same thread."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Returns the response after one thread switch, or later if it waits for a decision.

        A stream of events returns its thread, too.
        """
        response = await sync_to_async(self.get_response)(request)
        if isinstance(response, FollowResponse):
            cast(ASGIRequest, request).scope[_LEASE].end()
            return streams_here().answer(response)
        if not isinstance(response, DeferredResponse):
            return response
        cast(ASGIRequest, request).scope[_LEASE].end()
        return await waiting_here().answer(response)
