"""Costly requests on their way: whose they are, a place at the gate, a worker, and the answer.

Views declare themselves as costly (`tenants.platform.costly`). None of this takes a thread of the
web process, except for the one look-up of a credential. A client that has gone leaves the line, or
interrupts the worker.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import IO, Any
from uuid import UUID

from django.conf import settings
from django.template import loader
from django.urls import Resolver404, ResolverMatch, get_resolver

from portal.api.errors import PROBLEM_JSON, problem
from portal.api.problems import API
from portal.traffic import answer_count, costly_count, traffic_add
from portal.web.measured import surface_of
from portal.web.policy import fixed_headers
from portal.web.serving.gate import MOST_EACH, Full, Gate, SharedPlaces
from portal.web.serving.persons import Persons
from portal.web.serving.workers import Complete, NoWorker, Workers
from portal.words import refusal_text
from tenants.platform.costly import Costly, costly_of
from tenants.platform.errors import Refused

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_ROUTES = 1024
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}(?![0-9a-f])")
_DIGIT = re.compile(r"[0-9a-f]")
COUNTED_SECONDS = 2.0
SENTENCES = {"yours": "busy_with_yours", "everybody": "busy_with_all", "waited": "busy_with_all"}


def route_of_path(path: str) -> ResolverMatch:
    """Returns the route of a path. It is kept, because Django tries hundreds of patterns in turn.

    It is kept for all ids alike: otherwise an answer about an object that its people have just
    looked at would come sooner than one about an object that does not exist.

    Raises:
        Resolver404: there is none. This is not kept.
    """
    named = _ID.findall(path)
    if not named:
        return _kept_route(path)
    # What has digits only may be a number.
    if len(named) > 1 or named[0].replace("-", "").isdecimal():
        return get_resolver().resolve(path)
    blank = _DIGIT.sub("a", named[0])
    return _with_id(_kept_route(path.replace(named[0], blank)), blank, named[0])


@lru_cache(MOST_ROUTES)
def _kept_route(path: str) -> ResolverMatch:
    return get_resolver().resolve(path)


def _with_id(found: ResolverMatch, blank: str, name: str) -> ResolverMatch:
    """Returns a route of the blank id with the name in its place."""
    kwargs = {key: _named(value, blank, name) for key, value in found.kwargs.items()}
    return ResolverMatch(
        found.func,
        found.args,
        kwargs,
        url_name=found.url_name,
        app_names=[*found.app_names],
        namespaces=[*found.namespaces],
        route=found.route,
        tried=found.tried,
        captured_kwargs=kwargs,
    )


def _named(value: object, blank: str, name: str) -> object:
    match value:
        case UUID():
            return UUID(name)
        case str():
            return value.replace(blank, name)
        case _:
            return value


def costly_request(scope: Message) -> Costly | None:
    """Returns what the view of a request declares, if the request is costly."""
    try:
        found = costly_of(route_of_path(scope["path"]).func)
    except Resolver404:
        return None
    if found is None:
        return None
    is_one = found.meets(scope["method"], dict(scope["headers"]), scope["query_string"])
    return found if is_one else None


@dataclass
class CostlyRequests:
    """The costly requests of this process; all methods run in the event loop.

    `in_thread` calls a function in a thread of the pool, and `complete` answers a request there if
    the process has no workers.
    """

    in_thread: Callable[..., Awaitable[Any]]
    complete: Callable[[dict[str, Any], IO[bytes]], Complete]
    workers: Workers | None = None
    gate: Gate = field(default_factory=lambda: Gate(settings.COSTLY_WORKERS))
    shared: SharedPlaces = field(default_factory=lambda: SharedPlaces(settings.CACHE_REDIS_URL))
    persons: Persons = field(default_factory=Persons)
    _counts: Counter[str] = field(default_factory=Counter)
    _counting: "asyncio.Task[None] | None" = None

    async def serve(
        self, asked: Costly, scope: dict[str, Any], body: IO[bytes], receive: Receive, send: Send
    ) -> None:
        """Sends the answer or a refusal; stops when the client disconnects."""
        began = time.perf_counter()
        gone = asyncio.ensure_future(receive())
        answer = asyncio.create_task(self._answer(scope, body))
        try:
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, answer):
                task.cancel()
            await asyncio.wait((gone, answer))
        if answer.cancelled():
            costly_count(self._counts, asked.kind, "gone")
            return
        outcome, complete = answer.result()
        costly_count(self._counts, asked.kind, outcome)
        if outcome != "served":
            self._count(scope, complete.status, time.perf_counter() - began)
        self._count_soon()
        await _send(complete, send)

    async def refuse_busy(self, scope: dict[str, Any], began: float, retry_seconds: int, send: Send) -> None:
        """Sends and counts the refusal of a request that found no thread in time."""
        numbers = {"retry_after_seconds": retry_seconds}
        complete = _refusal(scope, Refused("busy", refusal_text("busy"), numbers=numbers))
        self._count(scope, complete.status, time.perf_counter() - began)
        self._count_soon()
        await _send(complete, send)

    async def _answer(self, scope: dict[str, Any], body: IO[bytes]) -> tuple[str, Complete]:
        """Returns the outcome for the counters, and the answer."""
        began = time.monotonic()
        try:
            person = await self._person(scope)
            async with (
                self.shared.place(person),
                self.gate.place(person, waited=time.monotonic() - began),
            ):
                if self.workers is None:
                    return "served", await self.in_thread(self.complete, scope, body)
                return "served", await self.workers.answer(scope, body.read())
        except Full as full:
            return f"refused_{full.reason}", _refusal(scope, _too_many(full))
        except NoWorker:
            busy = Refused("busy", refusal_text("busy"), numbers={"retry_after_seconds": 1})
            return "failed", _refusal(scope, busy)

    async def _person(self, scope: Message) -> str:
        """Returns whose request it is, which may have to be looked up in a thread.

        Raises:
            Full: no thread was free in time.
        """
        try:
            async with asyncio.timeout(self.gate.patience):
                return await self.persons.of(scope, dict(scope["headers"]), self.in_thread)
        except TimeoutError:
            raise Full("waited", 2) from None

    def _count(self, scope: Message, status: int, seconds: float) -> None:
        """Counts an answer that no middleware has seen."""
        try:
            route = f"/{route_of_path(scope['path']).route}"
        except Resolver404:
            route = "none"
        surface = surface_of(scope["path"])
        answer_count(self._counts, route, scope["method"], status, surface, seconds)

    def _count_soon(self) -> None:
        if self._counting is None:
            self._counting = asyncio.create_task(self._add_counts())

    async def _add_counts(self) -> None:
        await asyncio.sleep(COUNTED_SECONDS)
        counts, self._counts, self._counting = self._counts, Counter(), None
        await asyncio.get_running_loop().run_in_executor(None, traffic_add, counts)


async def _send(complete: Complete, send: Send) -> None:
    start = {"type": "http.response.start", "status": complete.status, "headers": complete.headers}
    await send(start)
    await send({"type": "http.response.body", "body": complete.body})


def _too_many(full: Full) -> Refused:
    sentence = refusal_text(SENTENCES[full.reason], most=MOST_EACH, wait=full.retry_seconds)
    numbers = {"at_once": MOST_EACH, "retry_after_seconds": full.retry_seconds}
    return Refused("too_many_requests", sentence, owner="operator", numbers=numbers)


def _refusal(scope: Message, refused: Refused) -> Complete:
    """Returns problem JSON, a page without a reader, or for a part of a page its sentence."""
    shown = problem(refused)
    headers = {
        **fixed_headers(),
        "Retry-After": shown["Retry-After"],
        "Cache-Control": "no-store, private",
    }
    if scope["path"].startswith(API):
        headers["Content-Type"] = PROBLEM_JSON
        body = json.dumps(shown.data)
    elif b"x-fragment" in dict(scope["headers"]):
        headers["Content-Type"] = "text/plain; charset=utf-8"
        body = refused.sentence
    else:
        headers["Content-Type"] = "text/html; charset=utf-8"
        heading = HTTPStatus(shown.status_code).phrase
        if shown.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            heading = "Too many pages at once"
        context = {"heading": heading, "text": refused.sentence}
        body = loader.render_to_string("errors/busy.html", context)
    pairs = [(name.lower().encode(), said.encode("latin-1")) for name, said in headers.items()]
    return Complete(shown.status_code, pairs, body.encode())
