"""Passkeys sign in without a password, count as second factor, and can't be used by others."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from tenants.models import AuditEntry, Passkey, PasskeyChallenge, Session, User
from tenants.services.sign_in.sessions import session_digest
from tests.builders import PASSWORD, a_user, an_operator
from tests.roles import as_owner, as_system
from tests.web.frame.passkey_device import Device
from tests.web.frame.test_second_factor import SETUP, is_in, key_of, with_password

pytestmark = pytest.mark.django_db
SIGN_IN = "/second-factor/passkey"


def options_of(page: Any) -> dict[str, Any]:  # noqa: ANN401 (the test client's response)
    found = re.search(r'data-options="([^"]+)"', page.content.decode())
    assert found is not None, page.content.decode()
    return dict(json.loads(unescape(found[1])))


def a_device(**changed: str) -> Device:
    return Device(**{"origin": settings.PUBLIC_URL, "rp_id": settings.PUBLIC_HOST, **changed})


def add(client: Client, device: Device, name: str = "Laptop") -> int:
    page = client.post(SETUP, {"act": "passkey-begin", "current": PASSWORD})
    answer = device.create(options_of(page))
    form = {"act": "passkey-add", "name": name, "credential": answer}
    return client.post(SETUP, form).status_code


def with_passkey(user: User) -> tuple[Client, Device]:
    client, device = with_password(user), a_device()
    assert add(client, device) == 302
    return client, device


def give(client: Client, answer: str, path: str = SIGN_IN) -> int:
    form = {"act": "passkey", "credential": answer, "next": "/account"}
    return client.post(path, form).status_code


def test_a_passkey_signs_in_alone_and_is_used_once_in_one_browser() -> None:
    user = a_user("mara")
    elsewhere = with_password(user)
    owner, device = with_passkey(user)
    assert is_in(owner)
    assert not is_in(elsewhere), "the first passkey signs out elsewhere"
    client = Client()
    answer = device.sign(options_of(client.get(SIGN_IN)))
    assert give(Client(), answer) == 422, "another browser's challenge"
    before = key_of(client)
    assert give(client, answer) == 302
    assert is_in(client)
    assert key_of(client) != before
    with as_system():
        held = Session.objects.get(digest=session_digest(key_of(client)))
        assert held.verified is not None, "a passkey is a second factor, too"
        assert Passkey.objects.get(user=user).sign_count == 1
        assert not PasskeyChallenge.objects.filter(session=session_digest(before)).exists()
    client.post("/sign-out")
    assert give(client, answer) == 422, "a replay"
    open_redirect = device.sign(options_of(client.get(SIGN_IN)))
    form = {"act": "passkey", "credential": open_redirect, "next": "https://evil.example/"}
    assert client.post(SIGN_IN, form)["Location"] == "/"


def test_answers_of_other_sites_people_and_copies_are_refused() -> None:
    user, other = a_user("mara"), a_user("noor")
    _, device = with_passkey(user)
    _, others = with_passkey(other)
    client = Client()
    for changed in ({"origin": "https://evil.example"}, {"rp_id": "evil.example"}):
        for key, value in changed.items():
            kept = getattr(device, key)
            setattr(device, key, value)
            assert give(client, device.sign(options_of(client.get(SIGN_IN)))) == 422, changed
            setattr(device, key, kept)
    unverified = device.sign(options_of(client.get(SIGN_IN)), is_verified=False)
    assert give(client, unverified) == 422, "the device did not verify its user"
    # A foreign credential under this person's handle, and this person's under a foreign one.
    mixed = json.loads(device.sign(options_of(client.get(SIGN_IN))))
    mixed["response"]["userHandle"] = others.handle
    assert give(client, json.dumps(mixed)) == 422
    late = device.sign(options_of(client.get(SIGN_IN)))
    with as_owner():
        PasskeyChallenge.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert give(client, late) == 422, "an expired challenge"
    assert give(client, device.sign(options_of(client.get(SIGN_IN)))) == 302
    client.post("/sign-out")
    device.count = 0
    assert give(client, device.sign(options_of(client.get(SIGN_IN)))) == 422, "a copy"
    with as_system():
        assert AuditEntry.objects.filter(actor=user, action="passkey.copy_refused").count() == 1
        with as_owner():
            User.objects.filter(id=other.pk).update(is_active=False)
    assert give(client, others.sign(options_of(client.get(SIGN_IN)))) == 422, "a closed account"


def test_a_passkey_of_another_person_and_nonsense_complete_no_sign_in() -> None:
    user = a_user("mara")
    with_passkey(user)
    _, others = with_passkey(a_user("noor"))
    client = with_password(user)
    page = client.get("/second-factor")
    assert b'name="code"' not in page.content, "there is no app whose code it could be"
    assert give(client, others.sign(options_of(page)), "/second-factor") == 422
    assert not is_in(client)
    for nonsense in ("", "{}", "[]", "null", '{"id": 1}', "x" * 30_000, json.dumps({"id": "é"})):
        assert give(client, nonsense) == 422, nonsense


@pytest.mark.turn
def test_it_is_a_second_factor_and_a_step_up_and_is_renamed_and_removed() -> None:
    operator, victim = an_operator(), a_user("mara")
    client, device = with_passkey(operator)
    assert add(client, device) == 422, "the same credential again"
    waiting = with_password(operator)
    assert not is_in(waiting), "a password alone is not enough any more"
    page = waiting.get("/second-factor")
    assert give(waiting, device.sign(options_of(page)), "/second-factor") == 302
    assert is_in(waiting)
    with as_owner():
        Session.objects.update(verified=timezone.now() - timedelta(minutes=16))
        passkey = Passkey.objects.get(user=operator)
    own = {"passkey": str(passkey.id)}
    assert client.post(SETUP, {"act": "passkey-remove", **own}).status_code == 422
    assert client.post(SETUP, {"act": "passkey-begin", "current": PASSWORD}).status_code == 422
    close = {"act": "close", "user": str(victim.pk), "sure": "1"}
    asked = client.post("/ops/accounts", close)
    assert asked.status_code == 403
    kept = {f"kept.{name}": value for name, value in close.items()}
    answer = device.sign(options_of(asked))
    form = {"act": "passkey", "credential": answer, "next": "/ops/accounts", **kept}
    assert b"Send the change" in client.post("/second-factor", form).content
    assert client.post("/ops/accounts", close).status_code == 302
    foreign = {"act": "passkey-rename", "name": "Mine", **own}
    assert with_password(a_user("noor")).post(SETUP, foreign).status_code == 404
    assert client.post(SETUP, {**foreign, "name": "Key"}).status_code == 302
    assert b'value="Key"' in client.get(SETUP).content
    assert client.post(SETUP, {"act": "passkey-remove", **own}).status_code == 302
    assert is_in(with_password(operator)), "without it the password is enough again"
