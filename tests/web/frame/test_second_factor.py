"""The second factor: nobody signs in without it, no code works twice, dangerous acts ask again."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pyotp
import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from tenants.models import AuditEntry, SecondFactor, Session, User
from tenants.services.sign_in.passwords import password_prove
from tenants.services.sign_in.sessions import session_digest, session_find, session_sign_in
from tests.builders import PASSWORD, a_member, a_project, a_tenant_admin, a_user, an_operator
from tests.roles import as_owner, as_system
from tests.web.crawl import filled, routes

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
SETUP = "/second-factor/setup"


def with_password(user: User) -> Client:
    client = Client()
    client.post("/sign-in", {"username": user.username, "password": PASSWORD})
    return client


def enrolled(user: User) -> tuple[Client, pyotp.TOTP, list[str]]:
    """A browser of the person that has just turned the second factor on."""
    client = with_password(user)
    assert client.post(SETUP, {"act": "begin", "current": "wrong"}).status_code == 422
    client.post(SETUP, {"act": "begin", "current": PASSWORD})
    page = client.get(SETUP).content.decode()
    assert "data:image/svg+xml" in page
    found = re.search(r"Or enter this secret: <span[^>]*>(\w+)<", page)
    assert found is not None
    totp = pyotp.TOTP(found[1])
    assert client.post(SETUP, {"act": "confirm", "code": "000000x"}).status_code == 422
    shown = client.post(SETUP, {"act": "confirm", "code": totp.now()}).content.decode()
    codes = re.findall(r"\b[a-z2-7]{4}(?:-[a-z2-7]{4}){3}\b", unescape(shown))
    assert len(codes) == 10
    assert codes[0] not in client.get(SETUP).content.decode()
    forget_codes()
    return client, totp, codes


def forget_codes() -> None:
    """As if 30 seconds had passed: the present code may be given again."""
    with as_owner():
        SecondFactor.objects.update(last_step=0)


def give(client: Client, code: str) -> int:
    form = {"act": "check", "code": code, "next": "/account"}
    return client.post("/second-factor", form).status_code


def is_in(client: Client) -> bool:
    return client.get("/account").status_code == 200


def key_of(client: Client) -> str:
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def test_a_password_alone_signs_nobody_in_who_has_a_second_factor() -> None:
    user = a_member(a_project()).user
    assert is_in(with_password(user)), "without one, it does"
    _, totp, codes = enrolled(user)
    client = Client()
    form = {"username": user.username, "password": PASSWORD, "next": "/account"}
    assert client.post("/sign-in", form)["Location"] == "/second-factor?next=/account"
    assert not is_in(client)
    assert client.get(SETUP)["Location"].startswith("/sign-in")
    # Not even code in a web process, with the password: the database only lets the session wait.
    before = key_of(client)
    assert session_sign_in(before, password_prove(user.username, PASSWORD)) is None
    found = session_find(before, now=timezone.now())
    assert found is not None
    assert found.user_id is None
    for wrong in ("", "123456x", "²²²²²²", totp.now() + "0"):
        assert give(client, wrong) == 422
    assert not is_in(client)
    code = totp.now()
    assert give(client, code) == 302
    assert is_in(client)
    assert key_of(client) != before
    assert session_find(before, now=timezone.now()) is None
    other = with_password(user)
    assert give(other, code) == 422, "a code works once"
    assert give(other, codes[3].upper().replace("-", " ")) == 302
    assert give(with_password(user), codes[3]) == 422, "and so does a recovery code"
    with as_system():
        assert len(SecondFactor.objects.get(user=user).recovery) == 9
        logged = AuditEntry.objects.filter(actor=user).values_list("action", flat=True)
        assert {"second_factor.set", "second_factor.recovery_used", "sign_in.done"} <= {*logged}


def test_codes_cannot_be_guessed_and_a_session_of_nobody_asks_for_none() -> None:
    user = a_user()
    _, totp, _ = enrolled(user)
    client = with_password(user)
    codes = [give(client, "000000") for _ in range(8)]
    assert codes[-1] == 429
    assert give(client, totp.now()) == 429, "also the right one waits"
    assert Client().get("/second-factor")["Location"] == "/sign-in"
    assert Client().post("/second-factor", {"act": "check", "code": "1"}).status_code == 302
    with as_owner():
        User.objects.filter(id=user.pk).update(is_active=False)
    assert client.get("/second-factor")["Location"] == "/sign-in", "an account that was closed"


def test_turning_it_on_signs_out_elsewhere_and_it_is_removed_with_a_code() -> None:
    user = a_user()
    elsewhere = with_password(user)
    client, totp, codes = enrolled(user)
    assert is_in(client)
    assert not is_in(elsewhere)
    chosen = "another horse, another battery"
    client.post("/account", {"act": "password", "current": PASSWORD, "password": chosen, "again": chosen})
    assert not is_in(client), "a new password takes the second factor again"
    form = {"username": user.username, "password": chosen}
    assert client.post("/sign-in", form)["Location"].startswith("/second-factor")
    assert give(client, totp.now()) == 302
    assert client.post(SETUP, {"act": "remove", "code": "1"}).status_code == 422
    shown = client.post(SETUP, {"act": "codes", "code": codes[0]})
    assert b"Recovery codes" in shown.content
    assert client.post(SETUP, {"act": "remove", "code": codes[1]}).status_code == 422, "replaced"
    forget_codes()
    assert client.post(SETUP, {"act": "remove", "code": totp.now()}).status_code == 302
    assert Client().post("/sign-in", form)["Location"] == "/"


def test_an_operator_is_asked_for_one_and_gives_it_again_before_dangerous_acts() -> None:
    operator, victim = an_operator(), a_user("mara")
    client = with_password(operator)
    assert b"has no second factor" in client.get("/ops/accounts").content
    client, totp, _ = enrolled(operator)
    assert b"has no second factor" not in client.get("/ops/accounts").content
    close = {"act": "close", "user": str(victim.pk), "sure": "1"}
    with as_owner():
        old = timezone.now() - timedelta(minutes=16)
        Session.objects.filter(digest=session_digest(key_of(client))).update(verified=old)
    for route in filter(lambda each: each.startswith("/ops/"), routes()):
        ids = dict.fromkeys(re.findall(r"<uuid:(\w+)>", route), str(uuid4()))
        asked = client.post(filled(route, ids, "1"), {"act": "x"})
        assert asked.status_code in (403, 405), route
        assert asked.status_code == 405 or b"at most 15 minutes old" in asked.content, route
    asked = client.post("/ops/accounts", {**close, "many": ["a<b", "c"]})
    assert asked.status_code == 403
    with as_system():
        assert User.objects.get(id=victim.pk).is_active
    # The form is kept over a wrong code and sent again after the right one.
    assert client.post("/second-factor", {**_fields(asked), "code": "1"}).status_code == 422
    again = client.post("/second-factor", {**_fields(asked), "code": totp.now()})
    with as_system():
        assert User.objects.get(id=victim.pk).is_active
    sent = _fields(again)
    assert sent == {"act": ["close"], "user": [str(victim.pk)], "sure": ["1"], "many": ["a<b", "c"]}
    assert client.post("/ops/accounts", sent)["Location"] == "/ops/accounts"
    with as_system():
        assert not User.objects.get(id=victim.pk).is_active


def test_admins_of_tenants_give_it_again_before_dangerous_acts_too() -> None:
    project = a_project()
    admin, member = a_tenant_admin(project.tenant).user, a_member(project)
    client, totp, _ = enrolled(admin)
    people = f"/t/{project.tenant.slug}/people"
    form = {"act": "role", "membership": str(member.id), "role": "lead"}
    token = {"act": "token", "name": "CI", "days": "1"}
    with as_owner():
        old = timezone.now() - timedelta(minutes=16)
        Session.objects.filter(digest=session_digest(key_of(client))).update(verified=old)
    settings_page = f"/t/{project.tenant.slug}/settings"
    assert client.post(settings_page, token).status_code == 403, "no token without it"
    assert client.post(settings_page, {"act": "zone", "zone": "UTC"}).status_code == 302
    asked = client.post(people, form)
    assert asked.status_code == 403
    # The web process only keeps the form: the operators' process asks.
    code = client.post("/second-factor", {**_fields(asked), "act": "ask"})
    assert b'name="code"' in code.content
    again = client.post("/second-factor", {**_fields(code), "code": totp.now()})
    sent = _fields(again)
    assert sent == {name: [value] for name, value in form.items()}
    assert client.post(people, sent)["Location"] == people
    with as_system():
        member.refresh_from_db()
    assert member.role == "lead"


def _fields(page: Any) -> dict[str, list[str]]:  # noqa: ANN401 (the test client's response)
    """The hidden fields of a page's form."""
    found: dict[str, list[str]] = {}
    hidden = r'<input type="hidden" name="([^"]+)" value="([^"]*)">'
    for name, value in re.findall(hidden, page.content.decode()):
        if name != "csrfmiddlewaretoken":
            found.setdefault(unescape(name), []).append(unescape(value))
    return found
