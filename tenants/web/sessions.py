"""Django's sessions in the portal's table (`SESSION_ENGINE`), with device and address."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import (
    AuthenticationMiddleware as DjangoAuthenticationMiddleware,
)
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.contrib.sessions.middleware import SessionMiddleware as DjangoSessionMiddleware
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from tenants.access import account_of, client_address
from tenants.models import PasswordProof, User
from tenants.services.sign_in.sessions import (
    LAST_SEEN_INTERVAL,
    SessionContent,
    SessionOrigin,
    SessionRow,
    session_digest,
    session_drop,
    session_find,
    session_sign_in,
    session_start,
    session_update,
    session_use_note,
    sessions_of,
    sessions_sweep,
)

# The first match wins: Edge and Opera also contain Chrome, and all contain Safari.
BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-", "Python"),
)
SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


class SessionStore(SessionBase):
    """A session in `tenants_session`, read in every request: ending it takes effect at the next
    request."""

    # Methods of Django's that its type stubs leave out.
    _get_new_session_key: Callable[[], str]
    _get_session: Callable[..., dict[str, Any]]

    seen: datetime | None = None
    """When the session's use was last recorded; None if never."""

    person: int | None = None
    """The person of the stored session."""

    proof: PasswordProof | None = None
    """The proof of the password just given; needed to bind the session to a person."""

    def load(self) -> dict[str, Any]:
        """Returns the session's data; empty and without a key when it has ended."""
        key = self.session_key
        row = session_find(key, now=timezone.now()) if key else None
        if row is None:
            self._session_key = None
            return {}
        self.seen = row.last_seen if row.device else None
        self.person = row.user_id
        # The person is in a column that a web process can't write.
        data: dict[str, Any] = self.decode(row.data)
        data.pop(SESSION_KEY, None)
        return data if row.user_id is None else {**data, SESSION_KEY: str(row.user_id)}

    def exists(self, session_key: str) -> bool:
        """Returns whether a live session has this key."""
        return session_find(session_key, now=timezone.now()) is not None

    def create(self) -> None:
        """Starts a session under a new key."""
        while True:
            self._session_key = self._get_new_session_key()
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's signature)
        """Writes the session.

        Raises:
            CreateError: it must be new, and its key is taken.
            UpdateError: it has ended meanwhile.
        """
        if self.session_key is None:
            self.create()
            return
        data = self._get_session(no_load=must_create)
        held = SessionContent(data=self.encode(data), expires=self.get_expiry_date())
        if must_create:
            self.seen = self.person = None
            if not session_start(self.session_key, held, now=timezone.now()):
                raise CreateError
        elif not session_update(self.session_key, held):
            raise UpdateError
        user = data.get(SESSION_KEY)
        if user is not None and int(user) != self.person:
            self.sign_in(int(user))

    def sign_in(self, user_id: int) -> None:
        """Binds the stored session to the person by the proof of their password.

        Raises:
            PermissionDenied: no proof, or another person's.
        """
        found = None if self.proof is None else session_sign_in(self.session_key or "", self.proof)
        if found != user_id:
            raise PermissionDenied
        self.person, self.proof = found, None

    def delete(self, session_key: str | None = None) -> None:
        """Ends the session, or the one of the given key."""
        key = session_key or self.session_key
        if key is not None:
            session_drop(key)

    @classmethod
    def clear_expired(cls) -> None:
        """Removes expired sessions."""
        sessions_sweep(timezone.now())


def proof_give(request: HttpRequest, proof: PasswordProof | None) -> None:
    """Passes the password's proof to the request's session, which needs it to be bound."""
    cast(SessionStore, request.session).proof = proof


class SessionMiddleware(DjangoSessionMiddleware):
    """Django's middleware; also records a session's use, at most once a minute."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Saves the session, then records its use."""
        response = super().process_response(request, response)
        session = request.session
        key = session.session_key
        if key is None or not session.accessed or SESSION_KEY not in session:
            return response
        now = timezone.now()
        seen = getattr(session, "seen", None)
        if seen is None or seen <= now - LAST_SEEN_INTERVAL:
            try:
                session_use_note(key, session_use_of(request), now=now)
            except (OperationalError, InterfaceError):
                # The response stands; the next request records the use.
                return response
        return response


def session_use_of(request: HttpRequest) -> SessionOrigin:
    """Returns the device and address of a request."""
    device = device_words(request.headers.get("User-Agent", ""))
    return SessionOrigin(device, client_address(request.META) or None)


class AuthenticationMiddleware(DjangoAuthenticationMiddleware):
    """Django's middleware; loads the person by the session's key, since the database gives no
    accounts by id."""

    def process_request(self, request: HttpRequest) -> None:
        """Sets `request.user`, loaded at first use."""
        user: Any = SimpleLazyObject(lambda: _person(request))
        request.user = user


def credential_of(request: HttpRequest) -> bytes:
    """Returns the request's credential (see `User.credential`)."""
    return session_digest(request.session.session_key or "")


def sessions_shown(request: HttpRequest) -> list[SessionRow]:
    """Returns the person's sessions; this browser first, then by last use."""
    rows = sessions_of(credential_of(request), timezone.now())
    rows.sort(key=lambda row: row.last_seen, reverse=True)
    return sorted(rows, key=lambda row: not row.is_this)


def _person(request: HttpRequest) -> User | AnonymousUser:
    # This loads the session, which drops its key when it has ended.
    is_somebodys = SESSION_KEY in request.session
    user = account_of(credential_of(request), timezone.now()) if is_somebodys else None
    return user or AnonymousUser()


def device_words(agent: str) -> str:
    """`Firefox on Linux`, from a User-Agent header."""
    browser = next((name for mark, name in BROWSERS if mark in agent), "Unknown browser")
    system = next((name for mark, name in SYSTEMS if mark in agent), "")
    return f"{browser} on {system}" if system else browser
