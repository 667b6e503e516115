"""Signed-in browsers: kept by digest, listed without being read, ended by whoever may."""

import threading
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network

import pytest
from django.contrib.sessions.backends.base import UpdateError
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tenants.access import client_address
from tenants.models import Password, Session, User
from tenants.services.sign_in.sessions import session_digest, sessions_end
from tenants.web.sessions import SessionStore, device_words
from tests.builders import PASSWORD, a_member, a_project, a_session, a_user
from tests.roles import as_owner, as_system

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def _signed_in(username: str, address: str = "127.0.0.1") -> Client:
    client = Client(headers={"User-Agent": FIREFOX})
    form = {"username": username, "password": PASSWORD}
    assert client.post("/sign-in", form, REMOTE_ADDR=address).status_code == 302
    return client


def _key(client: Client) -> str:
    return client.cookies["portal-session"].value


def _rows(**where: object) -> list[Session]:
    """Sessions as the system sees them; the web sees none."""
    with as_system():
        return list(Session.objects.filter(**where))


@pytest.mark.django_db
def test_a_session_says_whose_it_is_and_from_where() -> None:
    user = a_user()
    _signed_in(user.username, "203.0.113.9")
    (session,) = _rows(user=user)
    assert (session.device, session.address) == ("Firefox on Linux", "203.0.113.9")
    assert abs(session.last_seen - timezone.now()) < timedelta(seconds=10)


@pytest.mark.django_db
def test_the_key_of_the_cookie_is_nowhere_in_the_table() -> None:
    client = _signed_in(a_user().username)
    with as_system():
        row = Session.objects.values().get()
    assert _key(client) not in str(row)
    assert bytes(row["digest"]) == session_digest(_key(client))


@pytest.mark.django_db
def test_use_is_noted_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    member = a_member(a_project())
    client = _signed_in(member.user.username)
    page, now = f"/t/{member.tenant.slug}/", timezone.now()
    # However long the page takes, it is read at this time.
    monkeypatch.setattr(timezone, "now", lambda: now)
    noted = []
    for age in (59, 60):
        seen = now - timedelta(seconds=age)
        with as_system():
            Session.objects.update(last_seen=seen)
        client.get(page, REMOTE_ADDR="198.51.100.7")
        (session,) = _rows()
        noted.append((session.last_seen > seen, session.address))
    assert noted == [(False, "127.0.0.1"), (True, "198.51.100.7")]


@pytest.mark.django_db
def test_a_request_without_a_session_writes_none() -> None:
    Client().get("/sign-in")
    Client().post("/sign-in", {"username": "nobody", "password": "x"})
    assert not _rows()


@pytest.mark.django_db
def test_ending_one_or_all_others_ends_those_and_no_strangers() -> None:
    user, other = a_user(), a_user()
    mine, second, third = (_signed_in(user.username) for _ in range(3))
    theirs = _signed_in(other.username)
    (foreign,) = _rows(user=other)
    me, now = session_digest(_key(mine)), timezone.now()
    assert not sessions_end(me, now=now, one=foreign.id)
    (chosen,) = _rows(digest=session_digest(_key(second)))
    assert sessions_end(me, now=now, one=chosen.id)
    assert not sessions_end(session_digest("guessed"), now=now)
    assert second.get("/")["Location"] == "/sign-in"
    assert third.get("/").status_code == 200
    assert sessions_end(me, now=now) == 1
    assert third.get("/")["Location"] == "/sign-in"
    assert mine.get("/").status_code == theirs.get("/").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        lambda user_id: Password.objects.filter(user_id=user_id).update(encoded="x"),
        lambda user_id: Password.objects.filter(user_id=user_id).delete(),
        lambda user_id: User.objects.filter(id=user_id).update(is_active=False),
    ],
    ids=["a new password", "no password any more", "a closed account"],
)
def test_a_new_password_or_a_closed_account_leaves_no_session(
    change: Callable[[int], object],
) -> None:
    user, other = a_user(), a_user()
    _signed_in(user.username)
    kept = _signed_in(other.username)
    with as_owner():
        type(user).objects.filter(id=user.id).update(first_name="Mara")
        assert Session.objects.filter(user=user).exists()
        change(user.id)
    assert [session.user_id for session in _rows()] == [other.id]
    assert kept.get("/").status_code == 200


