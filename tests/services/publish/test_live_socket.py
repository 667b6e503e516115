"""Open pages are notified of changes, with content only in their own tenant."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import redis
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from allocation import consumers
from allocation.consumers import FLEET_GROUP, LiveConsumer
from allocation.models import Booking, BookingEvent
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from portal.integrations.live.push import beat
from portal.integrations.relay import outbox_relay
from tenants.models import Membership, Role, User
from tests.builders import a_member, a_project, a_tenant_admin
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.sessions import SessionStore


def signed_in(user_id: int) -> str:
    """The session cookie of a person."""
    with as_system():
        user = User.objects.get(id=user_id)
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
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


def changed_message(
    booking: Booking, version: int, number: int, state: str | None = None
) -> dict[str, object]:
    """The message about a booking, with its state for members who may see it."""
    message: dict[str, object] = {"kind": "booking.changed", "booking": booking.label}
    message |= {"version": version, "number": number}
    if state is not None:
        with as_system():
            event = BookingEvent.objects.get(booking=booking, state=state)
        message |= {"id": f"bk_{booking.id.hex}", "state": state, "event": event.id}
    return message


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
            booking = booking_request(actor=helix.actor, request=a_booking_request(helix.project), now=NOW)
            assert outbox_relay(NOW) == 1
        assert heard(ours, 2) == [
            changed_message(booking, 1, 1, "requested"),
            {"kind": "fleet.changed", "number": 1},
        ]
        assert heard(theirs, 1) == [{"kind": "fleet.changed", "number": 1}]
        with as_system():
            booking_cancel(actor=helix.actor, booking=booking, now=NOW)
            # Theirs, so that a leak of ours would stand before it in their socket.
            foreign = booking_request(actor=north.actor, request=a_booking_request(north.project), now=NOW)
            assert outbox_relay(NOW) == 2
        assert heard(theirs, 2) == [
            changed_message(foreign, 1, 1, "requested"),
            {"kind": "fleet.changed", "number": 2},
        ]
        assert heard(ours, 2) == [
            changed_message(booking, 2, 2, "cancelled"),
            {"kind": "fleet.changed", "number": 2},
        ]
        # What a page should have heard: its own tenant's numbers, and the fleet's.
        with as_system():
            beat()
        assert heard(ours, 1) == [{"kind": "live.beat", "own": 2, "fleet": 2}]
        assert heard(theirs, 1) == [{"kind": "live.beat", "own": 1, "fleet": 2}]


def test_a_connection_that_was_cut_between_two_messages_delays_none(
    live_portal: str, labs: tuple[Lab, Lab], servers: Servers
) -> None:
    helix, _ = labs
    with a_page(live_portal, "helix", signed_in(helix.actor.user_id)) as page, as_system():
        beat()
        assert heard(page, 1) == [{"kind": "live.beat", "own": 0, "fleet": 0}]
        # What this process publishes by; the page's own connection subscribes.
        with redis.Redis.from_url(servers.access.url) as server:
            server.client_kill_filter(_type="normal")
        beat()
        assert heard(page, 1) == [{"kind": "live.beat", "own": 0, "fleet": 0}]


def test_only_members_who_may_see_a_booking_get_its_state(live_portal: str, labs: tuple[Lab, Lab]) -> None:
    helix, _ = labs
    with as_system():
        people = {
            "viewer": a_member(helix.project, Role.VIEWER),
            "admin": a_tenant_admin(helix.tenant),
            "elsewhere": a_member(a_project(helix.tenant)),
        }
    cookies = {name: signed_in(each.user_id) for name, each in people.items()}
    with ExitStack() as stack:
        sockets = {
            name: stack.enter_context(a_page(live_portal, "helix", cookie))
            for name, cookie in cookies.items()
        }
        for socket in sockets.values():
            assert heard(socket, 1)
        with as_system():
            booking = booking_request(actor=helix.actor, request=a_booking_request(helix.project), now=NOW)
            assert outbox_relay(NOW) == 1
        found = {name: heard(socket, 2)[0] for name, socket in sockets.items()}
    whole = changed_message(booking, 1, 1, "requested")
    assert found == {"viewer": whole, "admin": whole, "elsewhere": changed_message(booking, 1, 1)}


def test_of_what_happened_together_a_page_hears_only_the_last_of_each_booking(
    live_portal: str, labs: tuple[Lab, Lab]
) -> None:
    helix, _ = labs
    with a_page(live_portal, "helix", signed_in(helix.actor.user_id)) as ours:
        assert heard(ours, 1)
        with as_system():
            first, booking = (
                booking_request(actor=helix.actor, request=a_booking_request(helix.project), now=NOW)
                for _ in range(2)
            )
            booking_cancel(actor=helix.actor, booking=booking, now=NOW)
            assert outbox_relay(NOW) == 3
            beat()
        assert heard(ours, 4) == [
            changed_message(first, 1, 1, "requested"),
            changed_message(booking, 2, 2, "cancelled"),
            {"kind": "fleet.changed", "number": 1},
            {"kind": "live.beat", "own": 2, "fleet": 1},
        ]


def test_without_a_fresh_answer_nothing_is_delivered(
    real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that does not say who may read closes sockets instead of leaving them open."""
    monkeypatch.setattr(consumers, "CHECK_INTERVAL_SECONDS", 3600)
    helix = a_lab("helix")
    name, _, key = signed_in(helix.actor.user_id).partition("=")

    async def said() -> list[dict[str, Any]]:
        scope = {
            "type": "websocket",
            "cookies": {name: key},
            "url_route": {"kwargs": {"tenant": "helix"}},
        }
        communicator: Any = ApplicationCommunicator
        page = communicator(LiveConsumer.as_asgi(), scope)
        await page.send_input({"type": "websocket.connect"})
        assert (await page.receive_output())["type"] == "websocket.accept"
        found = [await page.receive_output()]
        for age in (consumers.CHECK_MAX_AGE_SECONDS, 0):
            monkeypatch.setattr(consumers, "CHECK_MAX_AGE_SECONDS", age)
            layer: Any = get_channel_layer()
            news = {"type": "live.changed", "message": {"kind": "fleet.changed", "number": 1}}
            await layer.group_send(FLEET_GROUP, news)
            found.append(await page.receive_output())
        await page.send_input({"type": "websocket.disconnect", "code": 1012})
        await page.wait()
        return found

    joined, fresh, old = async_to_sync(said)()
    assert json.loads(joined["text"])["kind"] == "live.beat"
    assert json.loads(fresh["text"])["kind"] == "fleet.changed"
    assert (old["type"], old["code"]) == ("websocket.close", 1012)


