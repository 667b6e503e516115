"""The proxy: takes tunnels of nodes and requests of browsers, and joins them."""

import asyncio
import base64
import binascii
import logging
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from html import escape
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import h11
from django.db import Error as DatabaseFault

from allocation.features.notebooks.entries import ENTER, Visit
from portal.notebooks.guard import Guard, Pass, TooMany
from portal.notebooks.heads import (
    BadHead,
    Site,
    cookie_make,
    cookie_of,
    has_body,
    headers_for_browser,
    is_websocket,
    origin_check,
    request_check,
    request_for_notebook,
    value_of,
)

logger = logging.getLogger(__name__)

UPGRADE = b"gpu-notebook"
HEAD_SECONDS, NEXT_SECONDS, BODY_SECONDS = 15.0, 75.0, 60.0
TUNNEL_SECONDS, ANSWER_SECONDS = 10.0, 300.0
MOST_SOCKETS = 4_000
MOST_IDLE = 16
IDLE_SECONDS = 300.0
HEAD_BYTES = 32 * 1024
_PIECE = 1 << 16
Answer: TypeAlias = h11.Response | h11.InformationalResponse
_FAULTS = (OSError, TimeoutError, h11.ProtocolError, asyncio.IncompleteReadError)


class Tunnel:
    """A pipe to a notebook, with what is read and written on it as HTTP."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.since = time.monotonic()
        self.closed = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """Whether it looks open."""
        return not self.writer.is_closing() and not self.reader.at_eof()

    def close(self) -> None:
        """Closes it at once."""
        self.writer.transport.abort()
        self.closed.set()


class Tunnels:
    """The idle tunnels of all notebooks."""

    def __init__(self) -> None:
        self._idle: dict[UUID, deque[Tunnel]] = defaultdict(deque)
        self._waiting: dict[UUID, deque[asyncio.Future[Tunnel]]] = defaultdict(deque)

    def add(self, notebook: UUID, tunnel: Tunnel) -> bool:
        """Takes in a tunnel that is idle; False: there are enough."""
        tunnel.since = time.monotonic()
        while self._waiting[notebook]:
            future = self._waiting[notebook].popleft()
            if not future.done():
                future.set_result(tunnel)
                return True
        if len(self._idle[notebook]) >= MOST_IDLE:
            return False
        self._idle[notebook].append(tunnel)
        return True

    async def take(self, notebook: UUID, seconds: float) -> Tunnel:
        """Returns a tunnel that is idle, the one that was used last. Raises TimeoutError."""
        idle = self._idle[notebook]
        while idle:
            tunnel = idle.pop()
            if tunnel.is_alive:
                return tunnel
            tunnel.close()
        future: asyncio.Future[Tunnel] = asyncio.get_running_loop().create_future()
        self._waiting[notebook].append(future)
        async with asyncio.timeout(seconds):
            return await future

    def sweep(self) -> None:
        """Forgets tunnels that have closed, and closes those that were idle for long."""
        oldest = time.monotonic() - IDLE_SECONDS
        for notebook in list(self._idle):
            kept: deque[Tunnel] = deque()
            for tunnel in self._idle[notebook]:
                if tunnel.is_alive and tunnel.since > oldest:
                    kept.append(tunnel)
                else:
                    tunnel.close()
            if kept:
                self._idle[notebook] = kept
            else:
                del self._idle[notebook]
        for notebook in [each for each, waiting in self._waiting.items() if not waiting]:
            del self._waiting[notebook]

    def drop(self, notebook: UUID) -> None:
        """Closes the idle tunnels of a notebook that is over."""
        for tunnel in self._idle.pop(notebook, ()):
            tunnel.close()


class Proxy:
    """All connections of this process."""

    def __init__(self, site: Site, portal_url: str, clock: Callable[[], datetime]) -> None:
        self.site = site
        self.portal_url = portal_url
        self.guard = Guard(clock)
        self.tunnels = Tunnels()
        self._sockets = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serves one connection until it ends."""
        if self._sockets >= MOST_SOCKETS:
            writer.transport.abort()
            return
        self._sockets += 1
        connection = Connection(self, reader, writer)
        try:
            await connection.run()
        except _FAULTS as error:
            logger.debug("A connection ended: %r", error)
        finally:
            self._sockets -= 1
            writer.transport.abort()


