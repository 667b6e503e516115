"""Open pages hear that something changed, and only in their own tenant what."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from allocation.services.bookings import booking_cancel, booking_request
from portal.integrations.relay import outbox_relay
from tenants.models import User
from tests.builders_allocation import NOW, Lab, a_lab, a_wish
from tests.roles import as_system


def signed_in(user_id: int) -> str:
    """The session cookie of a person."""
    with as_system():
        user = User.objects.get(id=user_id)
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


@contextmanager
def a_page(live_portal: str, tenant: str, cookie: str = "") -> Iterator[ClientConnection]:
    """An open page's socket."""
    address = f"{live_portal.replace('http', 'ws')}/ws/t/{tenant}/"
    with connect(
        address,
        origin=Origin(live_portal),
        additional_headers={"Cookie": cookie} if cookie else None,
    ) as socket:
        yield socket


def heard(socket: ClientConnection, count: int) -> list[dict[str, object]]:
    return [json.loads(socket.recv(timeout=10)) for _ in range(count)]


@pytest.fixture
def labs(live_portal: str) -> tuple[Lab, Lab]:
    return a_lab("helix"), a_lab("northlab", gpus=0)


def test_members_hear_what_changed_and_others_only_that_the_fleet_did(
    live_portal: str, labs: tuple[Lab, Lab]
) -> None:
    helix, north = labs
    cookies = [signed_in(lab.actor.user_id) for lab in labs]
    with (
        a_page(live_portal, "helix", cookies[0]) as ours,
        a_page(live_portal, "northlab", cookies[1]) as theirs,
    ):
        # Nothing that a page says matters, or breaks its socket.
        ours.send("{not json")
        ours.send(b"\x00")
        with as_system():
            booking = booking_request(actor=helix.actor, wish=a_wish(helix.project), now=NOW)
            assert outbox_relay(NOW) == 1
        assert heard(ours, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 1},
            {"kind": "fleet.changed"},
        ]
        assert heard(theirs, 1) == [{"kind": "fleet.changed"}]
        with as_system():
            booking_cancel(actor=helix.actor, booking=booking, now=NOW)
            # Theirs, so that a leak of ours would stand before it in their socket.
            booking_request(actor=north.actor, wish=a_wish(north.project), now=NOW)
            assert outbox_relay(NOW) == 2
        assert heard(theirs, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 1},
            {"kind": "fleet.changed"},
        ]
        assert heard(ours, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 2},
            {"kind": "fleet.changed"},
        ]


def test_who_is_no_member_is_closed_out(live_portal: str, labs: tuple[Lab, Lab]) -> None:
    theirs = signed_in(labs[1].actor.user_id)
    for tenant, cookie in (("helix", ""), ("helix", theirs), ("no-such", theirs)):
        with a_page(live_portal, tenant, cookie) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4403
