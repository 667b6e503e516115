"""Attacks on second factors: by a thief of a password, of a session, and by another account."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from django.core.cache import BaseCache
from django.db import connection
from django.test import Client
from django.utils import timezone

from portal.web.accounts.limits import Attempt, _try
from tenants.models import Passkey, PasskeyChallenge, SecondFactor, Session, User
from tenants.services.sign_in.passkeys import PASSKEYS_MOST
from tenants.services.sign_in.second_factor import _totp
from tenants.services.sign_in.sessions import session_digest
from tenants.web.step_up import DANGEROUS
from tests.builders import PASSWORD, a_member, a_project, a_tenant, a_tenant_admin, a_user
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.web.frame.test_passkeys import SIGN_IN, a_device, options_of, with_passkey
from tests.web.frame.test_passkeys import give as give_passkey
from tests.web.frame.test_second_factor import (
    SETUP,
    enrolled,
    forget_codes,
    give,
    is_in,
    key_of,
    with_password,
)

BEGIN = {"act": "begin", "current": PASSWORD}


def stolen(client: Client) -> Client:
    """Another browser with the same session."""
    thief = Client()
    for name, cookie in client.cookies.items():
        if "session" in name:
            thief.cookies[name] = cookie.value
    return thief


def made_old() -> None:
    """As if sessions had been verified 16 minutes ago."""
    with as_owner():
        Session.objects.update(verified=timezone.now() - timedelta(minutes=16))


def together(acts: list[Callable[[], int]]) -> list[int]:
    """Does all at once; returns the statuses in order."""

    def closing(act: Callable[[], int]) -> int:
        try:
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as threads:
        return sorted(threads.map(closing, acts))


@pytest.mark.turn
@pytest.mark.django_db
def test_a_code_of_another_account_opens_nothing() -> None:
    mara, noor = a_user("mara"), a_user("noor")
    _, _, own = enrolled(mara)
    _, totp, codes = enrolled(noor)
    waiting = with_password(mara)
    assert give(waiting, totp.now()) == 422
    assert give(waiting, codes[0]) == 422
    assert not is_in(waiting)
    assert give(waiting, own[0]) == 302
    other = with_password(noor)
    assert give(other, codes[0]) == 302, "the foreign try used nothing up"


@pytest.mark.turn
def test_a_code_and_an_answer_count_once_also_at_the_same_moment(real_db: Servers) -> None:
    mara = a_user("mara")
    _, totp, codes = enrolled(mara)
    for code in (totp.now(), codes[0]):
        forget_codes()
        browsers = [with_password(mara) for _ in range(4)]
        said = together([lambda each=each, code=code: give(each, code) for each in browsers])  # type: ignore[misc]
        assert said == [302, 422, 422, 422], code
        assert sum(is_in(each) for each in browsers) == 1
    client, device = Client(), with_passkey(a_user("noor"))[1]
    answer = device.sign(options_of(client.get(SIGN_IN)))
    same = [stolen(client) for _ in range(4)]
    said = together([lambda each=each: give_passkey(each, answer) for each in same])  # type: ignore[misc]
    assert said == [302, 422, 422, 422]


@pytest.mark.django_db
def test_a_stolen_session_neither_sees_nor_confirms_a_secret_that_was_begun() -> None:
    owner = with_password(a_user("mara"))
    thief = with_password(User(username="mara"))
    owner.post(SETUP, BEGIN)
    assert "Or enter this secret" in owner.get(SETUP).content.decode()
    assert "Or enter this secret" not in thief.get(SETUP).content.decode()
    with as_system():
        factor = SecondFactor.objects.get()
    code = _totp(factor).now()
    assert thief.post(SETUP, {"act": "confirm", "code": code}).status_code == 422
    # Nor is a secret confirmed that its owner has forgotten.
    with as_owner():
        SecondFactor.objects.update(created=timezone.now() - timedelta(minutes=16))
    assert owner.post(SETUP, {"act": "confirm", "code": code}).status_code == 422
    with as_system():
        assert SecondFactor.objects.get().confirmed is None


@pytest.mark.django_db
def test_a_stale_session_with_the_password_adds_no_factor() -> None:
    user = a_user("mara")
    client, _ = with_passkey(user)
    made_old()
    thief = stolen(client)
    assert thief.post(SETUP, BEGIN).status_code == 422
    begin = {"act": "passkey-begin", "current": PASSWORD}
    assert thief.post(SETUP, begin).status_code == 422
    with as_system():
        assert not SecondFactor.objects.exists()
        assert not PasskeyChallenge.objects.filter(use="add").exists()


@pytest.mark.turn
@pytest.mark.django_db
def test_whoever_knows_the_password_does_not_lock_the_owner_out() -> None:
    user = a_user("mara")
    owner, _, codes = enrolled(user)
    owner.post("/sign-out")
    thief = with_password(user)
    assert [give(thief, "000000") for _ in range(8)][-1] == 429
    assert give(with_password(user), codes[0]) == 429, "in a browser that nobody knows"
    form = {"username": user.username, "password": PASSWORD}
    owner.post("/sign-in", form)
    assert give(owner, codes[0]) == 302, "in the owner's own"
    # And that browser's tries have an end, too.
    owner.post("/sign-out")
    owner.post("/sign-in", form)
    assert [give(owner, "000000") for _ in range(8)][-1] == 429


@dataclass
class Clocked:
    """The part of a cache that limits use, with a clock that the test moves."""

    now: float = 0.0
    rows: dict[str, tuple[int, float]] = field(default_factory=dict)

    def get(self, key: str, default: int) -> int:
        value, ends = self.rows.get(key, (default, 0.0))
        return value if ends > self.now else default

    def add(self, key: str, value: int, timeout: float) -> bool:
        if self.get(key, -1) != -1:
            return False
        self.rows[key] = (value, self.now + timeout)
        return True

    def incr(self, key: str) -> int:
        value, ends = self.rows[key]
        self.rows[key] = (value + 1, ends)
        return value + 1

    def touch(self, key: str, timeout: float) -> None:
        self.rows[key] = (self.rows[key][0], self.now + timeout)


def test_a_day_of_guessing_is_a_hundred_codes() -> None:
    """Of a million, of which three are right at a time; long pauses give no free tries back."""
    store, begun, made = Clocked(), datetime(2026, 11, 2, tzinfo=UTC), 0
    attempt = Attempt("second factor of 1", "192.0.2.1")
    while store.now < 24 * 60 * 60:
        at = begun + timedelta(seconds=store.now)
        wait = _try(cast(BaseCache, store), attempt, at)
        made += not wait
        store.now += wait
    assert made <= 110


@pytest.mark.django_db
def test_a_providers_session_stays_in_its_tenant_after_the_code() -> None:
    helix, orion = a_project(a_tenant("helix")), a_project(a_tenant("orion"))
    user = a_member(helix).user
    a_member(orion, user=user)
    _, totp, _ = enrolled(user)
    browser = with_password(user)
    # As `session_bind` leaves it, after the provider of helix.
    with as_owner():
        held = Session.objects.filter(digest=session_digest(key_of(browser)))
        held.update(only_tenant=helix.tenant)
    assert give(browser, totp.now()) == 302
    assert browser.get("/t/helix/bookings").status_code == 200
    assert browser.get("/t/orion/bookings").status_code == 404


def creation(client: Client) -> dict[str, Any]:
    return options_of(client.post(SETUP, {"act": "passkey-begin", "current": PASSWORD}))


def add_answer(client: Client, answer: str) -> int:
    form = {"act": "passkey-add", "name": "Key", "credential": answer}
    return client.post(SETUP, form).status_code


@pytest.mark.django_db
def test_a_passkey_is_added_only_by_the_browser_the_site_and_the_person_that_asked() -> None:
    mara = a_user("mara")
    client, other = with_password(mara), with_password(a_user("noor"))
    for changed in ({"origin": "https://evil.example"}, {"rp_id": "evil.example"}):
        assert add_answer(client, a_device(**changed).create(creation(client))) == 422, changed
    second = with_password(mara)
    first = a_device()
    answer = first.create(creation(client))
    assert add_answer(second, answer) == 422, "another session of the same person"
    assert add_answer(other, answer) == 422, "another person"
    assert add_answer(client, answer) == 302
    assert add_answer(client, answer) == 422, "the same question twice"
    # A question of a step-up is none for a new key, and the other way round.
    device, asked = a_device(), creation(client)
    question = options_of(client.get("/second-factor"))
    swapped = {**asked, "challenge": question["challenge"]}
    assert add_answer(client, device.create(swapped)) == 422
    assert give_passkey(client, first.sign(asked), "/second-factor") == 422
    assert give_passkey(client, first.sign(question), "/second-factor") == 302


@pytest.mark.turn
@pytest.mark.django_db
def test_a_question_to_one_person_is_not_answered_by_another_or_in_a_frame() -> None:
    mara, noor = a_user("mara"), a_user("noor")
    _, device = with_passkey(mara)
    _, others = with_passkey(noor)
    # Both passwords are known: the question to noor, answered in mara's browser by noor's key.
    first, second = with_password(mara), with_password(noor)
    question = options_of(second.get("/second-factor"))
    assert give_passkey(first, others.sign(question), "/second-factor") == 422
    assert give_passkey(first, device.sign(question), "/second-factor") == 422
    open_question = options_of(Client().get(SIGN_IN))
    assert give_passkey(first, device.sign(open_question), "/second-factor") == 422
    framed = device.sign(options_of(first.get("/second-factor")), is_framed=True)
    assert give_passkey(first, framed, "/second-factor") == 422, "a page that another site framed"
    assert not is_in(first)
    own = options_of(first.get("/second-factor"))
    assert give_passkey(first, device.sign(own), "/second-factor") == 302


@pytest.mark.turn
@pytest.mark.django_db
def test_a_stale_session_gives_nobody_access() -> None:
    admin = a_tenant_admin(a_tenant("helix")).user
    client, _, _ = enrolled(admin)
    made_old()
    form = {"act": "invite", "to": "thief@example.org", "role": "tenant_admin"}
    pages = {"people": "people", "labs": "labs", "stand-ins": "approvals/stand-ins"}
    pages |= {"service-accounts": "settings/service-accounts", "settings": "settings"}
    checked = 0
    for page, act in sorted(DANGEROUS):
        if page in pages:
            asked = client.post(f"/t/helix/{pages[page]}", {**form, "act": act})
            assert asked.status_code == 403, (page, act)
            checked += 1
    assert checked >= 9
    assert ("people", "invite") in DANGEROUS


@pytest.mark.django_db
def test_passkeys_that_were_begun_together_are_no_more_than_ten() -> None:
    client, _ = with_passkey(a_user("mara"))
    begun = [creation(client) for _ in range(PASSKEYS_MOST + 2)]
    statuses = [add_answer(client, a_device().create(each)) for each in begun]
    assert statuses == [302] * (PASSKEYS_MOST - 1) + [422] * 3
    with as_system():
        assert Passkey.objects.count() == PASSKEYS_MOST


@pytest.mark.django_db
def test_brackets_without_end_are_no_passkey() -> None:
    """The page is open to everybody, and answered 500."""
    client, _ = with_passkey(a_user("mara"))
    for nested in ("[" * 20_000, '{"a":' * 4_000, '{"id": "a", "rawId": "a", "response": ' + "[" * 9_000):
        assert give_passkey(Client(), nested) == 422
        assert add_answer(client, nested) == 422