class Connection:
    """A connection of a browser, or of a node."""

    def __init__(self, proxy: Proxy, reader: StreamReader, writer: StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._tunnel_used: Tunnel | None = None
        keep_alive(writer)

    async def run(self) -> None:
        """Answers requests, one after the other."""
        seconds = HEAD_SECONDS
        while True:
            try:
                async with asyncio.timeout(seconds):
                    request = await self._event()
            except h11.RemoteProtocolError as error:
                await self._end_with(BadHead(error.error_status_hint, "This request can't be read."))
                return
            if not isinstance(request, h11.Request):
                return
            try:
                if await self._answer(request):
                    return
            except BadHead as refusal:
                await self._end_with(refusal)
            except DatabaseFault:
                await self._end_with(BadHead(503, "The portal does not answer. Try again in a moment."))
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            seconds = NEXT_SECONDS

    async def _answer(self, request: h11.Request) -> bool:
        """Answers one request; whether the connection is done with it. Raises BadHead."""
        request_check(request)
        if not has_body(request):
            # Its end, without which the connection could not be kept.
            await self._event()
        host = value_of(request.headers, b"host")
        label = self._proxy.site.label_of(host)
        path = urlsplit(request.target.decode("latin-1")).path
        if not label:
            return await self._at_bare_host(request, path)
        if path == ENTER:
            await self._enter(request, label)
            return False
        origin_check(request, self._proxy.site.origin_of(label))
        shown = Pass(cookie_of(request, self._proxy.site.cookie), label)
        visit = await self._proxy.guard.visit(shown) if shown.first else None
        if visit is None:
            raise BadHead(403, "Open this notebook from the page of its booking, in the portal.")
        try:
            with self._proxy.guard.opened(shown, visit, self._abort):
                return await self._forward(request, visit)
        except TooMany:
            raise BadHead(503, "Too many connections to notebooks are open. Close some pages.") from None

    async def _at_bare_host(self, request: h11.Request, path: str) -> bool:
        if path == "/healthz":
            await self._say(200, b"ok")
            return False
        if path != "/tunnel" or value_of(request.headers, b"upgrade").encode() != UPGRADE:
            raise BadHead(404, "There is nothing here. Notebooks are opened from pages of bookings.")
        shown = _tunnel_pass(value_of(request.headers, b"authorization"))
        visit = await self._proxy.guard.visit(shown) if shown else None
        if shown is None or visit is None:
            raise BadHead(403, "No notebook that runs has this secret.")
        await self._tunnel(shown, visit)
        return True

    async def _tunnel(self, shown: Pass, visit: Visit) -> None:
        """Keeps the connection of a node until it ends."""
        tunnel = Tunnel(self._reader, self._writer)
        try:
            with self._proxy.guard.opened(shown, visit, tunnel.close):
                headers = [(b"connection", b"Upgrade"), (b"upgrade", UPGRADE)]
                await self._send(h11.InformationalResponse(status_code=101, headers=headers))
                if self._http.trailing_data[0] or not self._proxy.tunnels.add(visit.notebook, tunnel):
                    return
                await tunnel.closed.wait()
        except TooMany:
            raise BadHead(503, "Too many tunnels.") from None

    async def _enter(self, request: h11.Request, label: str) -> None:
        """Changes a ticket into a cookie, and leads on to the notebook."""
        site = self._proxy.site
        found = parse_qs(urlsplit(request.target.decode("latin-1")).query).get("ticket", [])
        taken = None
        if request.method == b"GET" and len(found) == 1:
            taken = await self._proxy.guard.enter(found[0], label)
        if taken is None:
            raise BadHead(403, "This link was used before, or is too old. Open the notebook again.")
        headers = [
            ("location", "/"),
            ("set-cookie", cookie_make(site, taken)),
            ("referrer-policy", "no-referrer"),
        ]
        await self._say(303, b"", headers)

    async def _forward(self, request: h11.Request, visit: Visit) -> bool:
        """Passes a request on, and its answer back. Raises BadHead, before any part of an answer."""
        body = has_body(request)
        # A tunnel that was idle may be dead. A request that only reads is sent again.
        tries = 2 if request.method in (b"GET", b"HEAD") and not body else 1
        while True:
            tries -= 1
            try:
                tunnel = await self._proxy.tunnels.take(visit.notebook, TUNNEL_SECONDS)
            except TimeoutError:
                raise BadHead(503, "The notebook can't be reached just now. Try again.") from None
            self._tunnel_used = tunnel
            try:
                answer = await self._exchange(request, tunnel, body=body)
                break
            except _FAULTS:
                tunnel.close()
                if not tries:
                    raise BadHead(502, "The notebook did not answer.") from None
        return await self._back(answer, tunnel, visit)

    async def _exchange(self, request: h11.Request, tunnel: Tunnel, *, body: bool) -> Answer:
        """Sends a request with its body; returns the head of the answer."""
        await _tunnel_send(tunnel, request_for_notebook(request, self._proxy.site))
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        if body:
            async for piece in _body(self._http, self._reader):
                await _tunnel_send(tunnel, piece)
        else:
            await _tunnel_send(tunnel, h11.EndOfMessage())
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                event = await _event(tunnel.http, tunnel.reader)
                if isinstance(event, h11.Response):
                    return event
                if not isinstance(event, h11.InformationalResponse):
                    raise h11.RemoteProtocolError("no answer")
                if event.status_code == 101 and is_websocket(request):
                    return event

    async def _back(self, answer: Answer, tunnel: Tunnel, visit: Visit) -> bool:
        try:
            headers = headers_for_browser(answer.headers, self._proxy.site)
            if isinstance(answer, h11.InformationalResponse):
                headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
                await self._send(h11.InformationalResponse(status_code=101, headers=headers))
                await self._pipe(tunnel)
                return True
            await self._send(h11.Response(status_code=answer.status_code, headers=headers))
            async for event in _body(tunnel.http, tunnel.reader):
                await self._send(event)
        except BaseException:
            tunnel.close()
            raise
        self._tunnel_used = None
        self._return(tunnel, visit)
        return False

    def _return(self, tunnel: Tunnel, visit: Visit) -> None:
        """Keeps a tunnel for the next request, if both sides want that."""
        http = tunnel.http
        if http.our_state is h11.DONE and http.their_state is h11.DONE and tunnel.is_alive:
            http.start_next_cycle()
            if self._proxy.tunnels.add(visit.notebook, tunnel):
                return
        tunnel.close()

    async def _pipe(self, tunnel: Tunnel) -> None:
        """Copies both ways until one of them ends. A slow reader slows its writer down."""
        for data, writer in (
            (tunnel.http.trailing_data, self._writer),
            (self._http.trailing_data, tunnel.writer),
        ):
            writer.write(data[0])
        ways = ((self._reader, tunnel.writer), (tunnel.reader, self._writer))
        copies = [asyncio.create_task(_copy(*way)) for way in ways]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in copies:
                each.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            tunnel.close()

    def _abort(self) -> None:
        self._writer.transport.abort()
        if self._tunnel_used is not None:
            self._tunnel_used.close()

    async def _event(self) -> object:
        return await _event(self._http, self._reader)

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(BODY_SECONDS):
            await self._writer.drain()

    async def _say(self, status: int, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        own = [
            ("content-type", "text/html; charset=utf-8"),
            ("content-length", str(len(body))),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            *(headers or []),
        ]
        if self._http.their_state is h11.SEND_BODY:
            # Nobody reads the body of a request that is answered here.
            own.append(("connection", "close"))
        await self._send(h11.Response(status_code=status, headers=own))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _end_with(self, refusal: BadHead) -> None:
        """Says why, if nothing was said yet, and ends the connection."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        home = escape(self._proxy.portal_url)
        text = f"<!doctype html><title>Notebook</title><p>{escape(refusal.why)}</p>"
        text += f"<p><a href='{home}'>Portal</a></p>"
        with suppress(*_FAULTS):
            await self._say(refusal.status, text.encode(), [("connection", "close")])


def keep_alive(writer: StreamWriter) -> None:
    """Makes the kernel notice a peer that is gone."""
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)


def _tunnel_pass(authorization: str) -> Pass | None:
    scheme, _, rest = authorization.partition(" ")
    try:
        address, colon, secret = base64.b64decode(rest, validate=True).decode("ascii").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Pass(address, secret, is_tunnel=True) if scheme == "Basic" and colon and secret else None


async def _event(http: h11.Connection, reader: StreamReader) -> object:
    """The next event of a connection. Raises h11.RemoteProtocolError, OSError."""
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_PIECE))
    return event


async def _body(http: h11.Connection, reader: StreamReader) -> AsyncIterator[h11.Data | h11.EndOfMessage]:
    """The pieces of a body, with its end. Raises TimeoutError while nothing comes for long."""
    while True:
        async with asyncio.timeout(ANSWER_SECONDS):
            event = await _event(http, reader)
        if isinstance(event, h11.EndOfMessage):
            yield h11.EndOfMessage()
            return
        if not isinstance(event, h11.Data):
            raise h11.RemoteProtocolError("a body without an end")
        yield h11.Data(data=event.data)


async def _tunnel_send(tunnel: Tunnel, event: h11.Event) -> None:
    tunnel.writer.write(tunnel.http.send(event) or b"")
    async with asyncio.timeout(BODY_SECONDS):
        await tunnel.writer.drain()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