@pytest.mark.django_db
def test_an_ended_session_is_not_brought_back_by_a_request_that_was_under_way() -> None:
    client = _signed_in(a_user().username)
    store = SessionStore(_key(client))
    store["cart"] = 1
    with as_system():
        Session.objects.all().delete()
    with pytest.raises(UpdateError):
        store.save()
    assert not _rows()


@pytest.mark.django_db
def test_an_expired_session_is_none() -> None:
    client = _signed_in(a_user().username)
    with as_system():
        Session.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert client.get("/")["Location"] == "/sign-in"


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.1"
            " Safari/605.1.15",
            "Safari on macOS",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
            " Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (Linux; Android 16; Pixel 10) AppleWebKit/537.36 Chrome/142.0.0.0 Mobile",
            "Chrome on Android",
        ),
        ("", "Unknown browser"),
        ("\x00<script>" * 9000, "Unknown browser"),
    ],
)
def test_a_device_is_named_in_words(agent: str, words: str) -> None:
    assert device_words(agent) == words


PROXIES = "10.0.0.0/8"


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "address"),
    [
        # Without the setting no header is believed, from nobody.
        ("", "127.0.0.1", "9.9.9.9", "127.0.0.1"),
        # A proxy's last entry is what it saw; further left stands the client's own word.
        (PROXIES, "10.0.0.2", "9.9.9.9, 203.0.113.5", "203.0.113.5"),
        (PROXIES, "10.0.0.2", "9.9.9.9,203.0.113.5,10.1.1.1", "203.0.113.5"),
        # Someone else than the proxy says so.
        (PROXIES, "192.0.2.1", "9.9.9.9", "192.0.2.1"),
        (PROXIES, "10.0.0.2", "", "10.0.0.2"),
        (PROXIES, "10.0.0.2", "203.0.113.5, unknown", "10.0.0.2"),
        (PROXIES, "10.0.0.2", "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        (PROXIES, "10.0.0.2", "203.0.113.5:4711", "203.0.113.5"),
        (PROXIES, "10.0.0.2", "[2001:db8::5]:443", "2001:db8::5"),
        (PROXIES, "10.0.0.2", "::ffff:203.0.113.5", "203.0.113.5"),
        (PROXIES, "::ffff:10.0.0.2", "9.9.9.9", "9.9.9.9"),
        ("", "", "", ""),
        ("", "nonsense", "", ""),
    ],
)
def test_an_address_is_what_a_trusted_proxy_saw(
    settings: Settings, trusted: str, peer: str, forwarded: str, address: str
) -> None:
    settings.TRUSTED_PROXIES = [ip_network(each) for each in trusted.split(",") if each]
    assert client_address({"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": forwarded}) == address


def test_an_address_that_the_server_took_from_a_header_is_not_believed() -> None:
    assert client_address({"REMOTE_ADDR": "9.9.9.9", "REMOTE_PORT": "0"}) == ""
    assert client_address({"REMOTE_ADDR": "9.9.9.9", "REMOTE_PORT": "4711"}) == "9.9.9.9"


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
def test_a_session_that_ends_while_it_is_used_stays_ended() -> None:
    user = a_user()
    client, elsewhere = _signed_in(user.username), a_session(user)
    store = SessionStore(_key(client))
    store["cart"] = 1

    def end() -> None:
        sessions_end(bytes(elsewhere.digest), now=timezone.now())
        connection.close()

    thread = threading.Thread(target=end)
    thread.start()
    thread.join(10)
    with pytest.raises(UpdateError):
        store.save()
    assert [session.id for session in _rows()] == [elsewhere.id]
