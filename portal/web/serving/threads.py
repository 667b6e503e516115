"""Serves HTTP in a fixed pool of threads.

Django's handler uses a new thread and new connections per request, switches threads at each
middleware and holds three tasks for each request. All code here is synchronous, so the event loop
reads the body, one thread serves the whole request with one hand-over, and the event loop sends the
answer. Requests queue while all threads are busy, and those of one person while a quarter of the
threads serves others of theirs. Who has waited for some seconds is refused, with the time to ask
again, and nothing was done. A request that is written with others or waits for a decision returns
its thread first, and a costly one takes none (`portal.web.serving.costly`).
"""

import asyncio
import contextvars
import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import IO, Any, TypeVar
from weakref import WeakValueDictionary

from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from django.urls import ResolverMatch, set_script_prefix

from portal.api.problems import format_of
from portal.web.policy import fixed_headers
from portal.web.serving.costly import CostlyRequests, costly_request, route_of_path
from portal.web.serving.gathering import gathering_here
from portal.web.serving.persons import credential_in
from portal.web.serving.streams import streams_here
from portal.web.serving.waiting import waiting_here
from portal.web.serving.workers import Complete
from tenants.api.gathered import GatheredResponse, requests_gathered
from tenants.platform.deferred import DeferredResponse, FollowResponse

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Result = TypeVar("Result")
Later = DeferredResponse | FollowResponse

# Limits for reading the body, equal to the limits of REST and forms.
BODY_SECONDS = 30
BODY_BYTES = 1024 * 1024

LEAST_OF_ONE = 2
"""Threads that one person may always have at once; of many, it may have a quarter."""
PATIENCE_SECONDS = 3.0
"""A request that has waited so long for a thread is refused."""
BUSY_RETRY_SECONDS = 2
# A file of this size is sent part by part, and a smaller one at once.
_LARGE = 1024 * 1024
_BODY = "http.response.body"

BODY = "portal.body"
"""The key of a scope for the body, as a file that can be read again."""


class BodyTooLarge(Exception):
    """The body exceeds the limit."""


class Busy(Exception):
    """No thread was free in time, so the request was not begun."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer, or the beginning of one with a stream of parts that is still open."""

    start: Message
    body: bytes
    rest: StreamingHttpResponse | None = None


async def _body(receive: Receive) -> IO[bytes]:
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


async def _refuse(scope: Message, send: Send, status: HTTPStatus) -> None:
    """Sends an error without a thread and without Django; the rest of the body is not read."""
    found = format_of(scope["path"])
    kind, said = "text/plain", f"{status.value} {status.phrase}\n"
    if found is not None:
        kind, said = found[0], json.dumps(found[1](status))
    fixed = {**fixed_headers(), "Cache-Control": "no-store, private", "Content-Type": kind}
    headers = [(name.lower().encode(), value.encode()) for name, value in fixed.items()]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": said.encode()})


