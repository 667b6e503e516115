"""What a token set up: webhooks, chat channels, invitations and hooks end with it."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
from pytest_django import Settings

from tenants.access import Actor
from tenants.features.chat.services import ChatChannelTerms, chat_channel_create
from tenants.features.policy_hook.services import PolicyHookTerms, hook_set
from tenants.features.webhooks.services import (
    WebhookTerms,
    webhook_change,
    webhook_create,
    webhook_enabled_set,
)
from tenants.models import ApiToken, ChatChannel, Invitation, PolicyHook, User, Webhook
from tenants.platform.wall import tenant_tx
from tenants.queries import received_invitations
from tenants.services import invitation_create, token_create, token_revoke, token_rotate
from tenants.services.credentials.products import REASON, products_sweep
from tenants.services.credentials.tokens import token_verify
from tests.builders import a_project, a_tenant_admin, a_user, an_actor, signed_in
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
TERMS = WebhookTerms(name="CI", url="http://127.0.0.1:9/hook", events=["*"])


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


@pytest.fixture
def admin() -> Actor:
    return an_actor(a_tenant_admin(a_project().tenant))


def _token(admin: Actor, made_with: ApiToken | None = None) -> tuple[ApiToken, Actor]:
    """A token, and its holder as a request with it acts."""
    with tenant_tx(admin.tenant_id):
        maker = made_with.id if made_with else None
        token, clear = token_create(actor=admin, name="x", days=9, now=NOW, made_with=maker)
    holder = token_verify(clear, now=NOW)
    assert holder is not None
    assert holder.actor is not None
    return token, holder.actor


def _set_up(actor: Actor) -> User:
    """One of everything that a token can set up; returns who is invited."""
    invited = signed_in(a_user())
    hook = PolicyHookTerms(
        url="http://127.0.0.1:9/", timeout_ms=500, is_on=True, is_fail_open=True, is_dry_run=False
    )
    chat = ChatChannelTerms(name="Ops", url="discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js")
    with tenant_tx(actor.tenant_id):
        webhook_create(actor=actor, terms=TERMS, now=NOW)
        chat_channel_create(actor=actor, terms=chat, now=NOW)
        hook_set(actor=actor, terms=hook, now=NOW)
        invitation_create(actor=actor, to=invited.username, role="tenant_admin", project=None, now=NOW)
    return invited


def _still_there(actor: Actor) -> list[str]:
    with tenant_tx(actor.tenant_id):
        found = {
            "webhook": Webhook.objects.filter(disabled_at=None),
            "chat": ChatChannel.objects.all(),
            "hook": PolicyHook.objects.filter(is_on=True),
            "invitation": Invitation.objects.filter(state="open"),
        }
        return [name for name, rows in found.items() if rows.exists()]


@pytest.mark.parametrize("how", ["revoked", "rotated", "grandparent revoked"])
def test_everything_that_a_token_set_up_ends_with_it(admin: Actor, how: str) -> None:
    parent, _ = _token(admin)
    token, acting = _token(admin, parent)
    _set_up(acting)
    assert len(_still_there(admin)) == 4
    with tenant_tx(admin.tenant_id):
        if how == "rotated":
            token_rotate(actor=admin, token_id=token.id, overlap_hours=0, now=LATER)
        else:
            wanted = token if how == "revoked" else parent
            token_revoke(actor=admin, token_id=wanted.id, now=LATER)
    assert _still_there(admin) == []
    with tenant_tx(admin.tenant_id):
        assert Webhook.objects.get().disabled_reason == REASON


@pytest.mark.parametrize("how", ["expired", "closed"])
def test_everything_ends_when_the_token_expires_or_its_account_is_closed(admin: Actor, how: str) -> None:
    token, acting = _token(admin)
    invited = _set_up(acting)
    now = token.expires if how == "expired" else LATER
    if how == "closed":
        with as_owner():
            User.objects.filter(id=admin.user_id).update(is_active=False)
    assert received_invitations(invited.credential, min(now, LATER)) == [] or how == "expired"
    with as_system():
        products_sweep(now - timedelta(seconds=1) if how == "expired" else NOW)
    assert len(_still_there(admin)) == (4 if how == "expired" else 0)
    with as_system():
        products_sweep(now)
    assert _still_there(admin) == []


def test_what_is_set_up_in_a_browser_stays(admin: Actor) -> None:
    token, _ = _token(admin)
    _set_up(admin)
    with tenant_tx(admin.tenant_id):
        token_revoke(actor=admin, token_id=token.id, now=NOW)
    with as_system():
        products_sweep(NOW + timedelta(days=400))
    assert len(_still_there(admin)) == 4


def test_a_webhook_that_a_token_sends_elsewhere_ends_with_it(admin: Actor) -> None:
    token, acting = _token(admin)
    with tenant_tx(admin.tenant_id):
        webhook, _ = webhook_create(actor=admin, terms=TERMS, now=NOW)
        moved = WebhookTerms(name="CI", url="http://127.0.0.1:9/elsewhere", events=["*"])
        webhook_change(actor=acting, webhook_id=webhook.id, terms=moved, now=NOW)
        token_revoke(actor=admin, token_id=token.id, now=LATER)
        assert Webhook.objects.get().disabled_at == LATER


def test_who_switches_a_webhook_on_in_a_browser_keeps_it(admin: Actor) -> None:
    token, acting = _token(admin)
    with tenant_tx(admin.tenant_id):
        webhook, _ = webhook_create(actor=acting, terms=TERMS, now=NOW)
        token_revoke(actor=admin, token_id=token.id, now=LATER)
        webhook_enabled_set(actor=admin, webhook_id=webhook.id, is_enabled=True, now=LATER)
    with as_system():
        products_sweep(LATER)
    assert _still_there(admin) == ["webhook"]