def a_changed_mind(user: User) -> Callable[[], None]:
    def change() -> None:
        user.set_password("another long one")
        with as_owner():
            user.save()

    return change


def ways_to_lose_access(live_portal: str, lab: Lab) -> dict[str, tuple[str, Callable[[], Any], int]]:
    """By name: the cookie of a person in the lab's tenant, what ends their access, the code."""
    people = [a_member(lab.project).user for _ in range(4)]
    with as_system():
        second = a_project(lab.project.tenant)
        two_roles = a_member(lab.project)
        a_member(second, user=two_roles.user)
    cookies = [signed_in(person.id) for person in (*people, two_roles.user)]
    changed, closed, removed = people[1:]
    form = {"Origin": live_portal, "Cookie": f"{cookies[0]}; portal-csrf={'x' * 32}"}
    return {
        "sign-out": (
            cookies[0],
            lambda: httpx.post(
                f"{live_portal}/sign-out",
                headers=form | {"X-CSRFToken": "x" * 32},
            ),
            4403,
        ),
        "password": (cookies[1], a_changed_mind(changed), 4403),
        "account": (
            cookies[2],
            lambda: User.objects.filter(id=closed.id).update(is_active=False),
            4403,
        ),
        "membership": (
            cookies[3],
            lambda: Membership.objects.filter(user=removed).delete(),
            4403,
        ),
        "role": (cookies[4], lambda: Membership.objects.filter(id=two_roles.id).delete(), 1012),
    }


@pytest.mark.turn
def test_who_loses_access_hears_nothing_more_and_is_refused_at_once(
    live_portal: str, labs: tuple[Lab, Lab]
) -> None:
    """Limits: a socket 5 s, a request 1 s, for each way in which access ends."""
    helix, _ = labs
    ways = ways_to_lose_access(live_portal, helix)
    home = f"{live_portal}/t/helix/"
    with ExitStack() as stack:
        sockets = {
            name: stack.enter_context(a_page(live_portal, "helix", cookie))
            for name, (cookie, _, _) in ways.items()
        }
        for socket in sockets.values():
            assert heard(socket, 1)
        ended_at = {}
        for name, (cookie, end, code) in ways.items():
            assert httpx.get(home, headers={"Cookie": cookie}).status_code == 200
            with as_owner():
                end()
            ended_at[name] = time.monotonic()
            after = httpx.get(home, headers={"Cookie": cookie}).status_code
            assert time.monotonic() - ended_at[name] < 1
            assert after == (200 if code == 1012 else 404 if name == "membership" else 302), name
        for name, socket in sockets.items():
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=10)
            assert time.monotonic() - ended_at[name] < 5, name
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == ways[name][2], name


def test_who_is_no_member_is_closed_out(live_portal: str, labs: tuple[Lab, Lab]) -> None:
    theirs = signed_in(labs[1].actor.user_id)
    for tenant, cookie in (("helix", ""), ("helix", theirs), ("no-such", theirs)):
        with a_page(live_portal, tenant, cookie) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4403
