"""Open pages hear that something changed, and only in their own tenant what."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from allocation import consumers
from allocation.consumers import FLEET_GROUP, LiveConsumer
from allocation.services.bookings import booking_cancel, booking_request
from portal.integrations.live.push import beat
from portal.integrations.relay import outbox_relay
from tenants.models import Membership, User
from tests.builders_allocation import NOW, Lab, a_lab, a_wish
from tests.roles import as_system
from tests.servers.servers import Servers


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
        start = [{"kind": "live.beat", "own": 0, "fleet": 0}]
        assert heard(ours, 1) == heard(theirs, 1) == start
        # Nothing that a page says matters, or breaks its socket.
        ours.send("{not json")
        ours.send(b"\x00")
        with as_system():
            booking = booking_request(actor=helix.actor, wish=a_wish(helix.project), now=NOW)
            assert outbox_relay(NOW) == 1
        assert heard(ours, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 1, "number": 1},
            {"kind": "fleet.changed", "number": 1},
        ]
        assert heard(theirs, 1) == [{"kind": "fleet.changed", "number": 1}]
        with as_system():
            booking_cancel(actor=helix.actor, booking=booking, now=NOW)
            # Theirs, so that a leak of ours would stand before it in their socket.
            booking_request(actor=north.actor, wish=a_wish(north.project), now=NOW)
            assert outbox_relay(NOW) == 2
        assert heard(theirs, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 1, "number": 1},
            {"kind": "fleet.changed", "number": 2},
        ]
        assert heard(ours, 2) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 2, "number": 2},
            {"kind": "fleet.changed", "number": 2},
        ]
        # What a page should have heard: its own tenant's numbers, and the fleet's.
        with as_system():
            beat()
        assert heard(ours, 1) == [{"kind": "live.beat", "own": 2, "fleet": 2}]
        assert heard(theirs, 1) == [{"kind": "live.beat", "own": 1, "fleet": 2}]


def test_of_what_happened_together_a_page_hears_only_the_last_of_each_booking(
    live_portal: str, labs: tuple[Lab, Lab]
) -> None:
    helix, _ = labs
    with a_page(live_portal, "helix", signed_in(helix.actor.user_id)) as ours:
        assert heard(ours, 1)
        with as_system():
            for _ in range(2):
                booking = booking_request(actor=helix.actor, wish=a_wish(helix.project), now=NOW)
            booking_cancel(actor=helix.actor, booking=booking, now=NOW)
            assert outbox_relay(NOW) == 3
            beat()
        assert heard(ours, 4) == [
            {"kind": "booking.changed", "booking": "BK-1", "version": 1, "number": 1},
            {"kind": "booking.changed", "booking": "BK-2", "version": 2, "number": 2},
            {"kind": "fleet.changed", "number": 1},
            {"kind": "live.beat", "own": 2, "fleet": 1},
        ]


def test_who_left_the_tenant_hears_nothing_more(
    real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MEMBER_SECONDS", -1)
    helix = a_lab("helix")
    with as_system():
        user = User.objects.get(id=helix.actor.user_id)

    def leave() -> None:
        with as_system():
            Membership.objects.filter(user_id=user.id).delete()

    async def said() -> list[dict[str, Any]]:
        scope = {"type": "websocket", "user": user, "url_route": {"kwargs": {"tenant": "helix"}}}
        communicator: Any = ApplicationCommunicator
        page = communicator(LiveConsumer.as_asgi(), scope)
        await page.send_input({"type": "websocket.connect"})
        assert (await page.receive_output())["type"] == "websocket.accept"
        found = [await page.receive_output()]
        for act in (None, leave):
            if act:
                await sync_to_async(act)()
            layer: Any = get_channel_layer()
            news = {"type": "live.changed", "message": {"kind": "fleet.changed", "number": 1}}
            await layer.group_send(FLEET_GROUP, news)
            found.append(await page.receive_output())
        await page.send_input({"type": "websocket.disconnect", "code": 4403})
        await page.wait()
        return found

    joined, still, left = async_to_sync(said)()
    assert json.loads(joined["text"])["kind"] == "live.beat"
    assert json.loads(still["text"])["kind"] == "fleet.changed"
    assert (left["type"], left["code"]) == ("websocket.close", 4403)


def test_who_is_no_member_is_closed_out(live_portal: str, labs: tuple[Lab, Lab]) -> None:
    theirs = signed_in(labs[1].actor.user_id)
    for tenant, cookie in (("helix", ""), ("helix", theirs), ("no-such", theirs)):
        with a_page(live_portal, tenant, cookie) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4403