class ThreadedHandler(ASGIHandler):
    """Django's handler with `threads` threads that each serve one request at a time."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        # Last in, first out: under low load few threads keep a connection.
        self._free: list[Executor] = [ThreadPoolExecutor(1, thread_name_prefix="web") for _ in range(threads)]
        # Requests get a thread in the order in which they came. A queue would give it to one that
        # comes just when it is free, and let those that wait for it wait on.
        self._places = asyncio.Semaphore(threads)
        self.costly = CostlyRequests(self._in_thread, self.complete)
        # One person never takes all threads, so another's request always finds one soon.
        self._most_of_one = max(LEAST_OF_ONE, threads // 4)
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
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
        asked = costly_request(scope)
        if asked is not None:
            await self.costly.serve(asked, scope, body, receive, send)
            return
        began = time.perf_counter()
        try:
            answer = await self._in_turn(scope, body)
        except Busy:
            await self.costly.refuse_busy(scope, began, BUSY_RETRY_SECONDS, send)
            return
        await self._send(answer, receive, send)

    async def _send(self, answer: Answer | Later | GatheredResponse, receive: Receive, send: Send) -> None:
        """Sends an answer, which may have to be written with others or decided first."""
        if isinstance(answer, GatheredResponse):
            complete = await gathering_here().answer(answer, self._in_thread)
            answer = complete if isinstance(complete, Later) else self._answer(complete)
        if isinstance(answer, Answer):
            await send(answer.start)
            if answer.rest is not None:
                await self._send_rest(answer.rest, send)
            await send({"type": _BODY, "body": answer.body})
        else:
            await self._send_later(answer, receive, send)

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's signature)
        """Loads the middleware as synchronous, in the same thread."""
        super().load_middleware(is_async=False)

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        """Returns the route of a path; of the most used paths it is kept."""
        request.resolver_match = route_of_path(request.path_info)
        return request.resolver_match

    async def _in_turn(self, scope: dict[str, Any], body: IO[bytes]) -> Answer | Later | GatheredResponse:
        """Serves a request in a thread, when its person has one to spare.

        Raises:
            Busy: there was none in time.
        """
        patience = asyncio.timeout(PATIENCE_SECONDS)
        try:
            async with patience, await self._lane(scope), self._places:
                patience.reschedule(None)
                return await self._in_free_thread(self.served, scope, body)
        except TimeoutError:
            if patience.expired():
                raise Busy from None
            raise

    async def _lane(self, scope: dict[str, Any]) -> AbstractAsyncContextManager[None]:
        """Returns the places of the request's person; whoever has no credential needs none."""
        headers = dict(scope["headers"])
        if credential_in(headers) is None:
            return nullcontext()
        person = await self.costly.persons.of(scope, headers, self._in_thread)
        lane = self._lanes.get(person)
        if lane is None:
            lane = self._lanes[person] = asyncio.Semaphore(self._most_of_one)
        return lane

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Calls `work` in the next free thread, with the context variables of this task."""
        async with self._places:
            return await self._in_free_thread(work, *arguments)

    async def _in_free_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Calls `work` in a thread. The caller holds a place, so one is free."""
        thread = self._free.pop()
        loop, run = asyncio.get_running_loop(), contextvars.copy_context().run
        try:
            return await loop.run_in_executor(thread, run, work, *arguments)
        finally:
            self._free.append(thread)

    def served(self, scope: dict[str, Any], body: IO[bytes]) -> Answer | Later | GatheredResponse:
        """Returns the answer to a request, complete and closed, or a large file that is open.

        One that is written with others, waits for a decision, or is a stream of events is returned
        as a response.
        """
        with requests_gathered():
            response = self._response(scope, body)
        if isinstance(response, Later):
            return response
        if isinstance(response, GatheredResponse):
            response.close()
            return response
        answer: Answer | None = None
        try:
            answer = self._answer(response)
        finally:
            if answer is None or answer.rest is None:
                response.close()
            body.close()
        return answer

    def complete(self, scope: dict[str, Any], body: IO[bytes]) -> Complete:
        """Returns the complete answer to a costly request, which waits for no decision."""
        scope[BODY] = body
        response = self._response(scope, body)
        try:
            answer = self._answer(response)
            rest = b"" if answer.rest is None else answer.rest.getvalue()
        finally:
            response.close()
            body.close()
        return Complete(answer.start["status"], answer.start["headers"], answer.body + rest)

    def _response(self, scope: dict[str, Any], body: IO[bytes]) -> Any:  # noqa: ANN401 (of HttpResponseBase)
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, body)
        response: Any = refused if request is None else self.get_response(request)
        response._handler_class = self.__class__
        return response

    def _answer(self, response: Any) -> Answer:  # noqa: ANN401 (of HttpResponseBase)
        headers = [(n.encode("ascii"), v.encode("latin1")) for n, v in response.items()]
        headers += [
            (b"Set-Cookie", cookie.output(header="").encode("ascii").strip())
            for cookie in response.cookies.values()
        ]
        start = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": headers,
        }
        if not isinstance(response, StreamingHttpResponse):
            return Answer(start, response.content)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if int(response.get("Content-Length", str(_LARGE))) < _LARGE:
            return Answer(start, response.getvalue())
        return Answer(start, b"", response)

    async def _send_rest(self, response: StreamingHttpResponse, send: Send) -> None:
        """Sends a file part by part, as fast as the client takes it. No thread waits for it."""
        parts = iter(response)
        try:
            while (part := await self._in_thread(next, parts, None)) is not None:
                await send({"type": _BODY, "body": part, "more_body": True})
        finally:
            await self._in_thread(response.close)

    async def _send_later(self, response: Later, receive: Receive, send: Send) -> None:
        """Sends the response when it is ready, and stops when the client disconnects."""
        gone = asyncio.ensure_future(receive())
        sent = asyncio.create_task(self._send_when_ready(response, send))
        try:
            await asyncio.wait((gone, sent), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sent):
                task.cancel()
            await asyncio.wait((gone, sent))
            await self._in_thread(response.close)
        if not sent.cancelled():
            sent.result()

    async def _send_when_ready(self, response: Later, send: Send) -> None:
        if isinstance(response, FollowResponse):
            await self.send_response(streams_here().answer(response), send)
        else:
            await self.send_response(await waiting_here().answer(response), send)


@cache
def handler_here() -> ThreadedHandler:
    """Returns the handler of this process."""
    return ThreadedHandler(settings.WEB_THREADS)
