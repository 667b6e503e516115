"""Whose request it is, before it has a thread: so that places are shared out by person."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from tenants.access import account_of, client_address
from tenants.services.credentials.tokens import token_digest
from tenants.services.sign_in.sessions import session_digest

KNOWN_SECONDS = 60
KNOWN_MOST = 10_000
"""This decides whose place a request takes, and nothing else: views authenticate anew."""

InThread = Callable[..., Awaitable[str]]


def credential_in(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Returns the digest of a token or of a session; None without either."""
    scheme, _, token = headers.get(b"authorization", b"").strip().partition(b" ")
    if scheme.lower() == b"bearer" and token:
        return token_digest(token.strip().decode("latin-1"))
    try:
        cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return None
    session = cookies.get(settings.SESSION_COOKIE_NAME)
    return None if session is None or not session.value else session_digest(session.value)


def address_of(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> str:
    """Returns the client's address, as far as proxies are trusted."""
    address, port = scope.get("client") or ("", 1)
    forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
    meta = {"REMOTE_ADDR": address, "REMOTE_PORT": port, "HTTP_X_FORWARDED_FOR": forwarded}
    return client_address(meta)


@dataclass
class Persons:
    """The persons of recent credentials; all methods run in the event loop."""

    _known: OrderedDict[bytes, tuple[float, str]] = field(default_factory=OrderedDict)
    _asked: dict[bytes, "asyncio.Task[str]"] = field(default_factory=dict)

    async def of(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], in_thread: InThread) -> str:
        """Returns a name for the person, or for the address of one who is not signed in.

        A credential is looked up once, in a thread, however many requests come with it.
        """
        credential = credential_in(headers)
        if credential is None:
            return f"address {address_of(scope, headers)}"
        until, person = self._known.get(credential, (0.0, ""))
        if until < time.monotonic():
            task = self._asked.get(credential)
            if task is None:
                task = asyncio.create_task(self._look(credential, in_thread))
                self._asked[credential] = task
            person = await asyncio.shield(task)
        return person or f"address {address_of(scope, headers)}"

    async def _look(self, credential: bytes, in_thread: InThread) -> str:
        try:
            person = await in_thread(_person_of, credential)
        finally:
            del self._asked[credential]
        if person:
            self._known[credential] = (time.monotonic() + KNOWN_SECONDS, person)
            self._known.move_to_end(credential)
            while len(self._known) > KNOWN_MOST:
                self._known.popitem(last=False)
        return person


def _person_of(credential: bytes) -> str:
    """The person of a credential; empty without one. Runs in a thread."""
    close_old_connections()
    try:
        user = account_of(credential, timezone.now())
    except (OperationalError, InterfaceError):
        # Without the database each credential counts for itself; the view says what is wrong.
        return f"credential {credential.hex()}"
    finally:
        close_old_connections()
    return "" if user is None else f"person {user.pk}"
