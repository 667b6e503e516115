"""Mailed links: an invited address gets an account of its own, a forgotten password a new one."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from portal.integrations.mail.queueing import RESET_INTERVAL, resets_queue
from portal.integrations.mail.send import mails_send
from portal.integrations.relay import outbox_relay
from tenants.access import Actor
from tenants.models import AuditEntry, Invitation, Mail, MailLink, Membership, PasswordReset, User
from tenants.platform.wall import tenant_tx
from tenants.rules.notifications import BUNDLING_DELAY
from tenants.services import invitation_create, invitation_revoke
from tests.builders import PASSWORD, a_member, a_project, a_session, a_user, an_actor
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
NEW = "another horse, another battery"
ACCOUNT = {
    "act": "account",
    "name": "Nora Vik",
    "username": "nora.vik",
    "password": NEW,
    "again": NEW,
}


@pytest.fixture(autouse=True)
def _mail_on(settings: Settings) -> Iterator[None]:
    settings.MAIL_ON = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    mail.outbox = []
    yield
    mail.outbox = []


@pytest.fixture
def lead() -> Actor:
    return an_actor(a_member(a_project(), "lead"))


def invite(lead: Actor, to: str = "Nora@Example.org") -> Invitation:
    with tenant_tx(lead.tenant_id):
        slug = Membership.objects.get(user_id=lead.user_id).project.slug  # type: ignore[union-attr]
        return invitation_create(actor=lead, to=to, role="researcher", project=slug, now=timezone.now())


def mailed() -> list[tuple[str, str]]:
    """Sends what is due; returns the recipient and the link of each mail."""
    mail.outbox = []
    with as_system():
        outbox_relay(timezone.now())
        resets_queue(timezone.now())
        mails_send(timezone.now() + BUNDLING_DELAY)
    found = []
    for letter in mail.outbox:
        link = re.search(r"https?://[^/\s]+(/(?:invitation|password)/\S+)", str(letter.body))
        found.append((letter.to[0], link[1] if link else ""))
    return found


def people() -> int:
    with as_system():
        return User.objects.count()


def test_an_invited_address_becomes_a_member_once_and_by_its_own_consent(lead: Actor) -> None:
    invitation = invite(lead)
    ((to, link),) = mailed()
    assert to == "nora@example.org"
    before = people()
    somebody = Client()
    somebody.force_login(a_user("mallory"))
    assert b"for somebody else" in somebody.get(link).content
    somebody.post(link, ACCOUNT)
    client = Client()
    assert b"invites you as researcher" in client.get(link).content
    for refused in ({"password": "short"}, {"again": "x"}, {"username": "mallory"}, {"name": ""}):
        assert client.post(link, ACCOUNT | refused).status_code == 422
    assert people() == before + 1, "mallory only"
    answer = client.post(link, ACCOUNT)
    assert answer["Location"] == f"/t/{lead.tenant_slug}/"
    assert client.get(f"/t/{lead.tenant_slug}/people").status_code == 200
    with as_system():
        nora = User.objects.get(username="nora.vik")
        assert (nora.email, nora.is_staff) == ("nora@example.org", False)
        assert Membership.objects.get(user=nora).role == "researcher"
        assert AuditEntry.objects.filter(action="account.created", actor=nora).exists()
        assert Invitation.objects.get(id=invitation.id).state == "accepted"
    again = Client()
    assert again.get(link).status_code == again.post(link, ACCOUNT).status_code == 410
    # With the account there, the next invitation is answered after signing in.
    invite(lead)
    ((to, link),) = mailed()
    assert (to, link) == ("nora@example.org", "")


def test_an_invitation_is_declined_without_an_account_and_a_withdrawn_one_is_gone(
    lead: Actor,
) -> None:
    invitation = invite(lead)
    ((_, link),) = mailed()
    before = people()
    Client().post(link, {"act": "decline"})
    assert people() == before
    with as_system():
        assert Invitation.objects.get(id=invitation.id).state == "declined"
    second = invite(lead, "ola@example.org")
    # Renewed within the hour: no second mail.
    invite(lead, "ola@example.org")
    ((_, link),) = mailed()
    with tenant_tx(lead.tenant_id):
        invitation_revoke(actor=lead, invitation_id=second.id, now=timezone.now())
    assert Client().post(link, ACCOUNT).status_code == 410
    assert Client().get("/invitation/nonsense").status_code == 410
    third = invite(lead, "per@example.org")
    ((_, link),) = mailed()
    with as_system():
        Invitation.objects.filter(id=third.id).update(expires=timezone.now())
    assert Client().post(link, ACCOUNT).status_code == 410
    with as_system():
        # Whoever loses the right to give the role takes its open invitations along.
        Invitation.objects.filter(id=third.id).update(expires=timezone.now() + timedelta(days=1))
        Membership.objects.filter(user_id=lead.user_id).update(role="viewer")
    assert Client().post(link, ACCOUNT).status_code == 410
    assert people() == before


def with_address(name: str, *, is_active: bool = True) -> User:
    user = a_user(name, is_active=is_active)
    with as_owner():
        User.objects.filter(id=user.id).update(email=f"{name}@Example.org")
    return user


def ask(name: str) -> Client:
    client = Client()
    assert client.post("/password", {"act": "ask", "username": name})["Location"] == "/sign-in"
    return client


def signs_in(name: str, password: str) -> bool:
    answer = Client().post("/sign-in", {"username": name, "password": password})
    return answer.status_code == 302


def test_a_forgotten_password_is_replaced_once_and_ends_all_sessions() -> None:
    member = a_member(a_project(), user=with_address("mara"))
    a_session(member.user)
    here = Client()
    here.post("/sign-in", {"username": "mara", "password": PASSWORD})
    ask("MARA@example.org")
    ask("mara")
    ((to, link),) = mailed()
    assert to == "mara@Example.org", "one mail in five minutes"
    assert b"mara" in here.get(link).content
    assert signs_in("mara", PASSWORD), "opening the page changes nothing"
    answer = here.post(link, {"act": "set", "password": "password12", "again": "password12"})
    assert answer.status_code == 422
    form = {"act": "set", "password": NEW, "again": NEW}
    assert here.post(link, form)["Location"] == "/sign-in"
    assert here.get("/account")["Location"].startswith("/sign-in"), "this session ended too"
    assert (signs_in("mara", PASSWORD), signs_in("mara", NEW)) == (False, True)
    assert here.get(link).status_code == here.post(link, form).status_code == 410
    with as_system():
        assert AuditEntry.objects.filter(action="user.password_reset").count() == 2


def test_nobody_learns_from_a_reset_who_has_an_account_and_an_old_link_is_void() -> None:
    with_address("mara")
    with_address("closed", is_active=False)
    a_user("no-address")
    answers = {
        ask(name).get("/sign-in").content.split(b"messages")[1][:400]
        for name in ("mara", "closed", "no-address", "nobody", "nobody@example.org", "' OR 1=1;--")
    }
    assert len(answers) == 1
    ((to, link),) = mailed()
    assert to == "mara@Example.org"
    with as_owner():
        assert not PasswordReset.objects.exists()
        MailLink.objects.update(expires=timezone.now())
        Mail.objects.update(at=timezone.now() - RESET_INTERVAL)
    assert Client().post(link, {"act": "set", "password": NEW, "again": NEW}).status_code == 410
    assert signs_in("mara", PASSWORD)
    ask("mara")
    ((_, link),) = mailed()
    with as_owner():
        User.objects.filter(username="mara").update(is_active=False)
    assert Client().get(link).status_code == 410


def test_requests_for_resets_are_limited_for_one_name(settings: Settings) -> None:
    client = Client()
    form = {"act": "ask", "username": "mara"}
    codes = [client.post("/password", form).status_code for _ in range(8)]
    assert codes[0] == 302
    assert codes[-1] == 429
    settings.MAIL_ON = False
    assert b"sends no mail" in client.post("/password", form).content
