"""Signing in: access, what failures reveal, and limits on guessing."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from portal.web.accounts import limits
from portal.web.accounts.limits import ACCOUNT, ADDRESS, DEVICE, Attempt, sign_in_done, sign_in_try
from portal.web.accounts.sign_in import own_path
from tenants.services.sign_in.sessions import session_find
from tests.builders import (
    PASSWORD,
    a_member,
    a_project,
    a_tenant,
    a_user,
    an_operator,
)
from tests.builders_allocation import a_price_book

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)


def _post(client: Client, username: str, password: str = PASSWORD, after: str = "/") -> int:
    form = {"username": username, "password": password, "next": after}
    return client.post("/sign-in", form).status_code


def test_a_person_signs_in_and_lands_where_they_wanted(client: Client) -> None:
    user = a_user()
    form = {"username": user.username, "password": PASSWORD, "next": "/t/x/bookings?state=queued"}
    answer = client.post("/sign-in", form)
    assert (answer.status_code, answer["Location"]) == (302, "/t/x/bookings?state=queued")


def test_signing_in_changes_the_session_and_signing_out_ends_it(client: Client) -> None:
    user = a_user()
    client.get("/sign-in")
    client.cookies["portal-session"] = "planted-by-somebody-else"
    _post(client, user.username)
    key = client.cookies["portal-session"].value
    assert key != "planted-by-somebody-else"
    assert session_find(key, now=timezone.now())
    client.post("/sign-out")
    assert not session_find(key, now=timezone.now())
    assert client.get("/")["Location"] == "/sign-in"


def test_signing_out_takes_a_form_and_no_link(client: Client) -> None:
    client.force_login(a_user())
    assert client.get("/sign-out").status_code == 405
    assert Client(enforce_csrf_checks=True).post("/sign-out").status_code == 403
    assert Client(enforce_csrf_checks=True).post("/sign-in").status_code == 403


def test_a_wrong_password_and_an_unknown_name_read_the_same(client: Client) -> None:
    user, closed = a_user("mara"), a_user("jonas", is_active=False)
    pages = []
    for name, password in [
        (user.username, "wrong"),
        ("nobody", "wrong"),
        (closed.username, PASSWORD),
    ]:
        answer = client.post("/sign-in", {"username": name, "password": password})
        assert answer.status_code == 401
        pages.append(answer.content.replace(name.encode(), b"NAME").split(b"csrfmiddlewaretoken")[0])
        pages.append(answer.content.replace(name.encode(), b"NAME").split(b'name="next"')[1])
    assert len(set(pages)) == 2


@pytest.mark.parametrize("name", ["", "a\x00b", "x" * 100_000, "<script>alert(1)</script>", "' OR 1"])
def test_odd_names_are_only_wrong(client: Client, name: str) -> None:
    answer = client.post("/sign-in", {"username": name, "password": PASSWORD})
    assert answer.status_code == 401
    assert b"<script>alert" not in answer.content


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "///evil.example",
        "https:evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        " //evil.example",
        "\t//evil.example",
        "/\t/evil.example",
        "http://localhost.evil.example",
        "http://localhost/",
        "evil.example",
        "data:text/html,x",
        "//evil.example\\@localhost",
        "",
    ],
)
def test_nobody_is_sent_to_another_site(client: Client, target: str) -> None:
    assert own_path(target) == "/"
    form = {"username": a_user().username, "password": PASSWORD, "next": target}
    # A tab in a form counts as a space, which makes a path of this site.
    assert client.post("/sign-in", form)["Location"] in {"/", "/%20/evil.example"}


@pytest.mark.parametrize("target", ["/", "/t/helix/book?q=2+h100+6h", "/t/helix/bookings/BK-12#cost"])
def test_own_pages_are_gone_to(target: str) -> None:
    assert own_path(target) == target


def test_too_many_tries_are_told_to_wait_and_the_right_password_is_no_exception(
    client: Client,
) -> None:
    user = a_user()
    # One try past the free ones opens the pause.
    assert [_post(client, user.username, "wrong") for _ in range(ACCOUNT.free + 1)] == [401] * 6
    answer = client.post("/sign-in", {"username": user.username, "password": PASSWORD})
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= 15
    assert b"Too many attempts" in answer.content


def _guess(username: str, times: int, address: str = "10.0.0.9") -> list[int]:
    """Returns the responses to wrong passwords from another browser."""
    form = {"username": username, "password": "wrong"}
    return [Client().post("/sign-in", form, REMOTE_ADDR=address).status_code for _ in range(times)]


@pytest.mark.turn
def test_nobody_locks_a_known_browser_out(client: Client) -> None:
    """Neither by the name nor from the same address, however many tries there are."""
    user = a_user()
    _post(client, user.username)
    client.post("/sign-out")
    assert _guess(user.username, ACCOUNT.free + 2)[-1] == 429
    for each in range(ADDRESS.free + 2):
        sign_in_try(Attempt(f"name-{each}", "127.0.0.1"), NOW)
    # Another browser has to wait, the known one does not.
    assert _post(Client(), user.username) == 429
    assert _post(client, user.username) == 302


def test_guesses_from_everywhere_share_the_few_tries_of_an_account() -> None:
    user = a_user()
    answers = [_guess(user.username, 1, address=f"10.0.{each}.9")[0] for each in range(ACCOUNT.free + 2)]
    assert answers == [401] * (ACCOUNT.free + 1) + [429]


def test_a_known_browser_has_few_tries_too(client: Client) -> None:
    """Else whoever takes the cookie could guess for ever."""
    user = a_user()
    _post(client, user.username)
    client.post("/sign-out")
    answers = [_post(client, user.username, "wrong") for _ in range(DEVICE.free + 2)]
    assert answers == [401] * (DEVICE.free + 1) + [429]
    # The person may still sign in elsewhere.
    assert _post(Client(), user.username) == 302


@pytest.mark.parametrize("value", ["", "x", "a:b:c", "é", "{}", "e30:1:x" * 500])
def test_a_made_up_cookie_makes_no_known_browser(client: Client, value: str) -> None:
    user = a_user()
    for _ in range(ACCOUNT.free + 1):
        client.cookies["portal-device"] = value
        _post(client, user.username, "wrong")
    assert _post(client, user.username) == 429


@pytest.mark.turn
def test_the_cookie_of_one_account_is_none_for_another(client: Client) -> None:
    mara, jonas = a_user("mara"), a_user("jonas")
    _post(client, mara.username)
    client.post("/sign-out")
    _guess(jonas.username, ACCOUNT.free + 1)
    assert _post(client, jonas.username) == 429
    # A cookie that holds both still serves each.
    _post(client, mara.username)
    client.post("/sign-out")
    cache.clear()
    assert _post(client, jonas.username) == 302
    client.post("/sign-out")
    _guess(mara.username, ACCOUNT.free + 1)
    assert _post(client, mara.username) == 302


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(client: Client) -> None:
    user = a_user()
    _post(client, user.username)
    cookie = client.cookies["portal-device"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    assert user.username not in cookie.value


def test_a_made_up_forwarding_header_is_no_other_network(client: Client) -> None:
    tries = [
        client.post(
            "/sign-in",
            {"username": f"name-{each}", "password": "x"},
            headers={"X-Forwarded-For": f"10.0.0.{each}"},
        ).status_code
        for each in range(ADDRESS.free + 2)
    ]
    assert tries[-1] == 429


@pytest.mark.turn
def test_behind_a_trusted_proxy_each_person_has_an_own_address(client: Client, settings: Settings) -> None:
    """A rotated header is no way around: what the proxy saw stands at its right end."""
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    form = {"password": "x"}
    for each in range(ADDRESS.free + 2):
        answer = client.post(
            "/sign-in",
            form | {"username": f"name-{each}"},
            headers={"X-Forwarded-For": f"10.9.9.{each}, 203.0.113.5"},
        )
    assert answer.status_code == 429
    other = client.post("/sign-in", form | {"username": "else"}, headers={"X-Forwarded-For": "203.0.113.6"})
    assert other.status_code == 401


def test_pauses_double_and_end() -> None:
    waits = []
    now = NOW
    for _ in range(ACCOUNT.free):
        assert sign_in_try(Attempt("mara", "10.0.0.1"), now) == 0
    for _ in range(4):
        assert sign_in_try(Attempt("mara", "10.0.0.1"), now) == 0
        wait = sign_in_try(Attempt("MARA", "10.0.0.1"), now)
        waits.append(wait)
        now += timedelta(seconds=wait)
        # Redis counts real seconds; the test's own clock is ahead of it.
        cache.delete(f"pause:{Attempt('mara', '').limits[0][0]}")
    assert waits == [15, 30, 60, 120]


@pytest.mark.turn
def test_one_network_that_tries_many_names_is_slowed_down_for_seconds() -> None:
    tries = [sign_in_try(Attempt(f"name-{each}", "10.0.0.1"), NOW) for each in range(ADDRESS.free + 2)]
    assert 0 < tries[-1] <= ADDRESS.longest_pause <= 30
    assert set(tries[:-1]) == {0}
    assert sign_in_try(Attempt("name-x", "10.0.0.2"), NOW) == 0


@pytest.mark.turn
def test_fifty_wrong_names_lock_nobody_out_who_shares_the_address(client: Client) -> None:
    user = a_user()
    for each in range(50):
        client.post("/sign-in", {"username": f"name-{each}", "password": "x"})
    assert _post(client, user.username) == 302


def test_one_person_has_a_whole_ipv6_network() -> None:
    for each in range(ADDRESS.free + 1):
        sign_in_try(Attempt(f"name-{each}", f"2001:db8:1:1::{each:x}"), NOW)
    assert sign_in_try(Attempt("name-x", "2001:db8:1:1:ffff::1"), NOW) > 0
    assert sign_in_try(Attempt("name-x", "2001:db8:1:2::1"), NOW) == 0


def test_who_waits_for_the_address_uses_up_no_try_of_an_account() -> None:
    for each in range(ADDRESS.free + 1):
        sign_in_try(Attempt(f"name-{each}", "10.0.0.1"), NOW)
    for _ in range(ACCOUNT.free * 2):
        assert sign_in_try(Attempt("mara", "10.0.0.1"), NOW) > 0
    assert sign_in_try(Attempt("mara", "10.0.0.2"), NOW) == 0


def test_many_people_behind_one_address_who_know_their_passwords_are_no_attack() -> None:
    for each in range(ADDRESS.free * 2):
        attempt = Attempt(f"name-{each}", "10.0.0.1")
        assert sign_in_try(attempt, NOW) == 0
        sign_in_done(attempt)


def test_a_right_password_forgets_the_wrong_ones() -> None:
    attempt = Attempt("mara", "10.0.0.1")
    for _ in range(ACCOUNT.free + 1):
        sign_in_try(attempt, NOW)
    assert sign_in_try(attempt, NOW) > 0
    sign_in_done(attempt)
    assert sign_in_try(attempt, NOW) == 0


def test_without_redis_guesses_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def __getattr__(self, name: str) -> object:
            raise RedisConnectionError

    monkeypatch.setattr(limits, "cache", Gone())
    limits._own.clear()
    attempt = Attempt("mara", "10.0.0.1")
    tries = [sign_in_try(attempt, NOW) for _ in range(ACCOUNT.free + 2)]
    # Other names, however many, don't push the count out.
    for each in range(1000):
        sign_in_try(Attempt(f"name-{each}", f"10.1.{each // 250}.{each % 250}"), NOW)
    still = sign_in_try(attempt, NOW)
    limits._own.clear()
    assert tries[-1] > 0
    assert still > 0
    assert set(tries[:-1]) == {0}


def test_everybody_starts_at_their_own_place(client: Client) -> None:
    assert client.get("/")["Location"] == "/sign-in"
    member = a_member(a_project(a_tenant("helix")))
    client.force_login(member.user)
    assert client.get("/")["Location"] == "/t/helix/"
    client.force_login(an_operator())
    # Nothing can be booked yet.
    assert client.get("/")["Location"] == "/ops/setup"
    a_price_book()
    assert client.get("/")["Location"] == "/ops/overview"
    client.force_login(a_user())
    page = client.get("/")
    assert page.status_code == 200
    assert b"You are not in an organisation yet" in page.content


def test_who_is_signed_in_needs_no_second_form(client: Client) -> None:
    client.force_login(a_user())
    assert client.get("/sign-in?next=/t/helix/")["Location"] == "/t/helix/"


class Reset(LocMemCache):
    """A cache in which another sign-in resets each counter before it is raised."""

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        self.delete(key, version=version)
        return super().incr(key, delta, version=version)


def test_a_counter_that_another_sign_in_has_just_reset_counts_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Reset("reset", {})
    store.clear()
    monkeypatch.setattr(limits, "cache", store)
    attempt = Attempt("mara", "10.0.0.9")
    assert sign_in_try(attempt, NOW) == 0
    assert [store.get(f"tries:{key}") for key, _ in attempt.limits] == [1, 1]
